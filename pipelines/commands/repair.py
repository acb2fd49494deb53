"""The command `shardwright repair`: rebuild the broken files of a dataset from its sources."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

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
    from shardwright.inspect.version_check import KeptVersions
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
    return run_command(lambda: _repair(args, tuple(words[cut + 1 :])))


def _repair(args: argparse.Namespace, words: tuple[str, ...]) -> int:
    # Late, as in `_repair_built`.
    from shardwright.inspect.version_check import find_kept

    root = root_of(args)
    if version_numbers(root)[-1] == 1:
        found = {"": _repair_built(root, args, words)}
        told = found[""].outcome.to_json()
    else:
        kept = find_kept(root)
        found = {folder: _repair_generation(root, folder, args, words) for folder in kept.folders}
        told = {"generations": {name: one.outcome.to_json() for name, one in found.items()}}
        files = _mend_versions(root, kept, {name for name, one in found.items() if one.is_sound})
        if files.failed or files.repaired:
            found["versions"] = _Repaired(files, files.to_text(root.uri))
        told["versions"] = files.to_json()
    text = "\n".join(repaired.told for repaired in found.values())
    print_safely(to_json(told) if args.json else text)
    return EXIT_DONE if all(repaired.is_sound for repaired in found.values()) else EXIT_FAULTS


def _repair_generation(
    root: Folder, folder: str, args: argparse.Namespace, words: tuple[str, ...]
) -> _Repaired:
    """Repair a generation of a dataset that has grown; one without a manifest stays as it is."""
    from shardwright.pipelines.repairs.dataset import Outcome

    try:
        return _repair_built(root.below(folder), args, words)
    except NotADatasetError as error:
        outcome = Outcome(failed={naming.MANIFEST: str(error)})
        return _Repaired(outcome, outcome.to_text(root.below(folder).uri))


def _mend_versions(root: Folder, kept: KeptVersions, sound: set[str]) -> Outcome:
    """Write what keeps globs from version 1 again, and state the faults that no repair can mend."""
    from shardwright.inspect.version_check import version_faults
    from shardwright.pipelines.repairs.dataset import Outcome

    outcome = Outcome()
    for newest in kept.versions[-1:]:
        outcome.repaired = changed_notices(root, newest.name, newest.splits)
        if outcome.repaired:
            block_first_version(root, newest.name, newest.splits)
    for fault in (*kept.faults, *version_faults(root, kept.versions, sound)):
        if fault.file not in outcome.repaired:
            outcome.failed.setdefault(fault.file, fault.what)
    return outcome


class _Repaired(NamedTuple):
    """The outcome of a repair, and a text about it."""

    outcome: Outcome
    told: str

    @property
    def is_sound(self) -> bool:
        """True if nothing is broken any more."""
        return not self.outcome.failed


def _repair_built(root: Folder, args: argparse.Namespace, words: tuple[str, ...]) -> _Repaired:
    """Repair a dataset, or a generation of one, by the manifest in its folder."""
    # Late, because they import most of the build, and `--help` is answered without it.
    from shardwright.inspect.verify import verify_built
    from shardwright.pipelines.repairs.dataset import Repair
    from shardwright.pipelines.repairs.recorded_job import GivenBuild, recorded_job
    from shardwright.transforms.promotion import read_in_place

    manifest = read_in_place(root)
    found = verify_built(root, progress=show_progress)
    for fault in found.faults:
        say(str(fault))
    given = GivenBuild(args.input, tuple(args.storage_option), words)
    with ProgressDisplay(PROGRESS):
        outcome = Repair(root, found.faults, lambda: recorded_job(manifest, root, given)).run()
    told = f"{root}: nothing is broken" if found.is_sound else outcome.to_text(root.uri)
    return _Repaired(outcome, told)
