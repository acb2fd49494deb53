"""The options of `build` and `plan`."""

from __future__ import annotations

import argparse

from pipelines.help_texts import HelpParser
from pipelines.image_options import add_image_options
from schemas.image_classification import FEATURE_NAMES
from schemas.ready import READY_SCHEMAS
from transforms.inputs.tables.table_layout import LABEL_KEYS
from transforms.output_state import IF_EXISTS

ROLES = ("image", "label", "id", "split", "group", "size")
DUPLICATES = ("keep", "drop", "reject")
WRITERS = ("planned", "beam")


def make_parser(command: str) -> HelpParser:
    """Return the parser of `build` or `plan`."""
    parser = HelpParser(command)
    parser.add_argument(
        "input",
        metavar="INPUT",
        help="images and labels: folders, a table, COCO, VOC, YOLO, tar, zip, TFRecord, ...",
    )
    parser.add_argument(
        "output",
        metavar="OUTPUT",
        help="folder or prefix of the dataset; created if missing",
    )
    _add_input_options(parser)
    _add_shard_options(parser)
    add_image_options(parser)
    _add_code_options(parser)
    _add_dataset_options(parser)
    _add_storage_options(parser)
    if command == "plan":
        parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    return parser


def _add_input_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("input")
    group.add_argument(
        "--input-format",
        metavar="NAME",
        help="format of INPUT, one of those listed below (default: detected)",
    )
    group.add_argument(
        "--image-root",
        metavar="DIR",
        help="base folder of relative image paths (default: the folder of the file with them)",
    )
    group.add_argument(
        "--labels",
        metavar="TABLE",
        help="table of any size with labels, splits and features for INPUT; all --*-column options "
        "except --size-column then refer to it",
    )
    group.add_argument(
        "--labels-key",
        choices=LABEL_KEYS,
        default="id",
        help="join key of --labels: id (default: its id column, else its path column; the id of a "
        "file is its path), path (even if it has ids), or stem (file name without extension)",
    )
    group.add_argument(
        "--class-names",
        metavar="FILE",
        help="class names in label order, one per line (default: the sorted labels)",
    )
    for role, text in (
        ("image", "image paths (default: image, path, file_name, ...)"),
        ("label", "labels (default: label, class, category, target, ...)"),
        ("id", "ids (default: id, else the image path)"),
        ("split", "split names (default: split, subset, ...)"),
        ("group", "groups, such as patients: a group is never divided between splits"),
        ("size", "file sizes in bytes, which saves one lookup per file"),
    ):
        group.add_argument(f"--{role}-column", metavar="NAME", help=f"table column with {text}")


def _add_shard_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("splits and shards")
    _add_split_options(group)
    group.add_argument(
        "--shard-size",
        metavar="SIZE",
        help="target shard size; the shards of a split are equal to within one record "
        "(default: 150MB)",
    )
    group.add_argument(
        "--records-per-shard",
        type=int,
        metavar="N",
        help="exactly N records in every shard except the last of a split",
    )
    group.add_argument(
        "--shard-count",
        type=int,
        metavar="N",
        help="exactly N shards per split, equal to within one record",
    )
    group.add_argument(
        "--shard-count-multiple-of",
        type=int,
        default=1,
        metavar="N",
        help="round the number of shards up to a multiple of N, for N readers (default: 1)",
    )
    group.add_argument(
        "--seed", type=int, default=0, help="seed of the global shuffle (default: 0)"
    )


def _add_split_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--split",
        metavar="NAME=FRACTION|COUNT|rest,...",
        help="draw splits: train=0.8,test=0.2 by a stable hash of the id, so new images never move "
        "others; test=5000,train=rest with exact sizes, where new images may move others "
        "(default: the splits of INPUT, else all train)",
    )
    group.add_argument(
        "--stratify",
        action="store_true",
        help="give every split the same class fractions: exact to one record, approximate with "
        "--group-column; new images may move others",
    )
    group.add_argument(
        "--split-ids",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="ids of split NAME, one per line, or a table or JSON file of ids and splits; may be "
        "repeated. --split assigns all other ids",
    )
    group.add_argument(
        "--duplicates",
        choices=DUPLICATES,
        default="keep",
        help="images with identical bytes: keep all (default), or keep the first by id and drop or "
        "reject the others. Drop and reject read images of equal size once more, also for a plan. "
        "Duplicates across splits are always reported",
    )


def _add_code_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("your own code")
    group.add_argument(
        "--transform",
        action="append",
        default=[],
        metavar="MODULE|FILE.py:FUNCTION",
        help="call your function on each record before it is written (transforms.Record "
        "in; one record, several or none out); may be repeated. For workers on other machines, "
        "add its package with --setup_file",
    )


def _add_storage_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "storage",
        "Credentials: the AWS environment, profile or role; Google application default "
        "credentials.",
    )
    group.add_argument(
        "--storage-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="such as endpoint=http://minio:9000, region=eu-west-1, anonymous=true, "
        "path_style=true, deadline=60 (seconds of retries), or s3://BUCKET:KEY=VALUE for one "
        "bucket; may be repeated",
    )
    group.add_argument(
        "--shared-filesystem",
        action="store_true",
        help="accept local paths with a cluster's runner: all its workers see them under the same "
        "names (NFS, or a cluster on this machine)",
    )


def _add_dataset_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("dataset")
    group.add_argument(
        "--schema",
        metavar="NAME|FILE",
        help=f"features of an example: {', '.join(READY_SCHEMAS)}, a .py file that defines SCHEMA "
        "(an ExampleSchema), or its .json; other columns are left out (default: image, id, label "
        "and every other column)",
    )
    group.add_argument(
        "--feature-names",
        choices=sorted(FEATURE_NAMES),
        default="tfds",
        help="names of the features: image, label, id (tfds, default), or those that TensorFlow "
        "Model Garden reads",
    )
    group.add_argument("--name", help="prefix of the shards' file names (default: from OUTPUT)")
    group.add_argument("--version", default="1.0.0", help="version of the dataset (default: 1.0.0)")
    group.add_argument(
        "--if-exists",
        choices=IF_EXISTS,
        default="resume",
        help="if OUTPUT has a dataset: resume the same build (default), overwrite it, or fail",
    )
    group.add_argument(
        "--writer",
        choices=WRITERS,
        default="planned",
        help="planned (default), or beam: Beam's stock WriteToTFRecord, with inexact sizes and "
        "order",
    )
    group.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="threads per process that read and check images, or concurrent reads from a store "
        "(default: automatic, at most 32 threads or 128 reads)",
    )
