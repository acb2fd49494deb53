"""The command `shardwright repair`: rebuild the broken files of a dataset from its sources."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from pipelines.display import ProgressDisplay
from pipelines.running import say, stop_signals
from shardwright.errors import BuildError, ShardwrightError
from shardwright.format.manifest import read_manifest
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    EXIT_FAULTS,
    fail,
    make_parser,
    print_safely,
    root_of,
    show_progress,
    to_json,
)
from shardwright.inspect.faults import Verification
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from transforms.progress import PROGRESS

_EPILOG = """\
examples
  shardwright repair dataset/
  shardwright repair dataset/ --input /mnt/new/photos
  shardwright repair s3://bucket/dataset --salvage
  shardwright repair dataset/ -- --transform my_code.py:crop

Reads every byte, as `shardwright verify` does, and makes the broken files again, with the bytes
that the manifest states. Sound files are not touched. Damaged records are read from INPUT by the
build's command, which the manifest records. Give its --storage-option again, and after -- those of
its options that run code. Other parts of INPUT may have changed meanwhile.

A record whose source is gone or changed stays broken. With --salvage it is left out of its shard
and listed in rejects/ with the reason "lost"; all other records stay.

Exit codes: 0 nothing is broken any more, 1 a file is still broken, 2 wrong usage or not a dataset.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    logging.getLogger().setLevel(logging.WARNING)
    words = list(sys.argv[1:] if argv is None else argv)
    cut = words.index("--") if "--" in words else len(words)
    args = _parser().parse_args(words[:cut])
    with stop_signals() as stop:
        try:
            return _repair(args, tuple(words[cut + 1 :]))
        except KeyboardInterrupt:
            if stop.signal is None:
                raise
            say(f"stopped by {stop.signal.name}; run the same command again")
            return 128 + stop.signal
        except ShardwrightError as error:
            return fail(error)


def _parser() -> argparse.ArgumentParser:
    parser = make_parser(
        "repair", "Rebuild the broken files of a dataset from its sources, byte for byte.", _EPILOG
    )
    parser.add_argument("--input", metavar="INPUT", help="INPUT of the build, if it has moved")
    parser.add_argument(
        "--salvage",
        action="store_true",
        help="leave damaged records out whose sources are gone or changed, and list them",
    )
    return parser


def _repair(args: argparse.Namespace, words: tuple[str, ...]) -> int:
    # Late, because they import most of the build, and `--help` is answered without it.
    from pipelines.repairs.broken_files import find_broken
    from pipelines.repairs.recorded_build import GivenBuild, recorded_job
    from pipelines.repairs.repair import Repair
    from transforms.publish.republication import finish_change

    root = root_of(args)
    if finish_change(root):
        say("finished the repair that was stopped")
    manifest = read_manifest(root)
    if manifest.folder:
        raise BuildError(f"a build is replacing the dataset at {root}: run its command again first")
    found = _verify(root, root.options)
    for fault in found.faults:
        say(str(fault))
    broken = find_broken(root, manifest, found.faults)
    given = GivenBuild(args.input, tuple(args.storage_option), words)
    with ProgressDisplay(PROGRESS):
        outcome = Repair(
            root, broken, lambda: recorded_job(manifest, root, given), salvage=args.salvage
        ).run()
    told = f"{root}: nothing is broken" if found.is_sound else outcome.to_text(root.uri)
    print_safely(to_json(outcome.to_json()) if args.json else told)
    return EXIT_FAULTS if outcome.failed else EXIT_DONE


def _verify(root: Folder, options: StorageOptions) -> Verification:
    from shardwright.inspect.verify import verify

    progress = show_progress if sys.stderr.isatty() else None
    return verify(root.uri, progress=progress, storage_options=options)


if __name__ == "__main__":
    sys.exit(main())
