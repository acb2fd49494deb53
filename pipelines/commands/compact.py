"""The command `shardwright compact`: write the records of a dataset that has grown anew.

It is a build whose INPUT is a version of the dataset: its records are copied, without a decode and
without their sources, into full shards in one global order, on any runner. It resumes as any build.
`erase` is the same without some records.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from shardwright.errors import BuildError, UsageError
from shardwright.format import naming
from shardwright.format.listed_files import listed_faults
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.notes import free_generation
from shardwright.format.versions import number_of, read_version
from shardwright.inspect.command_parts import EXIT_DONE, make_parser, root_of, to_json
from shardwright.pipelines.commands.append import MOST_HERE
from shardwright.pipelines.commands.build import run_job
from shardwright.pipelines.commands.results import run_build, run_command
from shardwright.pipelines.job.build import BuildJob, prepare_job
from shardwright.pipelines.local.build import build_here
from shardwright.pipelines.options.build import parse_options
from shardwright.pipelines.runners.beam_options import is_local
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.terminal import print_safely, say
from shardwright.transforms.inputs.formats.copied import source_of
from shardwright.transforms.inputs.source import InputSource, SourceRequest
from shardwright.transforms.versions.commit import Operation, VersionChange, commit

_EPILOG = """\
examples
  shardwright compact dataset/
  shardwright compact s3://bucket/dataset --shard-size 200MB --runner FlinkRunner ...

Writes the records of the newest version into full shards in one global order, as a fresh build of
the same images has them, and commits that as the next version. Records are copied: no image is
decoded, and INPUT is not needed. The shards have the size of the first build, unless an option of
`shardwright build` says otherwise; options for Beam are passed on. `shardwright gc` then removes
what no kept version needs.

Appends may go on meanwhile: what they add or take away holds in the compacted version, too. A
damaged record stops the compaction, because it would be lost: `shardwright repair` mends it. Only
a copy with as many records as the version that it copies is committed.

Exit codes: 0 done, 1 failed, 2 wrong usage or not a dataset.
"""
_SIZES = {
    "num_bytes": "--shard-size",
    "num_records": "--records-per-shard",
    "num_shards": "--shard-count",
    "multiple_of": "--shard-count-multiple-of",
}
_OTHERS = (
    *("--seed", "--split", "--split-ids", "--name", "--input", "--output", "--if-exists"),
    # They would lose records.
    *("--duplicates", "--accept-partial", "--max-reject-fraction", "--max-rejects"),
)


def main(argv: Sequence[str]) -> int:
    """Run `shardwright compact` and return its exit code."""
    parser = make_parser("compact", "Write a dataset that has grown into full shards.", _EPILOG)
    args, words = parser.parse_known_args(argv)
    return run_command(lambda: _compact(args, words))


def _compact(args: argparse.Namespace, words: Sequence[str]) -> int:
    root = root_of(args)
    base = read_version(root)
    if given := next((word for word in words if word.partition("=")[0] in _OTHERS), ""):
        raise UsageError(f"compact keeps what {given} would change: leave it out")
    if _is_compact(base, words):
        say(f"{root} has one generation without gaps: there is nothing to compact")
    else:
        folder = folder_for(root, base, _token(words))
        if code := build_copy(root, base, folder, [*store_words(args.storage_option), *words]):
            return code
        commit_copy(root, base, folder)
    version = read_version(root)
    num_shards = len(version.named_shards())
    records = counted(version.num_records, "record")
    say(f"{root}: version {number_of(version)} has {records} in {counted(num_shards, 'shard')}")
    if args.json:
        counts = {"num_records": version.num_records, "num_shards": num_shards}
        print_safely(to_json({"version": number_of(version), **counts}))
    return EXIT_DONE


def _is_compact(version: Manifest, words: Sequence[str]) -> bool:
    """Return whether a compaction with these options would write the shards that are there."""
    if len(version.folders) > 1 or any(info.removed for _, info in version.named_shards()):
        return False
    # Other options ask for other shards, unless they have made these.
    return not version.history or not words or _token(words) in "".join(version.folders)


def store_words(stores: Sequence[str]) -> list[str]:
    """Return the options of a build for these values of `--storage-option`."""
    return [word for option in stores for word in ("--storage-option", option)]


def _token(words: Sequence[str]) -> str:
    """Return what distinguishes the folders of compactions with different options."""
    digest = hashlib.blake2b("\0".join(words).encode(), digest_size=4).hexdigest()
    return f"compact{digest}"


def folder_for(root: Folder, base: Manifest, token: str) -> str:
    """Return the folder for a copy of a version; one that an earlier try has finished is it."""
    return free_generation(root, number_of(base) + 1, token, may_be_finished=True)


def build_copy(
    root: Folder,
    base: Manifest,
    folder: str,
    words: Sequence[str],
    operation: Operation = Operation.COMPACT,
    *,
    without: frozenset[str] = frozenset(),
    num_records: int | None = None,
) -> int:
    """Build a copy of a version, unless an earlier try has, and return the exit code.

    Args:
        root: The dataset's folder.
        base: The version, with the names that the copy gets.
        folder: The folder below `root` for the shards.
        words: Options of `shardwright build`.
        operation: The command, for messages and the copy's manifest.
        without: The ids of records that the copy does not have.
        num_records: The number of its records; None for all of `base`.
    """
    wanted, below = base.num_records if num_records is None else num_records, root.below(folder)

    def run(job: BuildJob) -> None:
        is_finished = below.num_bytes_of(naming.MANIFEST) is not None
        if not is_finished or any(listed_faults(below, read_manifest(below))):
            # Beam takes longer to start than a few thousand records to copy.
            here = is_local(job.options.beam_args) and wanted <= MOST_HERE
            (build_here if here else run_job)(job)
        copied = read_manifest(below).num_records
        if copied != wanted:
            raise BuildError(
                f"the copied shards in {folder} hold {counted(copied, 'record')}, but must hold "
                f"{wanted:,}: {root} stays as it is. Leave options out that drop records, such as "
                "--near-duplicates"
            )

    return run_build(run, lambda: prepare_copy(root, base, folder, words, operation, without))


def prepare_copy(
    root: Folder,
    base: Manifest,
    folder: str,
    words: Sequence[str],
    operation: Operation = Operation.COMPACT,
    without: frozenset[str] = frozenset(),
) -> BuildJob:
    """Return the build of a copy; arguments as of `build_copy`."""
    # The options of the first build, as far as they are about order and shards.
    settings: Mapping[str, Any] = base.settings
    argv = [root.uri, root.path(folder), "--name", base.name, "--version", base.version]
    argv += ["--seed", str(settings.get("seed", 0))]
    if not any(word.partition("=")[0] in _SIZES.values() for word in words):
        for name, value in settings.get("shards", {}).items():
            argv += [_SIZES[name], str(value)] if name in _SIZES else []
    argv += ["--signals"] if settings.get("signals") else []
    options = parse_options([*argv, "--max-reject-fraction", "0", *words])
    options = replace(options, command=("shardwright", str(operation), root.uri, *words))

    def detect(request: SourceRequest) -> InputSource:
        if request.changes:
            raise UsageError(f"{operation} copies records, which {request.changes[0]} would change")
        return replace(source_of(request, base, without), name="dataset")

    return prepare_job(options, detect)


def commit_copy(
    root: Folder, base: Manifest, folder: str, operation: Operation = Operation.COMPACT
) -> None:
    """Commit a copy as the next version, in place of the shards of `base`; raise as `commit`."""
    commit(root, VersionChange(operation, base, folder, read_manifest(root.below(folder))))
