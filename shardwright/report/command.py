"""The command `report`, which makes the page of a finished dataset."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from shardwright.inspect.command_parts import (
    EXIT_DONE,
    add_version,
    command,
    make_parser,
    manifest_of,
    root_of,
    to_json,
)
from shardwright.sizes import counted, show_bytes
from shardwright.terminal import print_safely, say

_EPILOG = """\
examples
  shardwright report dataset/
  shardwright report s3://bucket/tuesday --against s3://bucket/monday -o tuesday.html
  shardwright report dataset/ --pictures 2000

Writes one HTML file that needs no server and no network. A build writes the same page, with one
picture in 1,000 records (at least 64, at most 2,000), as report.html of the dataset; this command
can show more pictures, and another dataset to compare with. Reads the manifest, the indexes of some
shards, and the records that it shows; with --against, all indexes of both datasets.

Exit codes: 0 written, 1 dataset unreadable, 2 wrong usage or not a dataset.
"""


@command
def report_command(argv: Sequence[str]) -> int:
    """Run `shardwright report` and return its exit code."""
    parser = make_parser(
        "report", "Write a page that shows a dataset: pictures, classes, sizes, rejects.", _EPILOG
    )
    parser.add_argument(
        "--against", metavar="OTHER", help="an older dataset; the page shows the differences"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="the page's file (default: NAME-report.html)"
    )
    parser.add_argument(
        "--pictures",
        type=int,
        metavar="N",
        help="pictures to read (default: one in 1,000 records, at least 64, at most 2,000)",
    )
    add_version(parser)
    args = parser.parse_args(argv)
    if args.pictures is not None and args.pictures < 0:
        parser.error(f"--pictures must be at least 0, got {args.pictures}")
    told = _write(args)
    if args.json:
        print_safely(to_json(told))
    else:
        shown = f"{counted(told['pictures'], 'picture')}, {show_bytes(told['num_bytes'])}"
        say(f"wrote {told['report']}: {shown}")
    return EXIT_DONE


def _write(args: argparse.Namespace) -> dict[str, Any]:
    from shardwright.inspect.diff import OpenedDataset, compare
    from shardwright.report.data import collect, sample_pictures
    from shardwright.report.page import report_html

    root, manifest, difference = root_of(args), manifest_of(args), None
    if args.against is not None:
        old = OpenedDataset.at(root_of(args, args.against))
        difference = compare(old, OpenedDataset(root, manifest)).summary
    files = root.below(manifest.folder)
    pictures = sample_pictures(files, manifest, args.pictures)
    page = report_html(collect(files, manifest, pictures=pictures, difference=difference)).encode()
    path = args.output or f"{manifest.name}-report.html"
    folder, filename = os.path.split(path)
    root_of(args, folder or ".").write_bytes(filename, page)
    shown = sum(picture.thumbnail is not None for picture in pictures)
    return {"report": path, "num_bytes": len(page), "pictures": shown}
