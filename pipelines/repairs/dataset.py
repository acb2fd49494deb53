"""Repair a dataset: every broken file gets the content that the manifest states.

Files are made in `DATASET/staged/` and compared before they replace broken ones, so nothing sound
is touched, a file is never worse than before, and a stopped repair can be repeated.

The job is that of the command that the manifest records, without its code and storage options: the
dataset may be of a stranger.
"""

from __future__ import annotations

import argparse
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NoReturn

import pyarrow as pa

from shardwright.errors import BuildError, MissingBucketError, MissingError, UsageError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.naming import ShardName
from shardwright.format.superseded import as_stored
from shardwright.pipelines.job.build import BuildJob, describe_job
from shardwright.pipelines.options.arguments import make_parser
from shardwright.pipelines.options.build import BuildOptions
from shardwright.pipelines.options.parser import parse_words, read_options
from shardwright.pipelines.options.python import INPUT as PYTHON_RECORDS
from shardwright.pipelines.repairs.broken_files import (
    BrokenFiles,
    LostRecord,
    Outcome,
    show_records,
)
from shardwright.pipelines.repairs.planned_files import PlannedFiles
from shardwright.pipelines.repairs.records import (
    DamagedShard,
    FreshRecords,
    find_damaged,
    find_references,
    mend,
    write_job_of,
)
from shardwright.sizes import counted
from shardwright.storage.addresses import HIDDEN
from shardwright.storage.folder import Folder
from shardwright.terminal import say
from shardwright.transforms.inputs.spool import forget_lost_spools
from shardwright.transforms.publish.companions import companion_files
from shardwright.transforms.publish.found_statistics import sample_of
from shardwright.transforms.publish.report_file import report_bytes
from shardwright.transforms.publish.republication import finish_change
from shardwright.transforms.rejects import Reject, RejectReason
from shardwright.transforms.staged_files import (
    PARTS,
    Change,
    discard_staged,
    note_change,
    put_in_place,
    staged_folder,
)
from shardwright.transforms.write.rewritten_shards import rewrite_shard
from shardwright.transforms.write.write_job import WriteJob

_FRESH, _MENDED = PARTS
# INPUT is gone or another one. Other errors, such as a store that does not respond, may pass: no
# record is given up for them.
_WITHOUT_INPUT = (UsageError, BuildError, MissingError, MissingBucketError)
_REMOVE_IF_GROWN = (
    "remove their images from INPUT, append, and run `shardwright compact` and `shardwright gc` "
    "(--salvage would change a shard that several versions name)"
)
_STORAGE = "--storage-option"


class Repair:
    """The repair of one dataset.

    Args:
        root: The dataset's folder, without staged files.
        broken: Its broken files.
        prepare: Returns the job of its build; called only if INPUT is needed.
        salvage: Leave records out that cannot be made again.
        grown: Several versions may name the shards, so none may lose a record.
    """

    def __init__(
        self,
        root: Folder,
        broken: BrokenFiles,
        prepare: Callable[[], BuildJob],
        *,
        salvage: bool,
        grown: bool,
    ) -> None:
        self._outcome = Outcome(failed={fault.file: fault.what for fault in broken.others})
        self._root, self._broken, self._prepare = root, broken, prepare
        self._salvage, self._grown = salvage and not grown, grown
        self._manifest = read_manifest(root)
        self._staged = staged_folder(root)

    @cached_property
    def _job(self) -> BuildJob:
        return self._prepare()

    def run(self) -> Outcome:
        """Repair all files.

        Raises:
            StorageError: A file cannot be read or written, or a store does not respond.
        """
        spooled = set(self._root.names(naming.SPOOL_DIR))
        self._mend_planned()
        lost = self._mend_shards()
        if lost and self._may_shrink():
            self._shrink(lost)
        self._mend_signals()
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

    def _mend_shards(self) -> list[tuple[DamagedShard, list[LostRecord]]]:
        """Repair shards record by record; return those that lose some, and these records."""
        damaged = [
            find_damaged(self._root, self._manifest.schema, shard)
            for shard in self._broken.shards
            if shard.has_index and shard.name.shard in shard.files
        ]
        references, job, why = self._find_sources([each.damaged_rows for each in damaged])
        lost = []
        for each in damaged:
            fresh = FreshRecords(references, each.broken.name, each.damaged_rows, job, why)
            records = self._mend_shard(each, fresh)
            if records:
                lost.append((each, records))
        return lost

    def _find_sources(
        self, parts: Sequence[pa.Table]
    ) -> tuple[pa.RecordBatch | None, WriteJob | None, str]:
        """Return the references of index rows, the job to write them, and why there is neither."""
        if not any(rows.num_rows for rows in parts):
            return None, None, ""
        try:
            references = find_references(self._job, self._manifest, pa.concat_tables(parts))
            folder = self._staged.below(_FRESH)
            return references, write_job_of(self._job, self._manifest, folder), ""
        except _WITHOUT_INPUT as error:
            return None, None, str(error)

    def _mend_shard(self, damaged: DamagedShard, fresh: FreshRecords) -> list[LostRecord]:
        """Put a shard in place if it has all of its records again; else return those it lacks."""
        name, info = damaged.broken.name, damaged.broken.info
        mended = self._staged.below(_MENDED)
        content, lost = mend(self._root, damaged, fresh, mended)
        if content == info.content:
            put_in_place(mended, name.shard, self._root)
            self._outcome.repaired.append(name.shard)
        elif lost:
            self._outcome.failed[name.shard] = (
                f"{counted(len(lost), 'record')} cannot be made again: {show_records(lost)}. "
                "Restore the sources, give a moved INPUT with --input, or "
                f"{_REMOVE_IF_GROWN if self._grown else 'leave them out with --salvage'}"
            )
        else:
            told = "its records are sound, but the file is not the one that the manifest states"
            self._outcome.failed[name.shard] = told
        return lost

    def _may_shrink(self) -> bool:
        """Return whether records may be given up: the new manifest follows from all indexes."""
        needed = {path for one in self._broken.shards if not one.has_index for path in one.files}
        missing = sorted((needed | {naming.NEAR_DUPLICATES}) & self._outcome.failed.keys())
        if self._salvage and missing:
            say(f"--salvage gives up no record while {', '.join(missing)} is broken")
        return self._salvage and not missing

    def _shrink(self, lost: Sequence[tuple[DamagedShard, list[LostRecord]]]) -> None:
        """Leave lost records out of their shards, and list them as rejects."""
        rejects, shards, files = Counter(self._manifest.rejects), [], []
        for damaged, records in lost:
            name = damaged.broken.name
            summary = rewrite_shard(
                self._root,
                self._manifest,
                name,
                to=self._staged,
                without={record.id for record in records},
                rejects=[_reject(name, record) for record in records],
                records=self._staged.below(_MENDED),
            )
            rejects[str(RejectReason.LOST)] += len(records)
            shards.append(name.shard)
            files += [name.shard, name.sidecar, name.rejects]
            files += [] if summary.signals_file is None else [name.signals]
            del self._outcome.failed[name.shard]
            self._outcome.lost[name.shard] = records
        replaced = FileContent.of(self._root.read_bytes(naming.MANIFEST))
        note_change(self._root, Change(replaced, tuple(shards), tuple(files), dict(rejects)))
        finish_change(self._root)
        self._manifest = read_manifest(self._root)

    def _mend_signals(self) -> None:
        """Measure the signals of shards again, from the stored images."""
        for shard in self._broken.shards:
            name = shard.name
            if not shard.has_index or name.signals not in shard.files:
                continue
            if name.shard in self._outcome.failed:
                self._note([(name.signals, "its shard is broken")])
            elif name.shard in self._outcome.lost:
                self._outcome.renewed.append(name.signals)
            else:
                to = self._staged.below(_FRESH)
                summary = rewrite_shard(self._root, self._manifest, name, to=to)
                if summary.signals_file == self._manifest.files.get(name.signals):
                    put_in_place(to, name.signals, self._root)
                    self._note([(name.signals, "")])
                else:
                    self._note([(name.signals, "the installed libraries give other values")])

    def _mend_companions(self) -> None:
        """Write companions again. The manifest follows if one cannot be made with its old bytes."""
        made = companion_files(self._manifest)
        names = list(self._broken.from_manifest)
        if self._broken.from_shards and self._outcome.failed:
            self._note([(naming.REPORT, "it needs a dataset without other faults")])
        elif self._broken.from_shards:
            made[naming.REPORT] = self._report(frozenset(made))
            names.append(naming.REPORT)
        contents = dict(self._manifest.files)
        for name in names:
            self._root.write_if_new(name, as_stored(self._root, name, made[name]))
            content = FileContent.of(made[name])
            same = contents.get(name, content) == content
            (self._outcome.repaired if same else self._outcome.renewed).append(name)
            if not same:
                contents[name] = content
        if contents != self._manifest.files:
            manifest = replace(self._manifest, files=contents)
            self._root.write_bytes(naming.MANIFEST, manifest.to_bytes())

    def _report(self, companions: frozenset[str]) -> bytes:
        """Return the page as publishing made it: of a manifest without the other companions."""
        others = {*companions, naming.REPORT}
        files = {
            name: content for name, content in self._manifest.files.items() if name not in others
        }
        pictures = sample_of(self._root, self._manifest)
        manifest = replace(self._manifest, files=files)
        return report_bytes(self._root, manifest, None, pictures)


def _reject(name: ShardName, record: LostRecord) -> Reject:
    detail = f"its record in {name.shard} was damaged, and could not be made again: {record.why}"
    return Reject(record.id, record.uri, RejectReason.LOST, detail)


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
    recorded = shlex.split(command)[2:] if command else [_input_of(manifest), root.uri]
    storage = [word for value in given.storage for word in (_STORAGE, value)]
    own = _parse([_input_of(manifest), root.uri, *given.words])
    known = _parse([*_without_storage(recorded), *given.words, *storage])
    known.input = given.input or known.input
    known.output, known.name, known.version = root.uri, manifest.name, manifest.version
    known.if_exists, known.fail_on, known.against = "resume", None, None
    _check_code(known, own)
    known.transform = own.transform
    for name, value in vars(known).items():
        if name != "storage_option" and HIDDEN in str(value):
            what = "--input" if name == "input" else f"--{name.replace('_', '-')} after --"
            raise UsageError(f"the manifest hides a secret in {name}: give {what}")
    return read_options(BuildOptions, known)


def _parse(words: Sequence[str]) -> argparse.Namespace:
    parser = make_parser("build")
    parser.error = _refuse  # type: ignore[method-assign]  # of the command that is recorded
    return parse_words(parser, words)[0]


def _check_code(known: argparse.Namespace, own: argparse.Namespace) -> None:
    """Raise UsageError for code that only the manifest names: a stranger may have written it."""
    recorded = [*known.transform[: len(known.transform) - len(own.transform)]]
    if recorded and recorded != own.transform:
        words = " ".join(f"--transform {shlex.quote(spec)}" for spec in recorded)
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


def _refuse(message: str) -> NoReturn:
    raise UsageError(f"the recorded command cannot be read: {message}")


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
