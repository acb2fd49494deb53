"""The commands `inspect`, `verify`, `show`, `diff` and `doctor`.

Results go to stdout, messages and progress to stderr.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from shardwright.errors import ShardwrightError
from shardwright.fail_on import exceeded, parse_limits
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    EXIT_FAULTS,
    add_version,
    fail,
    make_parser,
    manifest_of,
    root_of,
    show_progress,
    to_json,
)
from shardwright.storage.options import StorageOptions
from shardwright.terminal import print_safely, say

_VERIFY_EPILOG = """\
Checks the length and checksum of every shard; the frame, example, features, label and id of every
record; every row of the index; that ids are unique; and the class names, statistics, rejects,
features.json and dataset_info.json. Of a dataset that has grown, all of its versions are checked,
with their generations and files, and the pins; --newest checks the newest one alone. Prints each
fault as

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
_DIFF_EPILOG = """\
examples
  shardwright diff monday/ tuesday/
  shardwright diff s3://bucket/monday s3://bucket/tuesday --fail-on 'drift>0.1,gone>0,changed>1%'
  shardwright diff monday/ tuesday/ --ids changes.csv

A record is the same if its id, split, class, image (by length and checksum) and other features (by
the hash in the index) are; a record without an image is compared by its length, too. Hashes of
further images and of results of --transform are of their inputs: they are compared only between
versions of one dataset. Reads the manifests and indexes, and at most 100 reannotated records, to
name the features that differ. Holds the ids of both in memory.

The drift of classes is half the sum of the differences of their shares (total variation); that of
width, height and image_length the largest difference of their cumulative shares (Kolmogorov-
Smirnov). Both are 0 for equal distributions and 1 for disjoint ones. --fail-on compares the largest
of them, all splits together.

Exit codes: 0 compared, 1 a limit of --fail-on exceeded or an index unreadable, 2 wrong usage or not
a dataset.
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

    parser = make_parser(
        "inspect",
        "Show a dataset's splits, records, bytes, features, classes and shard sizes.",
        _INSPECT_EPILOG,
    )
    add_version(parser)
    args = parser.parse_args(argv)
    try:
        manifest = manifest_of(args)
        description = describe(manifest, root_of(args).uri)
    except ShardwrightError as error:
        return fail(error)
    print_safely(to_json(description) if args.json else format_description(manifest, description))
    return EXIT_DONE


def verify(argv: Sequence[str]) -> int:
    """Run `shardwright verify` and return its exit code."""
    from shardwright.inspect import verify as verifying

    parser = make_parser(
        "verify", "Check a dataset against its manifest, byte by byte.", _VERIFY_EPILOG
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="compare only lengths and the checksums that the store keeps; reads no shard",
    )
    parser.add_argument(
        "--newest",
        action="store_true",
        help="of a dataset that has grown, the newest version alone",
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
        progress = show_progress if sys.stderr.isatty() else None
        options = StorageOptions.parse(args.storage_option)
        if args.quick:
            from shardwright.inspect.quick_verify import verify_quickly
            from shardwright.inspect.version_check import verify_versions

            result = verify_versions(
                root_of(args),
                lambda root: verify_quickly(root, threads=args.threads),
                newest=args.newest,
            )
        else:
            result = verifying.verify(
                args.dataset,
                threads=args.threads,
                progress=progress,
                storage_options=options,
                newest=args.newest,
            )
    except ShardwrightError as error:
        return fail(error)
    print_safely(to_json(result.to_json()) if args.json else result.to_text())
    return EXIT_DONE if result.is_sound else EXIT_FAULTS


def show(argv: Sequence[str]) -> int:
    """Run `shardwright show` and return its exit code."""
    from shardwright.inspect.record_lookup import find_record
    from shardwright.inspect.show import format_record, record_json, save_image

    parser = make_parser(
        "show", "Show one record: its place, its image and its features.", _SHOW_EPILOG
    )
    parser.add_argument("record", metavar="ID|N", help="a record's id, or its number in the split")
    parser.add_argument("--split", metavar="S", help="the split to search")
    parser.add_argument("--by", choices=("id", "number"), help="treat ID|N as this only")
    parser.add_argument(
        "--save", metavar="FILE", help="write the image's bytes to FILE; raw pixels as .npy"
    )
    add_version(parser)
    args = parser.parse_args(argv)
    try:
        manifest = manifest_of(args)
        found = find_record(
            root_of(args).below(manifest.folder),
            manifest,
            args.record,
            split=args.split,
            by=args.by,
        )
        print_safely(
            to_json(record_json(manifest, found)) if args.json else format_record(manifest, found)
        )
        if args.save is not None:
            say(f"saved {save_image(manifest, found, args.save)}")
    except ShardwrightError as error:
        return fail(error)
    return EXIT_DONE


def diff(argv: Sequence[str]) -> int:
    """Run `shardwright diff` and return its exit code."""
    from shardwright.inspect import diff as diffing
    from shardwright.inspect.diff_report import format_difference

    parser = make_parser(
        "diff", "Compare a dataset with a newer one: records, classes, schema, drift.", _DIFF_EPILOG
    )
    parser.add_argument("newer", metavar="NEWER", help="the newer dataset's folder")
    add_version(parser)
    parser.add_argument(
        "--fail-on",
        metavar="LIMITS",
        help=f"exit with 1 above a limit, such as 'drift>0.1,gone>1%%'; names: "
        f"{', '.join(diffing.LIMITED)}",
    )
    parser.add_argument(
        "--ids", metavar="FILE", help="write the ids of all changes to a CSV file: change,split,id"
    )
    args = parser.parse_args(argv)
    try:
        limits = parse_limits(args.fail_on or "", diffing.LIMITED, diffing.PERCENTAGES)
        old = diffing.OpenedDataset(root_of(args), manifest_of(args))
        new = diffing.OpenedDataset.at(root_of(args, args.newer))
        found = diffing.compare(old, new)
        print_safely(to_json(found.summary) if args.json else format_difference(found.summary))
        if args.ids is not None:
            diffing.write_ids(found.changes, args.ids)
    except ShardwrightError as error:
        return fail(error)
    above = exceeded(limits, diffing.measured_values(found, new.manifest))
    for line in above:
        say(f"--fail-on {line}")
    return EXIT_FAULTS if above else EXIT_DONE


def doctor(argv: Sequence[str]) -> int:
    """Run `shardwright doctor` and return its exit code."""
    parser = make_parser(
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
        return fail(error)
    extra = {"limited_by": limiting_stage(found), "advice": advice(found, args.target)}
    print_safely(
        to_json(found.to_json() | extra) if args.json else format_diagnosis(found, args.target)
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
