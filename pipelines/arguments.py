"""The command line of `build` and `plan`: what `--help` says."""

from __future__ import annotations

import argparse

from schemas.image_classification import FEATURE_NAMES
from transforms.output_state import IF_EXISTS

ROLES = ("image", "label", "id", "split", "group", "size")
CHECKS = ("header", "decode", "none")
ENCODINGS = ("keep", "jpeg", "png", "raw")
WRITERS = ("planned", "beam")

_DESCRIPTION = {
    "build": "Turn a folder or table of images into fixed-size, globally shuffled TFRecord shards of tf.Example.",
    "plan": "Show what `build` would write: shards, records and bytes of each split. Reads names and sizes, no image.",
}
_EPILOG = """\
INPUT, OUTPUT and tables are local paths, s3://BUCKET/..., gs://BUCKET/... or az://CONTAINER/..., in any mix. INPUT is one of
  DIR/<class>/**            class folders: the first folder is the label
  DIR/<split>/<class>/**    where the first level holds nothing but split names (train, val, validation, test, ...)
  DIR/*                     images without labels
  TABLE                     .csv .tsv .jsonl .parquet naming images, paths relative to the table's folder; its other
                            columns become features

examples
  shardwright build photos/ dataset/
  shardwright build photos/ dataset/ --split train=0.8,validation=0.1,test=0.1 --records-per-shard 1024
  shardwright build labels.csv dataset/ --image-column path --label-column species --group-column patient
  shardwright build photos/ dataset/ --encode jpeg --resize 256x256 --check decode
  shardwright build s3://raw/photos gs://training/photos
  shardwright build s3://raw/photos dataset/ --storage-option endpoint=http://minio:9000

A stopped build goes on when the same command is run again; a finished one is "up to date" within seconds.
Any option of Beam may follow, such as --runner; without one the build runs in this process (FnApiRunner).
Exit codes: 0 done, 1 the build failed, 2 wrong usage.
"""


def make_parser(command: str) -> argparse.ArgumentParser:
    """The parser of `build` or `plan`; abbreviations are off, so that none swallows an option of Beam."""
    parser = argparse.ArgumentParser(
        prog=f"shardwright {command}",
        description=_DESCRIPTION[command],
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("input", metavar="INPUT", help="a folder or prefix of images, or a table naming them")
    parser.add_argument("output", metavar="OUTPUT", help="the dataset's folder or prefix; it is made where there is none")
    _add_input_options(parser)
    _add_shard_options(parser)
    _add_image_options(parser)
    _add_dataset_options(parser)
    _add_storage_options(parser)
    if command == "plan":
        parser.add_argument("--json", action="store_true", help="print the plan as JSON")
    return parser


def _add_input_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("input")
    group.add_argument("--labels", metavar="TABLE", help="a second table whose path column gives ids of INPUT: their label and features")
    group.add_argument("--class-names", metavar="FILE", help="class names in label order, one a line; default: the sorted labels")
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
    group.add_argument("--split", metavar="NAME=FRACTION,...", help="draw splits by a stable hash of the id (default: all train)")
    group.add_argument("--shard-size", metavar="SIZE", help="aim for shards of this size, equal to within one record (default: 150MB)")
    group.add_argument("--records-per-shard", type=int, metavar="N", help="exactly N records in every shard but the last")
    group.add_argument("--shard-count", type=int, metavar="N", help="N shards a split, equal to within one record")
    group.add_argument("--shard-count-multiple-of", type=int, default=1, metavar="N", help="round the number of shards up, for N readers")
    group.add_argument("--seed", type=int, default=0, help="of the global shuffle (default: 0)")


def _add_image_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("images")
    group.add_argument(
        "--encode", choices=ENCODINGS, default="keep", help="keep the files' bytes (default), or encode anew; raw is uint8 RGB"
    )
    group.add_argument("--resize", metavar="WxH", help="resize to exactly this; needs --encode jpeg, png or raw")
    group.add_argument("--quality", type=int, default=90, help="of --encode jpeg, 1 to 100 (default: 90)")
    group.add_argument(
        "--check", choices=CHECKS, default="header", help="look at header and end of file (default), decode in full, or neither"
    )
    group.add_argument(
        "--max-reject-fraction", type=float, default=0.01, metavar="F", help="of inputs that may be rejects, 0 to 1 (default: 0.01)"
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


def _add_dataset_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("dataset")
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
        "--writer", choices=WRITERS, default="planned", help="beam: Beam's stock WriteToTFRecord; sizes and order are then not exact"
    )
    group.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="read and check images by N threads a process, or N objects at a time from a store (default: as many as pay, up to 32; 128)",
    )
