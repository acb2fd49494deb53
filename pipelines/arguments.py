"""The command line of `build` and `plan`: what `--help` says."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from pipelines.image_options import add_image_options
from schemas.image_classification import FEATURE_NAMES
from schemas.ready import READY_SCHEMAS
from transforms.inputs.detection import known_formats
from transforms.inputs.tables.table_source import LABEL_KEYS
from transforms.output_state import IF_EXISTS

ROLES = ("image", "label", "id", "split", "group", "size")
DUPLICATES = ("keep", "drop", "reject")
WRITERS = ("planned", "beam")

_DESCRIPTION = {
    "build": "Turn images and their labels into fixed-size, globally shuffled TFRecord shards of tf.Example.",
    "plan": "Show what `build` would write: shards, records and bytes of each split. Reads names and sizes, no image.",
}
_EPILOG = """\
INPUT, OUTPUT and tables are local paths, s3://BUCKET/..., gs://BUCKET/... or az://CONTAINER/..., in any mix. INPUT is one of
  DIR/<class>/**            class folders: the first folder is the label
  DIR/<split>/<class>/**    where the first level holds nothing but split names (train, val, validation, test, ...)
  DIR/*                     images without labels
  TABLE                     .csv .tsv .jsonl .parquet naming images, paths relative to the table's folder; its other
                            columns become features
or of the input formats listed at the end; what it was taken for is the first line of the log

examples
  shardwright build photos/ dataset/
  shardwright build photos/ dataset/ --split train=0.8,validation=0.1,test=0.1 --records-per-shard 1024
  shardwright build photos/ dataset/ --split test=5000,train=rest --stratify --duplicates drop
  shardwright build labels.csv dataset/ --image-column path --label-column species --group-column patient
  shardwright build coco/annotations/instances_train2017.json dataset/ --image-root coco/train2017
  shardwright build 'shards/train-*.tar' dataset/
  shardwright build photos/ dataset/ --labels labels.csv --labels-key stem
  shardwright build photos/ dataset/ --encode jpeg --resize 256x256 --check decode
  shardwright build s3://raw/photos gs://training/photos
  shardwright build s3://raw/photos dataset/ --storage-option endpoint=http://minio:9000

  shardwright build gs://raw/photos gs://training/photos --runner DataflowRunner --project p --region r --temp_location gs://b/tmp

INPUT and OUTPUT may be given as --input INPUT --output OUTPUT, for schedulers that pass only named parameters.
A stopped build goes on when the same command is run again; a finished one is "up to date" within seconds.
Any option of Beam may follow, such as --runner; without one the build runs in this process (FnApiRunner).
Exit codes: 0 done, 1 the build failed, 2 wrong usage.
"""


class _Parser(argparse.ArgumentParser):
    """Lists the installed input formats too, which are loaded for that only when somebody asks for help."""

    def format_help(self) -> str:
        formats = known_formats()
        width = max(map(len, formats))
        listed = "".join(f"  {name:{width}}  {known.summary}\n" for name, known in formats.items())
        return f"{super().format_help()}\ninput formats, in the order in which INPUT is tried for them\n{listed}"


def make_parser(command: str) -> argparse.ArgumentParser:
    """The parser of `build` or `plan`; abbreviations are off, so that none swallows an option of Beam."""
    parser = _Parser(
        prog=f"shardwright {command}",
        description=_DESCRIPTION[command],
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "input",
        metavar="INPUT",
        help="images and what labels them: folders, a table, COCO, VOC, YOLO, tar, zip, TFRecord, ... (see below)",
    )
    parser.add_argument(
        "output",
        metavar="OUTPUT",
        help="the dataset's folder or prefix; it is made where there is none",
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


def as_declared(parser: argparse.ArgumentParser, args: Iterable[str]) -> Iterator[str]:
    """Options as a parser declares them, where a template gives them: `--some_flag=true` for `--some-flag`, and no `=false` at all.

    Dataflow's templates pass every parameter as NAME=VALUE, so an option without a value could not be given.
    """
    for arg in args:
        name, equals, value = arg.partition("=")
        declared = name.replace("_", "-")
        action = parser._option_string_actions.get(declared) if name.startswith("--") else None
        if action is None:
            yield arg
        elif action.nargs != 0 or value not in ("true", "false"):
            yield f"{declared}{equals}{value}"
        elif value == "true":
            yield declared


def _add_input_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("input")
    group.add_argument(
        "--input-format",
        metavar="NAME",
        help="take INPUT for this, without looking: one of those listed below",
    )
    group.add_argument(
        "--image-root",
        metavar="DIR",
        help="where relative image paths start (default: the folder of the file with them)",
    )
    group.add_argument(
        "--labels",
        metavar="TABLE",
        help="a second table, of any size: labels, splits and features of INPUT; --*-column are then its columns",
    )
    group.add_argument(
        "--labels-key",
        choices=LABEL_KEYS,
        default="id",
        help="what its rows go by: id (default: its column of ids, else of paths; the id of a file is its path), path (although it has "
        "ids), or stem (the file's name without extension)",
    )
    group.add_argument(
        "--class-names",
        metavar="FILE",
        help="class names in label order, one a line; default: the sorted labels",
    )
    for role, text in (
        ("image", "image paths (default: a column called image, path, file_name, ...)"),
        ("label", "labels (default: label, class, category, target, ...)"),
        ("id", "ids (default: a column called id, else the path)"),
        ("split", "split names (default: split, subset, ...)"),
        ("group", "what must stay in one split, such as a patient"),
        ("size", "file sizes in bytes, so that a plan need not look at the files"),
    ):
        group.add_argument(f"--{role}-column", metavar="NAME", help=f"table column with {text}")


def _add_shard_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("splits and shards")
    _add_split_options(group)
    group.add_argument(
        "--shard-size",
        metavar="SIZE",
        help="aim for shards of this size, equal to within one record (default: 150MB)",
    )
    group.add_argument(
        "--records-per-shard",
        type=int,
        metavar="N",
        help="exactly N records in every shard but the last",
    )
    group.add_argument(
        "--shard-count", type=int, metavar="N", help="N shards a split, equal to within one record"
    )
    group.add_argument(
        "--shard-count-multiple-of",
        type=int,
        default=1,
        metavar="N",
        help="round the number of shards up, for N readers",
    )
    group.add_argument("--seed", type=int, default=0, help="of the global shuffle (default: 0)")


def _add_split_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--split",
        metavar="NAME=FRACTION|COUNT|rest,...",
        help="draw splits by a stable hash of the id, as train=0.8,test=0.2, which keeps every image in its split when others are added; "
        "or of exact sizes, as test=5000,train=rest, where added images may move others (default: all train)",
    )
    group.add_argument(
        "--stratify",
        action="store_true",
        help="the same fraction of every class in each split, exact to a record, or with --group-column as near as can be; images added "
        "later may move others",
    )
    group.add_argument(
        "--split-ids",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="ids of split NAME, one a line, or a table or JSON of ids and splits; may be repeated. --split draws those it does not list",
    )
    group.add_argument(
        "--duplicates",
        choices=DUPLICATES,
        default="keep",
        help="of images with the same bytes: keep all (default), drop all but the first by id, or count those as rejects. Drop and "
        "reject read images of equal size once more, also in a plan. Duplicates across splits are reported in any case",
    )


def _add_code_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("your own code")
    group.add_argument(
        "--transform",
        action="append",
        default=[],
        metavar="MODULE:FUNCTION",
        help="call a function of yours on each record before it is written (transforms.user_code.Record in; one record, several, or none "
        "out); may be repeated. Workers on other machines get its package by --setup_file",
    )


def _add_storage_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "storage",
        "Credentials are found as the stores' own tools find them: AWS environment, profile or role; Google's default credentials.",
    )
    group.add_argument(
        "--storage-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="such as endpoint=http://minio:9000, region=eu-west-1, anonymous=true, path_style=true, deadline=60 (seconds that a failing "
        "store is waited for), or s3://BUCKET:KEY=VALUE for one bucket; may be repeated",
    )
    group.add_argument(
        "--shared-filesystem",
        action="store_true",
        help="with a runner on other machines: its workers see local paths under the same names (NFS, or a cluster on this machine)",
    )


def _add_dataset_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("dataset")
    group.add_argument(
        "--schema",
        metavar="NAME|FILE",
        help=f"the features of an example: {', '.join(READY_SCHEMAS)}, or a .py file that defines SCHEMA (an ExampleSchema), or its .json; "
        "columns that it does not name are left out (default: image, id, label and every other column)",
    )
    group.add_argument(
        "--feature-names",
        choices=sorted(FEATURE_NAMES),
        default="tfds",
        help="image, label, id (tfds, default) or TensorFlow Model Garden's",
    )
    group.add_argument("--name", help="start of the file names (default: from OUTPUT)")
    group.add_argument("--version", default="1.0.0", help="the dataset's version (default: 1.0.0)")
    group.add_argument(
        "--if-exists",
        choices=IF_EXISTS,
        default="resume",
        help="go on with the same build (default), start over, or refuse any dataset in OUTPUT",
    )
    group.add_argument(
        "--writer",
        choices=WRITERS,
        default="planned",
        help="beam: Beam's stock WriteToTFRecord; sizes and order are then not exact",
    )
    group.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="read and check images by N threads a process, or N objects at a time from a store (default: as many as pay, up to 32; 128)",
    )
