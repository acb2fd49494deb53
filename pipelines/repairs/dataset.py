"""Repair a dataset: every broken file gets the content that the manifest states.

Files are made in `DATASET/staged/` and compared before they replace broken ones, so nothing sound
is touched, a file is never worse than before, and a stopped repair can be repeated.

The job is that of the command that the manifest records, without its code and storage options: the
dataset may be of a stranger.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from shardwright.errors import BuildError, MissingBucketError, MissingError, UsageError
from shardwright.format import naming
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.pipelines.job.build import BuildJob, describe_job
from shardwright.pipelines.options.arguments import make_parser
from shardwright.pipelines.options.build import BuildOptions
from shardwright.pipelines.options.parser import parse_words, read_options
from shardwright.pipelines.options.python import INPUT as PYTHON_RECORDS
from shardwright.pipelines.repairs.broken_files import (
    BrokenFiles,
    Outcome,
    show_records,
)
from shardwright.pipelines.repairs.planned_files import PlannedFiles
from shardwright.pipelines.repairs.records import (
    DamagedShard,
    FreshRecords,
    find_damaged,
    find_references,
    make_signals,
    mend,
    write_job_of,
)
from shardwright.pipelines.repairs.staged_files import discard_staged, put_in_place
from shardwright.sizes import counted
from shardwright.storage.addresses import HIDDEN
from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.spool import forget_lost_spools
from shardwright.transforms.publish.companions import companion_files, write_companions
from shardwright.transforms.publish.found_statistics import sample_of
from shardwright.transforms.publish.report_file import report_bytes
from shardwright.transforms.write.write_job import WriteJob

# INPUT is gone or another one. Other errors, such as a store that does not respond, may pass: no
# record is given up for them.
_WITHOUT_INPUT = (UsageError, BuildError, MissingError, MissingBucketError)
_COPY = "copy all other records with `shardwright build DATASET COPY --max-rejects N`"
_STORAGE = "--storage-option"


class Repair:
    """The repair of one dataset.

    Args:
        root: The dataset's folder, without staged files.
        broken: Its broken files.
        prepare: Returns the job of its build; called only if INPUT is needed.
    """

    def __init__(self, root: Folder, broken: BrokenFiles, prepare: Callable[[], BuildJob]) -> None:
        self._outcome = Outcome(failed={fault.file: fault.what for fault in broken.others})
        self._root, self._broken, self._prepare = root, broken, prepare
        self._manifest = read_manifest(root)
        self._staged, self._fresh, self._mended = map(root.below, naming.STAGED_DIRS)

    @cached_property
    def _job(self) -> BuildJob:
        return self._prepare()

    def run(self) -> Outcome:
        """Repair all files.

        Raises:
            StorageError: A file cannot be read or written, or a store does not respond.
        """
        # Listing INPUT again may spool images, which a finished dataset does not need.
        spooled = set(self._root.names(naming.SPOOL_DIR))
        # First: a shard can be mended record by record only by its index.
        self._mend_planned()
        self._mend_shards()
        # From the stored images, so after the shards.
        self._mend_signals()
        # Last: companions, report and manifest follow from all other files.
        self._mend_companions()
        discard_staged(self._root)
        new = sorted(set(self._root.names(naming.SPOOL_DIR)) - spooled)
        self._root.remove_all([f"{naming.SPOOL_DIR}/{name}" for name in new])
        return self._outcome

    def _note(self, results: Iterable[tuple[str, str]]) -> None:
        for path, why in results:
            if why:
                self._outcome.failed[path] = why
            else:
                self._outcome.repaired.append(path)

    def _mend_planned(self) -> None:
        """Repair indexes, rejects and whatever else follows from the plan of the build."""
        shards = {one.name.shard: one for one in self._broken.shards if not one.has_index}
        names = self._broken.from_plan
        if not shards and not names:
            return
        try:
            planned = PlannedFiles(self._job, self._root, self._manifest, self._staged)
        except _WITHOUT_INPUT as error:
            paths = [path for shard in shards.values() for path in sorted(shard.files)]
            self._note((path, str(error)) for path in (*names, *paths))
            return
        if shards:
            self._note(planned.mend(shards))
        if names:
            self._note(planned.make(names))

    def _mend_shards(self) -> None:
        """Repair shards record by record."""
        damaged = [
            find_damaged(self._root, self._manifest.schema, shard)
            for shard in self._broken.shards
            if shard.has_index and shard.name.shard in shard.files
        ]
        # Once for all shards, as INPUT may take hours to list.
        references, job, why = self._find_sources([each.damaged_rows for each in damaged])
        for each in damaged:
            fresh = FreshRecords(references, each.broken.name, each.damaged_rows, job, why)
            self._mend_shard(each, fresh)

    def _find_sources(
        self, parts: Sequence[pa.Table]
    ) -> tuple[pa.RecordBatch | None, WriteJob | None, str]:
        """Return the references of index rows, the job to write them, and why there is neither."""
        if not any(rows.num_rows for rows in parts):
            return None, None, ""
        try:
            references = find_references(self._job, self._manifest, pa.concat_tables(parts))
            return references, write_job_of(self._job, self._manifest, self._fresh), ""
        except _WITHOUT_INPUT as error:
            return None, None, str(error)

    def _mend_shard(self, damaged: DamagedShard, fresh: FreshRecords) -> None:
        """Put a shard in place if it has all of its records again."""
        name, why = damaged.broken.name, ""
        content, lost = mend(self._root, damaged, fresh, self._mended)
        if lost:
            why = (
                f"{counted(len(lost), 'record')} cannot be made again: {show_records(lost)}. "
                f"Restore the sources, give a moved INPUT with --input, or {_COPY}"
            )
        # Not put in place even so: its bytes would not be those that the manifest states.
        elif content != damaged.broken.info.content:
            why = "its records are sound, but the file is not the one that the manifest states"
        self._settle(self._mended, name.shard, why)

    def _settle(self, folder: Folder, path: str, why: str) -> None:
        """Put a staged file in place, or note why it is not the one that the manifest states."""
        if not why:
            put_in_place(folder, path, self._root)
        self._note([(path, why)])

    def _mend_signals(self) -> None:
        """Measure the signals of shards again, from the stored images."""
        for shard in self._broken.shards:
            name = shard.name
            if not shard.has_index or name.signals not in shard.files:
                continue
            why = "its shard is broken"
            # From a broken shard, wrong signals would be measured.
            if name.shard not in self._outcome.failed:
                content = make_signals(self._root, self._manifest, name, to=self._fresh)
                same = content == self._manifest.files.get(name.signals)
                why = "" if same else "the installed libraries give other values"
            self._settle(self._fresh, name.signals, why)

    def _mend_companions(self) -> None:
        """Write companions again. The manifest follows if one cannot be made with its old bytes."""
        made = companion_files(self._manifest)
        names = list(self._broken.from_manifest)
        # The report counts and shows what is in the other files.
        if self._broken.report and self._outcome.failed:
            self._note([(naming.REPORT, "it needs a dataset without other faults")])
        elif self._broken.report:
            pictures = sample_of(self._root, self._manifest)
            made[naming.REPORT] = report_bytes(self._root, self._manifest, None, pictures)
            names.append(naming.REPORT)
        # Other versions of libraries may serialize them in other bytes, which are as good.
        contents = write_companions(self._root, {name: made[name] for name in names})
        stated = self._manifest.files
        for name, content in contents.items():
            same = stated.get(name, content) == content
            (self._outcome.repaired if same else self._outcome.renewed).append(name)
        files = {name: contents.get(name, content) for name, content in stated.items()}
        # After its files: until then the old manifest states what `verify` calls broken, and no
        # more.
        if files != stated:
            manifest = replace(self._manifest, files=files)
            self._root.write_bytes(naming.MANIFEST, manifest.to_bytes())


@dataclass(frozen=True, slots=True)
class GivenBuild:
    """The parts of a build that the user gives, because the manifest does not have them.

    Attributes:
        input: INPUT if it has moved, else None.
        storage: Values of `--storage-option`, such as credentials.
        words: Further options of `build`.
    """

    input: str | None = None
    storage: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def recorded_job(manifest: Manifest, root: Folder, given: GivenBuild) -> BuildJob:
    """Return the job that built a dataset, in this process whatever runner the build had.

    Raises:
        UsageError: INPUT is not there, the settings are not those of the dataset, or Python wrote
            it.
        BuildError: A table cannot be read.
    """
    if manifest.provenance.get("input") == PYTHON_RECORDS and given.input is None:
        raise UsageError("a Python program wrote this dataset, so there is no INPUT to read again")
    options = _options_of(manifest, root, given)
    _check_settings(options, manifest)
    forget_lost_spools(options.root, finished_may_stay=False)  # images are needed again
    return describe_job(options, options.root.below(naming.SPOOL_DIR))


def _options_of(manifest: Manifest, root: Folder, given: GivenBuild) -> BuildOptions:
    command = manifest.provenance.get("command")
    # Without `shardwright build`.
    recorded = shlex.split(command)[2:] if command else [_input_of(manifest), root.uri]
    storage = [word for value in given.storage for word in (_STORAGE, value)]
    own = _parse([_input_of(manifest), root.uri, *given.words])
    # The user's words come last, so they win over the recorded ones.
    known = _parse([*_without_storage(recorded), *given.words, *storage])
    known.input = given.input or known.input
    # The dataset may have been moved or copied since.
    known.output, known.name, known.version = root.uri, manifest.name, manifest.version
    known.if_exists, known.fail_on, known.against = "resume", None, None
    _check_code(known, own)
    known.transform = own.transform
    for name, value in vars(known).items():
        # Signed URLs lose their signature in the manifest.
        if name != "storage_option" and HIDDEN in str(value):
            what = "--input" if name == "input" else f"--{name.replace('_', '-')} after --"
            raise UsageError(f"the manifest hides a secret in {name}: give {what}")
    return read_options(BuildOptions, known)


def _parse(words: Sequence[str]) -> argparse.Namespace:
    try:
        return parse_words(make_parser("build"), words)[0]
    except UsageError as error:
        raise UsageError(f"the recorded command cannot be read: {error}") from error


def _check_code(known: argparse.Namespace, own: argparse.Namespace) -> None:
    """Raise UsageError for code that only the manifest names: a stranger may have written it."""
    # `--transform` adds up: the recorded functions come before those that the user gives.
    recorded = [*known.transform[: len(known.transform) - len(own.transform)]]
    if recorded and recorded != own.transform:
        words = " ".join(f"--transform {shlex.quote(spec)}" for spec in recorded)
    # A schema file is code as well.
    elif str(known.schema).lower().endswith(".py") and known.schema != own.schema:
        words = f"--schema {shlex.quote(known.schema)}"
    else:
        return
    raise UsageError(f"the recorded command runs code of its own: to allow it, add `-- {words}`")


def _input_of(manifest: Manifest) -> str:
    return str(manifest.provenance.get("input") or "")


def _without_storage(words: Sequence[str]) -> Iterator[str]:
    """Yield the words without storage options: credentials go to no endpoint of a manifest."""
    rest = iter(words)
    for word in rest:
        if word == _STORAGE:
            next(rest, "")
        elif not word.startswith(f"{_STORAGE}="):
            yield word


def _check_settings(options: BuildOptions, manifest: Manifest) -> None:
    """Raise UsageError if the options would give other bytes than those of the dataset."""
    there, here = manifest.settings, options.settings
    differing = [key for key in sorted({*there, *here}) if there.get(key) != here.get(key)]
    if differing:
        details = "; ".join(
            f"{key} was {there.get(key)!r} and is {here.get(key)!r}" for key in differing
        )
        raise UsageError(
            f"the options are not those of the build ({details}): give the options of its command "
            "after --, such as `shardwright repair DATASET -- --seed 7`"
        )
