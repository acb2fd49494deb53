"""Repair a dataset: every broken file gets the content that the manifest states.

A shard is planned again from the ids of its records and rejects, so other parts of INPUT may have
changed. It is written to `DATASET/staged/`, and each of its files is compared with the manifest
before it replaces a broken one. So nothing sound is touched, a file is never worse than before, and
a stopped repair can be repeated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

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
from shardwright.format.contents import FileContent, content_of
from shardwright.format.example import ExampleFault, one_value, parse_example
from shardwright.format.index import (
    INDEX_SCHEMA,
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
from shardwright.pipelines.local.build import LocalShards
from shardwright.pipelines.local.references import LocalReferences
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.terminal import join_lines
from shardwright.transforms.changes.schema_differences import known_vocabularies
from shardwright.transforms.features.vocabularies import Vocabularies
from shardwright.transforms.near_duplicates.groups import NearDuplicateOptions
from shardwright.transforms.output_state import Clearance, plan_json
from shardwright.transforms.plan.packing import ORDER_KEY, ShardPlan, sort_bucket, spread
from shardwright.transforms.promotion import remove_outputs
from shardwright.transforms.publish.companions import companion_files
from shardwright.transforms.publish.near_duplicates import list_near_duplicates
from shardwright.transforms.references import concat, set_column
from shardwright.transforms.reject_files import read_rejects
from shardwright.transforms.rejects import RejectReason
from shardwright.transforms.write.clearance import Verdict, clear_here
from shardwright.transforms.write.shard_writing import write_shard
from shardwright.transforms.write.write_job import WriteJob

# INPUT is gone or another one. Other errors, such as a store that does not respond, may pass: no
# file is given up for them.
_WITHOUT_INPUT = (UsageError, BuildError, MissingError, MissingBucketError)
_CHANGED = "INPUT is not as it was when the dataset was built"
_COPY = "copy all other records with `shardwright build DATASET COPY --max-rejects N`"
_PLAN_REJECTS = naming.PLAN_REJECTS.removesuffix("parquet")
_OF_PLAN = (naming.PLAN, naming.NEAR_DUPLICATES, _PLAN_REJECTS)
_SHOWN = 10  # ids in a message
_PIECE_BYTES = 8 << 20


@dataclass(slots=True)
class Outcome:
    """The files that a repair mended, and those that it did not.

    Attributes:
        repaired: What was done, by file.
        failed: Why a file is still broken, by file.
    """

    repaired: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, folder: str, other: Outcome) -> None:
        """Add the files of a folder."""
        for files, more in ((self.repaired, other.repaired), (self.failed, other.failed)):
            files |= {f"{folder}/{name}".lstrip("/"): what for name, what in more.items()}

    def to_text(self, dataset: str) -> str:
        """Return one line per file, and a summary."""
        lines = [f"{name}: {what}" for name, what in self.repaired.items()]
        lines += [f"{name}: NOT repaired: {why}" for name, why in self.failed.items()]
        summary = f"{dataset}: {counted(len(self.repaired), 'file')} repaired"
        if self.failed:
            summary += f", {counted(len(self.failed), 'file')} still broken"
        return join_lines([*lines, summary if lines else f"{dataset}: nothing is broken"])


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
    rejects: Sequence[str]


class Repair:
    """The repair of a dataset that has not grown, or of one generation.

    Args:
        root: The folder of its files.
        faults: What `verify` found.
        prepare: Returns the job of its build; called only if INPUT is needed.
    """

    def __init__(
        self, root: Folder, faults: Sequence[DatasetFault], prepare: Callable[[], BuildJob]
    ) -> None:
        self._root, self._prepare = root, prepare
        self._manifest = read_manifest(root)
        self._stated = dict(self._manifest.files)
        for name, _ in self._manifest.named_shards():
            self._stated |= shard_contents(self._manifest, name)
        self._staged = root.below(naming.STAGED_DIR)
        # The first fault of a file tells most: others often follow from it.
        self._broken = {fault.file: fault.what for fault in reversed(faults)}
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Repair all files.

        Raises:
            StorageError: A file cannot be read or written, or a store does not respond.
        """
        # Listing INPUT again may spool images, which a finished dataset does not need.
        spooled = set(self._root.names(naming.SPOOL_DIR))
        shards, of_plan = (
            list(self._broken_shards()),
            [path for path in self._broken if path.startswith(_OF_PLAN)],
        )
        if shards or of_plan:
            self._mend_from_input(shards, of_plan)
        # Last: companions and manifest follow from all other files.
        self._mend_companions()
        self._outcome.failed |= self._broken
        for folder in naming.STAGED_DIRS:
            remove_outputs(self._root.below(folder))
        self._staged.remove_empty()
        new = sorted(set(self._root.names(naming.SPOOL_DIR)) - spooled)
        self._root.remove_all([f"{naming.SPOOL_DIR}/{name}" for name in new])
        return self._outcome

    def _broken_shards(self) -> Iterator[BrokenShard]:
        for name, info in self._manifest.named_shards():
            files = self._broken.keys() & {name.shard, name.sidecar, name.rejects, name.signals}
            if files:
                records = _known_records(self._root, self._manifest, name, info, files)
                rejects = [] if records is None else read_rejects(self._root, name.rejects)
                ids = [each.id for each in rejects]
                yield BrokenShard(name, info, frozenset(files), records, ids)

    def _mend_from_input(self, shards: Sequence[BrokenShard], of_plan: Sequence[str]) -> None:
        """Mend what follows from INPUT: shards with their files, and what only the plan gives."""
        unknown = {shard.name: shard.info.digest for shard in shards if shard.records is None}
        names = known_vocabularies(self._manifest.schema, self._manifest.schema)
        try:
            job = self._prepare()
            plans = {plan.name: plan for plan in plan_again(job, names, shards)}
            if unknown or of_plan:
                whole = LocalShards(job, with_plans=True)
                # The digest covers ids, places, etags and features: with another one, other bytes
                # would come.
                found = (plan for plan in whole.plans() if unknown.get(plan.name) == plan.digest)
                plans |= {plan.name: plan for plan in found}
        except _WITHOUT_INPUT as error:
            self._settle(of_plan, str(error))
            self._settle([path for each in shards for path in each.files], f"{error}; {_COPY}")
            return
        # With the dataset's own vocabularies: INPUT of now may give words other numbers.
        write_job = replace(job.write_job.with_vocabularies(names), root=self._staged)
        for shard in shards:
            if plan := plans.get(shard.name):
                # Places and dates may be others: the bytes decide, and the index has the digest of
                # the build.
                self._write(replace(plan, digest=shard.info.digest), write_job)
            # The index last: it marks the shard as done.
            files = sorted(shard.files, key=lambda path: path == shard.name.sidecar)
            self._settle(files, self._why_not(shard))
        if of_plan:
            self._stage_plan(whole)
            # A plan of another INPUT must not stand beside the shards of this one.
            self._settle(of_plan, _CHANGED)

    def _settle(self, paths: Iterable[str], why: str) -> None:
        """Put those staged files in place that are as stated; the others stay broken, and why."""
        for path in paths:
            del self._broken[path]
            made = content_of(self._staged, path)
            if made is not None and made == self._stated.get(path):
                put_in_place(self._staged, path, self._root)
                self._outcome.repaired[path] = "repaired"
            else:
                self._outcome.failed[path] = why

    def _write(self, plan: ShardPlan, job: WriteJob) -> None:
        """Stage a shard and the files beside it."""
        if RejectReason.CRASHED in self._manifest.rejects:
            # As after an attempt that died, so that such an image cannot end this process.
            self._staged.write_bytes(plan.name.attempt, plan.digest.encode())
        write_shard(plan, job)

    def _why_not(self, shard: BrokenShard) -> str:
        """Return why a shard may still be broken: the records that cannot be made again."""
        if shard.records is None:
            return f"its plan cannot be made: {_CHANGED}"
        fresh: dict[str, int] = {}
        if self._staged.num_bytes_of(shard.name.sidecar) is not None:
            rows = read_index(self._staged, shard.name, ["id", "crc32c"])
            fresh = dict(zip(rows["id"].to_pylist(), rows["crc32c"].to_pylist(), strict=True))
        stated = [(row["id"], row["crc32c"]) for row in shard.records.to_pylist()]
        lost = [each for each, crc in stated if each not in fresh or crc not in (None, fresh[each])]
        if not lost:
            return "INPUT gives other bytes: it has changed, or the installed libraries are others"
        shown = ", ".join(lost[:_SHOWN]) + (", ..." if len(lost) > _SHOWN else "")
        return (
            f"{counted(len(lost), 'record')} cannot be made again, as the source is gone or has "
            f"changed: {shown}. Restore the sources, give a moved INPUT with --input, or {_COPY}"
        )

    def _stage_plan(self, shards: LocalShards) -> None:
        """Stage the plan, its rejects and the list of near-duplicates."""
        manifest, staged = self._manifest, self._staged
        plan = plan_json(manifest.settings, shards.layout, manifest.fingerprint)
        staged.write_bytes(naming.PLAN, json_bytes(plan))
        # Only to reach the functions of a build: nothing is cleared.
        clearance = Clearance({}, manifest.fingerprint, {}, unpublished=False)
        files = tuple(sorted(name for name in manifest.files if name.startswith(_PLAN_REJECTS)))
        verdict = Verdict(clearance, staged, files)
        rejects = shards.rejects.packed if files else ()
        parts = clear_here(verdict, rejects, shards.near_duplicates).near_duplicates
        if naming.NEAR_DUPLICATES in self._broken:
            paths = [f"{naming.STAGED_DIR}/{part}" for part in parts]
            listed, _ = list_near_duplicates(self._root, manifest, paths)
            staged.write_bytes(naming.NEAR_DUPLICATES, listed)

    def _mend_companions(self) -> None:
        """Write companions again. The manifest follows if one cannot be made with its old bytes."""
        made, files = companion_files(self._manifest), dict(self._manifest.files)
        broken = [name for name in self._broken if name in made or name in files]
        stored = as_stored(self._root, {name: made[name] for name in broken if name in made})
        for name in broken:
            del self._broken[name]
            content = FileContent.of(made[name]) if name in made else None
            what = "repaired"
            if content is None:  # of an earlier release, such as stats.pb: nothing reads it
                what = "dropped: this release does not make it, and the manifest states it no more"
                del files[name]
            elif files.get(name, content) != content:
                # Other versions of libraries may serialize them in other bytes, which are as good.
                what = "made anew; the manifest states its new content"
                files[name] = content
            if content is not None:
                self._root.write_if_new(name, stored[name])
            self._outcome.repaired[name] = what
        # After its files: until then the old manifest states what `verify` calls broken, and no
        # more.
        if files != self._manifest.files:
            self._root.write_bytes(naming.MANIFEST, replace(self._manifest, files=files).to_bytes())
        self._root.remove_all([name for name in broken if name not in made])


def _known_records(
    root: Folder, manifest: Manifest, name: ShardName, info: ShardInfo, broken: Iterable[str]
) -> pa.Table | None:
    """Return the records of a shard by its index, else by the ids in its records.

    Raises:
        StorageError: An index with the stated bytes cannot be read.
    """
    columns = ["id", "uri", "crc32c"]
    feature = manifest.schema.find(Source.ID)
    if name.rejects in broken:
        return None
    if name.sidecar not in broken:
        return read_index_of(root, name, info, columns)
    # A function may name records as it likes, and only an index says of which images.
    if feature is None or name.shard in broken or "transforms" in manifest.settings:
        return None
    try:
        with root.local_copy(name.shard) as file:
            ids = [one_value(parse_example(span.data), feature) for span in scan_records(file)]
    except (ExampleFault, StorageError):
        return None
    schema = pa.schema([INDEX_SCHEMA.field(column).with_nullable(True) for column in columns])
    return pa.Table.from_pylist([{"id": each.decode()} for each in ids], schema)


def plan_again(
    job: BuildJob, names: Vocabularies, shards: Sequence[BrokenShard]
) -> Iterator[ShardPlan]:
    """Yield plans of shards from those references in INPUT that their records and rejects name.

    The dataset states the rest: class names and words, which records are in it, and their splits.
    In a new build these could be others, if INPUT has changed elsewhere.

    Raises:
        ShardwrightError: INPUT cannot be listed.
    """
    wanted = {
        shard.name: (
            pa.array([*shard.records["id"].to_pylist(), *shard.rejects], pa.string()),
            shard.records["uri"].drop_null().combine_chunks(),
        )
        for shard in shards
        if shard.records is not None
    }
    if not wanted:
        return
    # All of INPUT is listed, without duplicates to find or splits to draw.
    options = replace(
        job.options,
        duplicates="keep",
        near=NearDuplicateOptions(),
        split=None,
        split_ids=(),
        stratify=False,
    )
    references = LocalReferences(replace(job, options=options))
    references.vocabularies = names
    found = defaultdict[ShardName, list[pa.RecordBatch]](list)
    for batch in references.batches():
        for name, (ids, uris) in wanted.items():
            keep = pc.is_in(batch.column("id"), value_set=ids)
            if job.write_job.maker.makes_other_ids:  # a function may make several of an image
                keep = pc.or_(keep, pc.is_in(batch.column("uri"), value_set=uris))
            if (own := batch.filter(keep)).num_rows:
                found[name].append(own)
    for name, batches in found.items():
        # A single bucket; the order follows from the ids, so it is that of the build.
        [(_, keyed)] = spread(concat(batches), job.options.seed, 1)
        ordered = sort_bucket([keyed])[0].drop_columns([ORDER_KEY])
        split = pa.array([name.split] * ordered.num_rows, pa.string())
        yield ShardPlan.make(name, set_column(ordered, "split", split), job.digest_settings)


def put_in_place(folder: Folder, name: str, root: Folder) -> None:
    """Put a staged file into the dataset, atomically.

    It is written again, because the etag of a large object that a store copies is not that of the
    same upload, which the manifest has.
    """
    with folder.local_copy(name) as file, root.open_sink(name) as sink:
        while piece := file.read(_PIECE_BYTES):
            sink.write([piece])
