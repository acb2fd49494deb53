"""The commands `inspect`, `verify`, `show` and `doctor`.

Results go to stdout, messages and progress to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from shardwright.errors import NotADatasetError, ShardwrightError, UsageError
from shardwright.format.manifest import read_manifest
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions

EXIT_DONE, EXIT_FAULTS, EXIT_USAGE = 0, 1, 2

_VERIFY_EPILOG = """\
Checks the length and checksum of every shard; the frame, example, features, label and id of every
record; every row of the index; that ids are unique; and the class names, statistics, rejects,
features.json and dataset_info.json. Prints each fault as

  FILE: record N at byte OFFSET: WHAT

A note is not a fault: for example, a shard file that is not in the manifest.

Exit codes: 0 sound, 1 faults found, 2 not a dataset.
"""
_INSPECT_EPILOG = """\
Reads only the manifest, so it is fast on a dataset of any size. `shardwright verify` checks the
dataset against the manifest.
"""
_SHOW_EPILOG = """\
examples
  shardwright show dataset/ cats/0001.jpg
  shardwright show dataset/ 17 --split validation
  shardwright show dataset/ cats/0001.jpg --save cat.jpg

ID is looked up in every split. N counts from 0 in file order, in `train` or the only split.
--split selects another split for either. If ids are numbers, an id takes precedence over a record
number; --by number overrides this. Reads only the index and that one record.

Exit codes: 0 shown, 1 record missing or unreadable, 2 wrong usage or not a dataset.
"""
_DOCTOR_EPILOG = """\
examples
  shardwright doctor dataset/
  shardwright doctor dataset/ --target 1786         # one H100 training ResNet-50, in MLPerf Storage
  shardwright doctor s3://bucket/dataset --image-size 160 --seconds 20

Times each stage on one thread, then runs sw.Reader on all cores, as a trainer would. The first run
measures reading from the disk or store; a second one finds the dataset cached in memory, as a
second epoch would.

Exit codes: 0 measured, 1 dataset unreadable, 2 wrong usage or not a dataset.
"""


def inspect(argv: Sequence[str]) -> int:
    """Run `shardwright inspect` and return its exit code."""
    from shardwright.inspect.describe import describe, format_description

    parser = _make_parser(
        "inspect",
        "Show a dataset's splits, records, bytes, features, classes and shard sizes.",
        _INSPECT_EPILOG,
    )
    args = parser.parse_args(argv)
    try:
        root = _root(args)
        manifest = read_manifest(root)
        description = describe(manifest, root.uri)
    except ShardwrightError as error:
        return _fail(error)
    print_safely(_to_json(description) if args.json else format_description(manifest, description))
    return EXIT_DONE


def verify(argv: Sequence[str]) -> int:
    """Run `shardwright verify` and return its exit code."""
    from shardwright.inspect import verify as verifying

    parser = _make_parser(
        "verify", "Check a dataset against its manifest, byte by byte.", _VERIFY_EPILOG
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="compare only lengths and the checksums that the store keeps; reads no shard",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=verifying.DEFAULT_THREADS,
        metavar="N",
        help="shards checked at the same time (default: %(default)s)",
    )
    args = parser.parse_args(argv)
    if args.threads < 1:
        parser.error(f"--threads must be at least 1, got {args.threads}")
    try:
        progress = _show_progress if sys.stderr.isatty() else None
        options = StorageOptions.parse(args.storage_option)
        if args.quick:
            from shardwright.inspect.quick_verify import verify_quickly

            result = verify_quickly(_root(args), threads=args.threads)
        else:
            result = verifying.verify(
                args.dataset, threads=args.threads, progress=progress, storage_options=options
            )
    except ShardwrightError as error:
        return _fail(error)
    print_safely(_to_json(result.to_json()) if args.json else result.to_text())
    return EXIT_DONE if result.is_sound else EXIT_FAULTS


def show(argv: Sequence[str]) -> int:
    """Run `shardwright show` and return its exit code."""
    from shardwright.inspect.record_lookup import find_record
    from shardwright.inspect.show import format_record, record_json, save_image

    parser = _make_parser(
        "show", "Show one record: its place, its image and its features.", _SHOW_EPILOG
    )
    parser.add_argument("record", metavar="ID|N", help="a record's id, or its number in the split")
    parser.add_argument("--split", metavar="S", help="the split to search")
    parser.add_argument("--by", choices=("id", "number"), help="treat ID|N as this only")
    parser.add_argument(
        "--save", metavar="FILE", help="write the image's bytes to FILE; raw pixels as .npy"
    )
    args = parser.parse_args(argv)
    try:
        root = _root(args)
        manifest = read_manifest(root)
        found = find_record(
            root.below(manifest.folder), manifest, args.record, split=args.split, by=args.by
        )
        print_safely(
            _to_json(record_json(manifest, found)) if args.json else format_record(manifest, found)
        )
        if args.save is not None:
            print(f"shardwright: saved {save_image(manifest, found, args.save)}", file=sys.stderr)
    except ShardwrightError as error:
        return _fail(error)
    return EXIT_DONE


def doctor(argv: Sequence[str]) -> int:
    """Run `shardwright doctor` and return its exit code."""
    parser = _make_parser(
        "doctor",
        "Measure how fast a dataset can be read for training, and find the bottleneck and its fix.",
        _DOCTOR_EPILOG,
    )
    _add_doctor_options(parser)
    args = parser.parse_args(argv)
    if args.target is not None and args.target <= 0:
        parser.error(f"--target must be above 0, got {args.target:g}")
    try:
        from shardwright.inspect.doctor import diagnose, training_reader
        from shardwright.inspect.doctor_report import advice, format_diagnosis, limiting_stage

        with training_reader(
            args.dataset,
            args.split,
            image_side=args.image_size,
            batch_size=args.batch_size,
            threads=args.threads,
            storage_options=StorageOptions.parse(args.storage_option),
        ) as reader:
            found = diagnose(reader, args.seconds)
    except ShardwrightError as error:
        return _fail(error)
    extra = {"limited_by": limiting_stage(found), "advice": advice(found, args.target)}
    print_safely(
        _to_json(found.to_json() | extra) if args.json else format_diagnosis(found, args.target)
    )
    return EXIT_DONE


def _add_doctor_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--split",
        default="train",
        metavar="S",
        help="a split or a part of one, such as train[:10%%] (default: %(default)s)",
    )
    parser.add_argument(
        "--target",
        type=float,
        metavar="RATE",
        help="target in images/s; reports the number of cores needed",
    )
    parser.add_argument(
        "--image-size",
        type=int,
        default=224,
        metavar="PIXELS",
        help="height and width of the training images (default: %(default)s)",
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        default=64,
        metavar="N",
        help="images per batch (default: %(default)s)",
    )
    parser.add_argument(
        "--threads", type=int, metavar="N", help="decoding threads (default: one per core)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=5.0,
        metavar="S",
        help="seconds to run the reader (default: %(default)s)",
    )


def _make_parser(command: str, description: str, epilog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"shardwright {command}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "dataset",
        metavar="DATASET",
        help="a dataset's folder: a local path, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX",
    )
    parser.add_argument(
        "--storage-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a storage option, such as endpoint=http://minio:9000; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _root(args: argparse.Namespace) -> Folder:
    return Folder.at(args.dataset, StorageOptions.parse(args.storage_option))


def _to_json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False)


def print_safely(text: str) -> None:
    """Print text, with backslash escapes for characters that stdout's encoding lacks."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def _show_progress(done: int, total: int) -> None:
    end = "\n" if done == total else ""
    told = f"\rshardwright: {done} of {counted(total, 'shard')} checked"
    print(told, end=end, file=sys.stderr, flush=True)


def _fail(error: ShardwrightError) -> int:
    print(f"shardwright: error: {error}", file=sys.stderr)
    return EXIT_USAGE if isinstance(error, (NotADatasetError, UsageError)) else EXIT_FAULTS
