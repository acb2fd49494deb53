"""Repair a dataset: every broken file gets the content that the manifest states.

A shard is planned again from the ids of its records and rejects, so other parts of INPUT may have
changed. It is written to `DATASET/staged/`, and each of its files is compared with the manifest
before it replaces a broken one. So nothing sound is touched, a file is never worse than before, and
a stopped repair can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import (
    BuildError,
    MissingBucketError,
    MissingError,
    StorageError,
    UsageError,
)
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.example import ExampleFault, one_value, parse_example
from shardwright.format.index import (
    INDEX_SCHEMA,
    ShardSummary,
    read_index,
    read_index_of,
)
from shardwright.format.listed_files import DatasetFault
from shardwright.format.manifest import Manifest, json_bytes, read_manifest, shard_contents
from shardwright.format.naming import ShardName
from shardwright.format.records import scan_records
from shardwright.format.schema import Source
from shardwright.format.splits import ShardInfo
from shardwright.format.superseded import as_stored
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.local.plan import LocalShards
from shardwright.pipelines.local.references import LocalReferences
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.terminal import join_lines
from shardwright.transforms.changes.schema_differences import known_vocabularies
from shardwright.transforms.near_duplicates.options import NearDuplicateOptions
from shardwright.transforms.output_state import Clearance, plan_json
from shardwright.transforms.plan.packing import ORDER_KEY, sort_bucket, spread
from shardwright.transforms.plan.shard_plans import ShardPlan
from shardwright.transforms.promotion import remove_outputs
from shardwright.transforms.publish.companions import companion_files
from shardwright.transforms.publish.near_duplicates import list_near_duplicates
from shardwright.transforms.references import concat, set_column
from shardwright.transforms.reject_files import read_rejects
from shardwright.transforms.rejects import RejectReason
from shardwright.transforms.write.clearance import Verdict, clear_here, write_near_duplicates
from shardwright.transforms.write.shard_writing import write_shard
from shardwright.transforms.write.write_job import WriteJob

# INPUT is gone or another one. Other errors, such as a store that does not respond, may pass: no
# file is given up for them.
_WITHOUT_INPUT = (UsageError, BuildError, MissingError, MissingBucketError)
_CHANGED = "INPUT is not as it was when the dataset was built"
_COPY = "copy all other records with `shardwright build DATASET COPY --max-rejects N`"
_SHOWN = 10  # ids in a message
_PIECE_BYTES = 8 << 20


@dataclass(slots=True)
class Outcome:
    """The files that a repair mended, and those that it did not.

    Attributes:
        repaired: Files with the content that the manifest states.
        renewed: Files with new content, which the manifest states now.
        dropped: Files that this release does not make, and the manifest no longer states.
        failed: Why a file is still broken, by file.
    """

    repaired: list[str] = field(default_factory=list)
    renewed: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def to_text(self, dataset: str) -> str:
        """Return one line per file, and a summary."""
        lines = [f"{name}: repaired" for name in self.repaired]
        lines += [
            f"{name}: made anew; the manifest states its new content" for name in self.renewed
        ]
        lines += [
            f"{name}: dropped: this release does not make it, and the manifest states it no more"
            for name in self.dropped
        ]
        lines += [f"{name}: NOT repaired: {why}" for name, why in self.failed.items()]
        done = counted(len(self.repaired) + len(self.renewed), "file")
        summary = f"{dataset}: {done} repaired"
        if self.failed:
            summary += f", {counted(len(self.failed), 'file')} still broken"
        return join_lines([*lines, summary])

    def to_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class BrokenShard:
    """A shard with broken files.

    Attributes:
        name: The shard.
        info: Its entry in the manifest.
        files: The broken ones of the shard, its index, its rejects and its signals, by path.
        records: Columns "id", "uri" and "crc32c" of its records, null where only the records tell;
            None if the ids of the records or of the rejects are not known.
        rejects: Ids of its rejects.
    """

    name: ShardName
    info: ShardInfo
    files: frozenset[str]
    records: pa.Table | None
    rejects: tuple[str, ...]


class Repair:
    """The repair of a dataset that has not grown, or of one generation.

    Args:
        root: The folder of its files.
        faults: What `verify` found.
        prepare: Returns the job of its build; called only if INPUT is needed.
    """

    def __init__(
        self, root: Folder, faults: Iterable[DatasetFault], prepare: Callable[[], BuildJob]
    ) -> None:
        self._root, self._prepare = root, prepare
        self._manifest = read_manifest(root)
        self._staged = root.below(naming.STAGED_DIR)
        self._broken: dict[str, str] = {}
        for fault in faults:
            # The first fault of a file tells most: others often follow from it.
            self._broken.setdefault(fault.file, fault.what)
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Repair all files.

        Raises:
            StorageError: A file cannot be read or written, or a store does not respond.
        """
        # Listing INPUT again may spool images, which a finished dataset does not need.
        spooled = set(self._root.names(naming.SPOOL_DIR))
        shards, of_plan = list(self._broken_shards()), list(filter(_is_of_plan, self._broken))
        if shards or of_plan:
            self._mend_from_input(shards, of_plan)
        # Last: companions, report and manifest follow from all other files.
        self._mend_companions()
        self._outcome.failed |= self._broken
        for folder in naming.STAGED_DIRS:
            remove_outputs(self._root.below(folder))
        self._staged.remove_empty()
        new = sorted(set(self._root.names(naming.SPOOL_DIR)) - spooled)
        self._root.remove_all([f"{naming.SPOOL_DIR}/{name}" for name in new])
        return self._outcome

    def _settle(self, path: str, why: str = "") -> None:
        """Note that a broken file is mended, or why it is not."""
        del self._broken[path]
        if why:
            self._outcome.failed[path] = why
        else:
            self._outcome.repaired.append(path)

    def _broken_shards(self) -> Iterator[BrokenShard]:
        for name, info in self._manifest.named_shards():
            files = self._broken.keys() & {name.shard, name.sidecar, name.rejects, name.signals}
            if files:
                records, rejects = None, tuple[str, ...]()
                if name.rejects not in files:
                    records = _known_records(self._root, self._manifest, name, info, files)
                    rejects = tuple(each.id for each in read_rejects(self._root, name.rejects))
                yield BrokenShard(name, info, frozenset(files), records, rejects)

    def _mend_from_input(self, shards: Sequence[BrokenShard], of_plan: Sequence[str]) -> None:
        """Mend what follows from INPUT: shards with their files, and what only the plan gives."""
        try:
            job = self._prepare()
            if job.options.transforms:
                # They may name records as they like, and only an index says of which images.
                shards = [
                    replace(shard, records=None) if shard.name.sidecar in shard.files else shard
                    for shard in shards
                ]
            unknown = {shard.name: shard.info.digest for shard in shards if shard.records is None}
            plans = plan_again(job, self._manifest, shards)
            whole = LocalShards(job, with_plans=True) if unknown or of_plan else None
        except _WITHOUT_INPUT as error:
            for path in (*of_plan, *(path for shard in shards for path in sorted(shard.files))):
                self._settle(path, f"{error}; {_COPY}" if path not in of_plan else str(error))
            return
        if whole is not None:
            # The digest covers ids, places, etags and features: with another one, other bytes would
            # come.
            plans |= {
                plan.name: plan for plan in whole.plans() if unknown.get(plan.name) == plan.digest
            }
        # With the dataset's own vocabularies: INPUT of now may give words other numbers.
        names = known_vocabularies(self._manifest.schema, self._manifest.schema)
        write_job = replace(job.write_job.with_vocabularies(names), root=self._staged)
        for shard in shards:
            self._mend_shard(shard, plans.get(shard.name), write_job)
        if whole is not None and of_plan:
            self._mend_plan(whole, of_plan)

    def _mend_shard(self, shard: BrokenShard, plan: ShardPlan | None, job: WriteJob) -> None:
        """Write a shard again, and put those of its broken files in place that are as stated."""
        name, stated = shard.name, shard_contents(self._manifest, shard.name)
        made = {} if plan is None else self._write(plan, job)
        mended = {path for path in shard.files & made.keys() if made[path] == stated[path]}
        why = "" if mended == shard.files else self._why_not(shard, made)
        # The index last: it marks the shard as done.
        for path in sorted(shard.files, key=lambda path: path == name.sidecar):
            if path in mended:
                put_in_place(self._staged, path, self._root)
            self._settle(path, "" if path in mended else why)

    def _write(self, plan: ShardPlan, job: WriteJob) -> dict[str, FileContent]:
        """Stage a shard and the files beside it; return their contents by path."""
        if RejectReason.CRASHED in self._manifest.rejects:
            # As after an attempt that died, so that such an image cannot end this process.
            self._staged.write_bytes(plan.name.attempt, plan.digest.encode())
        summary, _ = write_shard(plan, job)
        return _contents(summary)

    def _why_not(self, shard: BrokenShard, made: Mapping[str, FileContent]) -> str:
        """Return why a shard is still broken, with the records that cannot be made again."""
        if shard.records is None:
            return f"its plan cannot be made: {_CHANGED}"
        fresh: dict[str, int] = {}
        if made:
            rows = read_index(self._staged, shard.name, ["id", "crc32c"])
            fresh = dict(zip(rows["id"].to_pylist(), rows["crc32c"].to_pylist(), strict=True))
        stated = zip(
            *(shard.records[column].to_pylist() for column in ("id", "crc32c")), strict=True
        )
        lost = [each for each, crc in stated if each not in fresh or crc not in (None, fresh[each])]
        if not lost:
            return "INPUT gives other bytes: it has changed, or the installed libraries are others"
        shown = ", ".join(lost[:_SHOWN]) + (", ..." if len(lost) > _SHOWN else "")
        return (
            f"{counted(len(lost), 'record')} cannot be made again, as the source is gone or has "
            f"changed: {shown}. Restore the sources, give a moved INPUT with --input, or {_COPY}"
        )

    def _mend_plan(self, shards: LocalShards, names: Sequence[str]) -> None:
        """Write the plan, its rejects and the near-duplicates again."""
        made = self._made_by_plan(shards)
        for name in names:
            # A plan of another INPUT must not stand beside the shards of this one.
            same = name in made and FileContent.of(made[name]) == self._manifest.files[name]
            if same:
                self._root.write_bytes(name, made[name])
            self._settle(name, "" if same else _CHANGED)

    def _made_by_plan(self, shards: LocalShards) -> dict[str, bytes]:
        manifest = self._manifest
        plan = plan_json(manifest.settings, shards.layout, manifest.fingerprint)
        made = {naming.PLAN: json_bytes(plan)}
        # Only to reach the functions of a build: nothing is cleared.
        clearance = Clearance({}, manifest.fingerprint, {}, unpublished=False)
        starts = naming.PLAN_REJECTS.removesuffix("parquet")
        files = tuple(sorted(name for name in manifest.files if name.startswith(starts)))
        if files:
            clear_here(Verdict(clearance, self._staged, files), shards.rejects.packed)
            made |= {name: self._staged.read_bytes(name) for name in files}
        if naming.NEAR_DUPLICATES in manifest.files:
            verdict = Verdict(clearance, self._root, ())
            parts = [
                name
                for part in shards.near_duplicates
                for name in write_near_duplicates(part, verdict)
            ]
            try:
                listed = list_near_duplicates(self._root, manifest, sorted(parts))
            finally:
                self._root.remove_all(parts)
            made[naming.NEAR_DUPLICATES] = listed[0]
        return made

    def _mend_companions(self) -> None:
        """Write companions again. The manifest follows if one cannot be made with its old bytes."""
        made, stated = companion_files(self._manifest), self._manifest.files
        # Of an earlier release, such as stats.pb and the page; nothing reads them.
        dropped = self._broken.keys() & (stated.keys() - made.keys())
        for name in sorted(dropped):
            del self._broken[name]
            self._outcome.dropped.append(name)
        names = [name for name in self._broken if name in made]
        # Other versions of libraries may serialize them in other bytes, which are as good.
        contents = {name: FileContent.of(made[name]) for name in names}
        for name, data in as_stored(self._root, {name: made[name] for name in names}).items():
            self._root.write_if_new(name, data)
            self._settle(name)
            content = contents[name]
            if stated.get(name, content) != content:
                self._outcome.renewed.append(self._outcome.repaired.pop())
        files = {
            name: contents.get(name, content)
            for name, content in stated.items()
            if name not in dropped
        }
        # After its files: until then the old manifest states what `verify` calls broken, and no
        # more.
        if files != stated:
            manifest = replace(self._manifest, files=files)
            self._root.write_bytes(naming.MANIFEST, manifest.to_bytes())
        self._root.remove_all(self._outcome.dropped)


def _is_of_plan(path: str) -> bool:
    starts = naming.PLAN_REJECTS.removesuffix("parquet")
    return path in (naming.PLAN, naming.NEAR_DUPLICATES) or path.startswith(starts)


def _known_records(
    root: Folder, manifest: Manifest, name: ShardName, info: ShardInfo, broken: Collection[str]
) -> pa.Table | None:
    """Return the records of a shard by its index, else by the ids in its records.

    Raises:
        StorageError: An index with the stated bytes cannot be read.
    """
    columns = ["id", "uri", "crc32c"]
    feature = manifest.schema.find(Source.ID)
    if name.sidecar not in broken:
        return read_index_of(root, name, info, columns)
    if feature is None or name.shard in broken:
        return None
    try:
        with root.local_copy(name.shard) as file:
            ids = [one_value(parse_example(span.data), feature) for span in scan_records(file)]
    except (ExampleFault, StorageError):
        return None
    schema = pa.schema([INDEX_SCHEMA.field(column).with_nullable(True) for column in columns])
    return pa.Table.from_pylist([{"id": each.decode()} for each in ids], schema)


def plan_again(
    job: BuildJob, manifest: Manifest, shards: Iterable[BrokenShard]
) -> dict[ShardName, ShardPlan]:
    """Return plans of shards from those references in INPUT that their records and rejects name.

    The dataset states the rest: class names and words, which records are in it, and their splits.
    In a new build these could be others, if INPUT has changed elsewhere.

    Raises:
        ShardwrightError: INPUT cannot be listed.
    """
    known = [shard for shard in shards if shard.records is not None]
    if not known:
        return {}
    references = LocalReferences(_without_choices(job))
    references.vocabularies = known_vocabularies(manifest.schema, manifest.schema)
    of_any = _finder(known, job.write_job)
    found = concat([of_any(batch) for batch in references.batches()])
    plans = {}
    for shard in known:
        mine = _finder([shard], job.write_job)(found)
        if mine.num_rows:
            plans[shard.name] = _plan_of(shard, mine, job)
    return plans


def _finder(
    shards: Sequence[BrokenShard], job: WriteJob
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return the function that leaves the references of shards whose records are known."""
    records = pa.concat_tables([shard.records for shard in shards], promote_options="permissive")
    ids = pa.array([*records["id"].to_pylist(), *chain(*(each.rejects for each in shards))])
    uris = records["uri"].drop_null().combine_chunks()

    def find(references: pa.RecordBatch) -> pa.RecordBatch:
        keep = pc.is_in(references.column("id"), value_set=ids)
        if job.maker.makes_other_ids:  # a function may make several records of an image
            keep = pc.or_(keep, pc.is_in(references.column("uri"), value_set=uris))
        return references.filter(keep)

    return find


def _without_choices(job: BuildJob) -> BuildJob:
    """Return a job that lists all of INPUT, without duplicates to find or splits to draw."""
    options = replace(
        job.options,
        duplicates="keep",
        near=NearDuplicateOptions(),
        split=None,
        split_ids=(),
        stratify=False,
    )
    return replace(job, options=options)


def _plan_of(shard: BrokenShard, references: pa.RecordBatch, job: BuildJob) -> ShardPlan:
    # A single bucket; the order follows from the ids, so it is that of the build.
    [(_, keyed)] = spread(references, job.options.seed, 1)
    ordered = sort_bucket([keyed])[0].drop_columns([ORDER_KEY])
    split = pa.array([shard.name.split] * ordered.num_rows, pa.string())
    plan = ShardPlan.make(shard.name, set_column(ordered, "split", split), job.digest_settings)
    # Places and dates may be others: the bytes decide, and the index has the digest of the build.
    return replace(plan, digest=shard.info.digest)


def _contents(summary: ShardSummary) -> dict[str, FileContent]:
    name = summary.name
    contents = {
        name.shard: FileContent(summary.num_bytes, summary.crc32c),
        name.sidecar: summary.sidecar,
        name.rejects: summary.reject_file,
        name.signals: summary.signals_file,
    }
    return {path: content for path, content in contents.items() if content is not None}


def put_in_place(folder: Folder, name: str, root: Folder) -> None:
    """Put a staged file into the dataset, atomically.

    In a store it is uploaded again, because the etag of a large object that the store copies is not
    that of the same upload, which the manifest has.
    """
    if not root.is_remote:
        folder.copy(name, root)
        return
    with folder.local_copy(name) as file, root.open_sink(name) as sink:
        while piece := file.read(_PIECE_BYTES):
            sink.write([piece])
