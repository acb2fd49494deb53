"""The command `shardwright repair`: rebuild the broken files of a dataset from its sources."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from shardwright.errors import NotADatasetError
from shardwright.format import naming
from shardwright.format.superseded import block_first_version, changed_notices
from shardwright.format.versions import version_numbers
from shardwright.inspect.command_parts import (
    EXIT_DONE,
    EXIT_FAULTS,
    make_parser,
    root_of,
    show_progress,
    to_json,
)
from shardwright.pipelines.commands.results import ProgressDisplay, run_command
from shardwright.storage.folder import Folder
from shardwright.terminal import print_safely, say, set_up_log
from shardwright.transforms.progress import PROGRESS

if TYPE_CHECKING:
    from shardwright.pipelines.job.build import BuildJob
    from shardwright.pipelines.repairs.dataset import Outcome

_EPILOG = """\
examples
  shardwright repair dataset/
  shardwright repair dataset/ --input /mnt/new/photos
  shardwright repair dataset/ -- --transform my_code.py:crop

Reads every byte, as `shardwright verify` does, and makes the broken files again, with the bytes
that the manifest states. Sound files are not touched. A broken shard is written again from INPUT by
the build's command, which the manifest records. Give its --storage-option again, and after -- those
of its options that run code. Other parts of INPUT may have changed meanwhile. Of a dataset that has
grown, all generations are repaired that any of its versions names.

A shard stays broken if the source of one of its records is gone or has changed: `shardwright build
DATASET COPY --max-rejects N` copies all records that can be read.

Exit codes: 0 nothing is broken any more, 1 a file is still broken, 2 wrong usage or not a dataset.
"""


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    set_up_log()
    words = list(argv)
    cut = words.index("--") if "--" in words else len(words)
    parser = make_parser(
        "repair", "Rebuild the broken files of a dataset from its sources, byte for byte.", _EPILOG
    )
    parser.add_argument("--input", metavar="INPUT", help="INPUT of the build, if it has moved")
    args = parser.parse_args(words[:cut])
    return run_command(lambda: _repair(args, words[cut + 1 :]))


def _repair(args: argparse.Namespace, words: Sequence[str]) -> int:
    # Late, because they import most of the build, and `--help` is answered without it.
    from shardwright.inspect.version_check import KeptVersions, find_kept, version_faults
    from shardwright.pipelines.repairs.dataset import Outcome

    root = root_of(args)
    has_grown = version_numbers(root)[-1] > 1
    kept = find_kept(root) if has_grown else KeptVersions((), has_first=True)
    outcome, sound = Outcome(), set[str]()
    for folder in kept.folders:
        try:
            found = _repair_built(root.below(folder), args, words)
        except NotADatasetError as error:
            if not has_grown:
                raise
            found = Outcome(failed={naming.MANIFEST: str(error)})
        sound |= set() if found.failed else {folder}
        outcome.add(folder, found)
    # What keeps globs from version 1, and the faults of versions that no repair can mend.
    for newest in kept.versions[-1:]:
        if changed := changed_notices(root, newest.name, newest.splits):
            block_first_version(root, newest.name, newest.splits)
            outcome.repaired |= dict.fromkeys(changed, "repaired")
    for fault in (*kept.faults, *version_faults(root, kept.versions, sound)):
        if fault.file not in outcome.repaired:
            outcome.failed.setdefault(fault.file, fault.what)
    print_safely(to_json(asdict(outcome)) if args.json else outcome.to_text(root.uri))
    return EXIT_FAULTS if outcome.failed else EXIT_DONE


def _repair_built(root: Folder, args: argparse.Namespace, words: Sequence[str]) -> Outcome:
    """Repair a dataset, or a generation of one, by the manifest in its folder."""
    from shardwright.inspect.verify import verify_built
    from shardwright.pipelines.repairs.dataset import Repair
    from shardwright.pipelines.repairs.recorded_job import recorded_job
    from shardwright.transforms.promotion import read_in_place

    manifest = read_in_place(root)
    found = verify_built(root, progress=show_progress)
    for fault in found.faults:
        say(str(fault))

    def prepare() -> BuildJob:
        return recorded_job(manifest, root, args.input, args.storage_option, words)

    with ProgressDisplay(PROGRESS):
        return Repair(root, found.faults, prepare).run()
