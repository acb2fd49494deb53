"""The command `shardwright compact`: write the records of a dataset that has grown anew.

It is a build whose INPUT is a version of the dataset: its records are copied, without a decode and
without their sources, into full shards in one global order, on any runner. It resumes as any build.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import Any

from shardwright.errors import BuildError, StorageError, UsageError
from shardwright.format import naming
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.notes import begin_build, end_build
from shardwright.format.versions import number_of, read_version
from shardwright.inspect.command_parts import command, make_parser, root_of, to_json
from shardwright.inspect.verify import listed_faults
from shardwright.pipelines.commands.build import run_job
from shardwright.pipelines.commands.results import EXIT_DONE, run_build
from shardwright.pipelines.job.build import BuildJob, prepare_job
from shardwright.pipelines.options.build import parse_options
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.terminal import print_safely, say
from shardwright.transforms.inputs.datasets.dataset_references import FORMAT, facts_of
from shardwright.transforms.inputs.source import InputSource, SourceRequest
from shardwright.transforms.versions.changes import Operation, VersionChange
from shardwright.transforms.versions.commit import commit
from shardwright.transforms.versions.present import Generations, present_version

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


@command
def main(argv: Sequence[str] | None = None) -> int:
    """Run `shardwright compact` and return its exit code."""
    parser = make_parser("compact", "Write a dataset that has grown into full shards.", _EPILOG)
    args, words = parser.parse_known_args(sys.argv[1:] if argv is None else argv)
    root = root_of(args)
    base = read_version(root)
    if given := next((word for word in words if word.partition("=")[0] in _OTHERS), ""):
        raise UsageError(f"compact keeps what {given} would change: leave it out")
    if _is_compact(base, words):
        say(f"{root} has one generation without gaps: there is nothing to compact")
    elif code := _compact(root, base, args.storage_option, words):
        return code
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


def _compact(root: Folder, base: Manifest, stores: Sequence[str], words: Sequence[str]) -> int:
    given = [word for option in stores for word in ("--storage-option", option)]

    def prepare() -> BuildJob:
        return _prepare(root, base, folder, [*given, *words])

    def run(job: BuildJob) -> None:
        _finish(root, base, folder, lambda: run_job(job))

    with _folder_for(root, base, words) as folder:
        return run_build(run, prepare)


def _token(words: Sequence[str]) -> str:
    """Return what distinguishes the folders of compactions with different options."""
    digest = hashlib.blake2b("\0".join(words).encode(), digest_size=4).hexdigest()
    return f"compact{digest}"


@contextmanager
def _folder_for(root: Folder, base: Manifest, words: Sequence[str]) -> Iterator[str]:
    """Yield the folder for the shards: the same one in every try of the same command.

    So a try resumes, or commits what an earlier one has finished: the records are those of `base`.
    A folder that `gc` or `erase` removes now, or did when it was killed, is left out. A note says
    that the folder is in use while the block runs.
    """
    names = (f"{_token(words)}{f'x{number}' if number else ''}" for number in count())
    folders = (naming.generation_folder(number_of(base) + 1, name) for name in names)
    folder, note = begin_build(root, folders)
    try:
        yield folder
    finally:
        with suppress(StorageError):  # it counts no longer after a day
            root.remove(note)


def _prepare(root: Folder, base: Manifest, folder: str, words: Sequence[str]) -> BuildJob:
    # The options of the first build, as far as they are about order and shards.
    settings: Mapping[str, Any] = base.settings
    argv = [root.uri, root.path(folder), "--name", base.name, "--version", base.version]
    argv += ["--seed", str(settings.get("seed", 0))]
    if not any(word.partition("=")[0] in _SIZES.values() for word in words):
        for name, value in settings.get("shards", {}).items():
            argv += [_SIZES[name], str(value)] if name in _SIZES else []
    argv += ["--signals"] if settings.get("signals") else []
    options = parse_options([*argv, "--max-reject-fraction", "0", *words])
    options = replace(options, command=("shardwright", "compact", root.uri, *words))

    def detect(request: SourceRequest) -> InputSource:
        if request.changes:
            raise UsageError(f"compact copies records, which {request.changes[0]} would change")
        return InputSource("dataset", FORMAT, facts_of(request, base))

    return prepare_job(options, detect)


def _finish(root: Folder, base: Manifest, folder: str, build: Callable[[], None]) -> None:
    """Build the shards unless an earlier try has, and commit them.

    A build would compare its plan with the finished one, which is another one if `erase` has
    rewritten shards of both since.
    """
    below = root.below(folder)
    is_finished = below.num_bytes_of(naming.MANIFEST) is not None
    if not is_finished or any(listed_faults(below, read_manifest(below))):
        build()
    _commit(root, base, folder)


def _commit(root: Folder, base: Manifest, folder: str) -> None:
    replaced = frozenset(base.folders)
    added = read_manifest(root.below(folder))
    # Only then more is read: `erase` may have removed records of both meanwhile.
    if added.num_records != base.num_records:
        wanted = present_version(root, base, Generations(root)).num_records
        if added.num_records != wanted:
            raise BuildError(
                f"the compacted shards in {folder} hold {counted(added.num_records, 'record')}, "
                f"but version {number_of(base)} has {wanted:,}: it stays as it is. Leave options "
                "out that drop records, such as --near-duplicates"
            )
    commit(
        root, VersionChange(Operation.COMPACT, base, folder=folder, added=added, replaced=replaced)
    )
    end_build(root, folder)
