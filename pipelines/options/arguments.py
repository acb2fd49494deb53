"""The options of `build` and `plan`: name, type, default, help and parsing of each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field
from typing import Any

from shardwright.fail_on import Limit, parse_most
from shardwright.format.naming import is_dataset_name
from shardwright.pipelines.options.parser import OptionParser
from shardwright.schemas.image_classification import FEATURE_NAMES
from shardwright.schemas.ready import READY_SCHEMAS
from shardwright.sizes import parse_size
from shardwright.storage.addresses import absolute
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.transforms.images.checks import CHECKS
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.near_duplicates.options import NearDuplicateOptions
from shardwright.transforms.options import IMAGES, OptionGroup
from shardwright.transforms.publish.fail_on import NAMES as LIMITED
from shardwright.transforms.publish.fail_on import parse_fail_on
from shardwright.transforms.reject_limits import RejectLimits
from shardwright.transforms.splits.split_rules import SplitRule, parse_split
from shardwright.transforms.user_code import UserTransform

# Join keys of --labels: the id (its column, else the path), the path, or the name of the file.
_LABEL_KEYS = ("id", "path", "stem")
_PLACES = OptionGroup("")
_INPUT = OptionGroup("input")
_SHARDS = OptionGroup("splits and shards")
_CODE = OptionGroup("your own code")
_DATASET = OptionGroup("dataset")
_STORAGE = OptionGroup(
    "storage",
    "Credentials: the AWS environment, profile or role; Google application default credentials.",
)


def _column(text: str, *, usual: bool = False) -> Any:
    return _INPUT.option(None, f"table column with {text}", metavar="NAME", usual=usual)


def _absolute_paths(text: str, *, metavar: str) -> Any:
    """Return an option that may be repeated."""
    return _INPUT.option(
        (), text, action="append", metavar=metavar, parse=lambda paths: tuple(map(absolute, paths))
    )


@dataclass(frozen=True, kw_only=True)
class BuildArguments:
    """The options of `build` and `plan`, not yet checked together."""

    input: str = _PLACES.option(
        MISSING,
        "images and labels: folders, a table, COCO, VOC, YOLO, tar, zip, TFRecord, a dataset, ...",
        metavar="INPUT",
        usual=True,
    )
    output: str = _PLACES.option(
        MISSING,
        "folder or prefix of the dataset; created if missing",
        metavar="OUTPUT",
        usual=True,
    )
    input_format: str | None = _INPUT.option(
        None, "format of INPUT, one of those listed below (default: detected)", metavar="NAME"
    )
    top_folders: str | None = _INPUT.option(
        None,
        "the folders directly in INPUT are splits or classes (default: splits if all have names "
        "such as train, val and test; an error if only some have)",
        choices=("splits", "classes"),
    )
    image_root: str | None = _INPUT.option(
        None,
        "base folder of relative image paths (default: the folder of the file with them)",
        metavar="DIR",
    )
    allow_outside: tuple[str, ...] = _absolute_paths(
        "accept images in this folder, where paths and links of INPUT may lead; may be repeated. "
        "Without it, they must be in the folder of INPUT or of --image-root",
        metavar="DIR",
    )
    labels: str | None = _INPUT.option(
        None,
        "table of any size with labels, splits and features for INPUT; all --*-column options "
        "except --size-column then refer to it",
        metavar="TABLE",
        usual=True,
    )
    labels_key: str = _INPUT.option(
        "id",
        "join key of --labels: id (default: its id column, else its path column; the id of a "
        "file is its path), path (even if it has ids), or stem (file name without extension, which "
        "must be unique in INPUT and TABLE)",
        choices=_LABEL_KEYS,
    )
    label_separator: str = _INPUT.option(
        "",
        "text between labels in a cell of a table, for features of several labels, such as ';' "
        "(default: '|'; lists of JSON and Python need none)",
        metavar="TEXT",
    )
    class_names: str | None = _INPUT.option(
        None,
        "class names in label order, one per line (default: the sorted labels)",
        metavar="FILE",
    )
    accept_partial: tuple[str, ...] = _absolute_paths(
        "build from the readable part of a file or folder of INPUT that cannot be read to its end "
        "(a path or a wildcard); may be repeated. Learned class names need --class-names then",
        metavar="PATH",
    )
    image_column: str | None = _column("image paths (default: image, path, file_name, ...)")
    label_column: str | None = _column(
        "labels (default: label, class, category, target, ...)", usual=True
    )
    id_column: str | None = _column("ids (default: id, else the image path)")
    split_column: str | None = _column("split names (default: split, subset, ...)")
    group_column: str | None = _column(
        "groups, such as patients: a group is never divided between splits"
    )
    size_column: str | None = _column("file sizes in bytes, which saves one lookup per file")
    split: SplitRule | None = _SHARDS.option(
        None,
        "draw splits: train=0.8,test=0.2 by a stable hash of the id, so new images never move "
        "others; test=5000,train=rest with exact sizes, where new images may move others "
        "(default: the splits of INPUT, else all train)",
        metavar="NAME=FRACTION|COUNT|rest,...",
        parse=parse_split,
        usual=True,
    )
    stratify: bool = _SHARDS.option(
        False,
        "give every split the same class fractions: exact to one record, approximate with "
        "--group-column; new images may move others",
        usual=True,
    )
    split_ids: tuple[str, ...] = _SHARDS.option(
        (),
        "ids of split NAME, one per line, or a table or JSON file of ids and splits; may be "
        "repeated. --split assigns all other ids",
        action="append",
        metavar="[NAME=]FILE",
        parse=tuple,
    )
    duplicates: str = _SHARDS.option(
        "keep",
        "images with identical bytes: keep all (default), or keep the first by id and drop or "
        "reject the others. Drop and reject read images of equal size once more, also for a plan. "
        "Duplicates across splits are always reported",
        choices=("keep", "drop", "reject"),
        usual=True,
    )
    shard_size: int | None = _SHARDS.option(
        None,
        "target shard size; the shards of a split have equal bytes to within one record "
        "(default: 150MB)",
        metavar="SIZE",
        parse=lambda text: parse_size(text, "--shard-size"),
        usual=True,
    )
    records_per_shard: int | None = _SHARDS.option(
        None,
        "exactly N records in every shard except the last of a split",
        type=int,
        metavar="N",
        usual=True,
    )
    shard_count: int | None = _SHARDS.option(
        None, "exactly N shards per split, equal to within one record", type=int, metavar="N"
    )
    shard_count_multiple_of: int = _SHARDS.option(
        1,
        "round the number of shards up to a multiple of N, for N readers (default: 1)",
        type=int,
        metavar="N",
    )
    seed: int = _SHARDS.option(0, "seed of the global shuffle (default: 0)", type=int, usual=True)
    encode: EncodeOptions = field(default_factory=EncodeOptions)
    check: str = IMAGES.option(
        "header",
        "check header and end of file (default), decode every image, or check nothing",
        choices=CHECKS,
        usual=True,
    )
    signals: bool = IMAGES.option(
        False,
        "measure brightness, contrast, sharpness, information, color and size of every image "
        "(signals/*.parquet); without, a sample is measured",
    )
    near: NearDuplicateOptions = field(default_factory=NearDuplicateOptions)
    limits: RejectLimits = field(default_factory=RejectLimits)
    transforms: tuple[UserTransform, ...] = _CODE.option(
        (),
        "call your function on each record before it is written (shardwright.transforms.Record "
        "in; one record, several or none out); may be repeated. For workers on other machines, "
        "add its package with --setup_file",
        name="transform",
        action="append",
        metavar="MODULE|FILE.py:FUNCTION",
        parse=lambda specs: tuple(map(UserTransform.find, specs)),
        usual=True,
    )
    schema: str | None = _DATASET.option(
        None,
        f"features of an example: {', '.join(READY_SCHEMAS)}, a .py file that defines SCHEMA "
        "(an ExampleSchema), or its .json; other columns are left out (default: image, id, label "
        "and every other column)",
        metavar="NAME|FILE",
        usual=True,
    )
    feature_names: str = _DATASET.option(
        "tfds",
        "names of the features: image, label, id (tfds, default), or those that TensorFlow "
        "Model Garden reads",
        choices=sorted(FEATURE_NAMES),
    )
    name: str = _DATASET.option(
        "",
        "prefix of the shards' file names (default: from OUTPUT)",
        rule=(
            "lower-case letters, digits and underscores and start with a letter",
            is_dataset_name,
        ),
    )
    version: str = _DATASET.option(
        "1.0.0",
        "version of the dataset (default: 1.0.0)",
        rule=("three numbers, such as 1.0.0", lambda t: bool(re.fullmatch(r"\d+\.\d+\.\d+", t))),
    )
    if_exists: str = _DATASET.option(
        "resume",
        "if OUTPUT has a dataset: resume its build (default), append changes, overwrite, or fail",
        choices=("resume", "append", "overwrite", "error"),
        usual=True,
    )
    keep_missing: bool = _DATASET.option(
        False, "with --if-exists append: keep the records that INPUT no longer has"
    )
    max_gone: Limit | None = _DATASET.option(
        None,
        "with --if-exists append: write nothing if INPUT lacks more than N records of the dataset, "
        "or N percent of them (default: if it lacks more than 10 percent and more than 20)",
        metavar="N|N%",
        parse=lambda text: parse_most(text, "--max-gone", "gone"),
    )
    fail_on: tuple[Limit, ...] | None = _DATASET.option(
        None,
        "publish nothing and exit with 1 above a limit, such as 'drift>0.1,leaks>0'; names: "
        f"{', '.join(LIMITED)}. `shardwright diff --help` explains drift",
        metavar="LIMITS",
        parse=parse_fail_on,
    )
    against: str | None = _DATASET.option(
        None,
        "dataset that --fail-on compares with (default: the version before, or the dataset that is "
        "overwritten)",
        metavar="DATASET",
    )
    writer: str = _DATASET.option(
        "planned",
        "planned (default), or beam: Beam's stock WriteToTFRecord, with inexact sizes and order",
        choices=("planned", "beam"),
    )
    threads: int | None = _DATASET.option(
        None,
        "threads per process that read and check images, or concurrent reads from a store "
        "(default: automatic, at most 32 threads or 128 reads)",
        rule=("at least 1", lambda count: count >= 1),
        type=int,
        metavar="N",
    )
    storage: StorageOptions = _STORAGE.option(
        NO_OPTIONS,
        "such as endpoint=http://minio:9000, region=eu-west-1, anonymous=true, "
        "path_style=true, role_arn=ARN (S3 on Google machines), deadline=60 (seconds of retries), "
        "or s3://BUCKET:KEY=VALUE for one bucket; may be repeated",
        name="storage_option",
        action="append",
        metavar="KEY=VALUE",
        parse=StorageOptions.parse,
        usual=True,
    )
    shared_filesystem: bool = _STORAGE.option(
        False,
        "accept local paths with a cluster's runner: all its workers see them under the same "
        "names (NFS, or a cluster on this machine)",
    )


def answer_help(command: str, argv: Sequence[str]) -> None:
    """Print the help and exit if it is asked for, before what takes longer is imported."""
    if not {"-h", "--help"}.isdisjoint(argv):
        make_parser(command).parse_args(["--help"])


def make_parser(command: str) -> OptionParser:
    """Return the parser of `build` or `plan`."""
    parser = OptionParser(command)
    parser.add_options(BuildArguments)
    if command == "plan":
        parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    return parser
