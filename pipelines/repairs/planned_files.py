"""Make again what only the whole plan of a build gives: indexes, rejects, near-duplicates, plan.

Single shards are planned again from the ids of their records and rejects, so other parts of INPUT
may have changed, which would move every record in the plan of a new build.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import StorageError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.example import ExampleFault, one_value, parse_example
from shardwright.format.index import EARLIER_LACK, ShardSummary, write_older_sidecar
from shardwright.format.manifest import Manifest, json_bytes, shard_contents
from shardwright.format.records import scan_records
from shardwright.format.schema import Source
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.local.plan import LocalShards
from shardwright.pipelines.repairs.broken_files import BrokenShard
from shardwright.pipelines.repairs.records import find_references, write_job_of
from shardwright.pipelines.repairs.staged_files import put_in_place
from shardwright.storage.folder import Folder
from shardwright.transforms.output_state import Clearance, plan_json
from shardwright.transforms.plan.packing import ORDER_KEY, sort_bucket, spread
from shardwright.transforms.plan.shard_plans import ShardPlan
from shardwright.transforms.publish.near_duplicates import list_near_duplicates
from shardwright.transforms.references import set_column
from shardwright.transforms.reject_files import read_rejects
from shardwright.transforms.rejects import RejectReason
from shardwright.transforms.write.clearance import Verdict, clear_here, write_near_duplicates
from shardwright.transforms.write.shard_writing import write_shard

CHANGED = "INPUT is not as it was when the dataset was built"


class PlannedFiles:
    """The plan of a build, made again.

    Args:
        job: The build.
        root: The folder of the dataset's files.
        manifest: Its manifest.
        staged: The folder for new files.

    Raises:
        ShardwrightError: INPUT cannot be listed.
    """

    def __init__(self, job: BuildJob, root: Folder, manifest: Manifest, staged: Folder) -> None:
        self._job, self._root, self._manifest, self._staged = job, root, manifest, staged
        self._shards = LocalShards(job, with_plans=True)

    def mend(self, broken: Mapping[str, BrokenShard]) -> Iterator[tuple[str, str]]:
        """Write shards again and put their broken files in place.

        Args:
            broken: By the name of the shard.

        Yields:
            Each broken file with "", or with the reason why it stays as it is.
        """
        missing = dict(broken)
        for plan in self._shards.plans():
            shard = missing.get(plan.name.shard)
            # The digest covers ids, places, etags and features: with another one, other bytes would
            # come.
            if shard is not None and shard.name == plan.name and shard.info.digest == plan.digest:
                del missing[plan.name.shard]
                yield from self._mend(plan, shard)
        # A new plan moves all records if only one has come or gone, but each shard alone may be the
        # same.
        again = replan(self._job, self._root, self._manifest, list(missing.values()))
        for name, shard in missing.items():
            if name in again:
                yield from self._mend(again[name], shard)
            else:
                yield from ((path, f"its plan cannot be made: {CHANGED}") for path in shard.files)

    def _mend(self, plan: ShardPlan, shard: BrokenShard) -> Iterator[tuple[str, str]]:
        if RejectReason.CRASHED in self._manifest.rejects:
            # As after an attempt that died, so that such an image cannot end this process.
            self._staged.write_bytes(plan.name.attempt, plan.digest.encode())
        # With the dataset's own vocabularies: INPUT of now may give words other numbers.
        job = write_job_of(self._job, self._manifest, self._staged)
        summary, _ = write_shard(plan, job)
        stated = shard_contents(self._manifest, shard.name)
        for lacks in EARLIER_LACK:
            # An earlier release wrote an index without some columns, and its manifest states those
            # bytes.
            if summary.sidecar != stated.get(shard.name.sidecar):
                summary = write_older_sidecar(self._staged, summary, lacks)
        made = _contents(summary)
        # The index last: it marks the shard as done.
        for path in sorted(shard.files, key=lambda path: path == shard.name.sidecar):
            # Old manifests do not state all files; such a file is taken as it was made.
            if made.get(path) == stated.get(path, made.get(path)):
                put_in_place(self._staged, path, self._root)
                yield path, ""
            else:
                yield path, "INPUT gives other bytes with the installed versions of libraries"

    def make(self, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """Write the plan, its rejects and the near-duplicates; yield as `mend`."""
        made = self._made()
        for name in names:
            # A plan of another INPUT must not stand beside the shards of this one.
            if name not in made or FileContent.of(made[name]) != self._manifest.files[name]:
                yield name, CHANGED
            else:
                self._root.write_bytes(name, made[name])
                yield name, ""

    def _made(self) -> dict[str, bytes]:
        manifest, layout = self._manifest, self._shards.layout
        plan = plan_json(manifest.settings, layout, manifest.fingerprint)
        # Only to reach the functions of a build: nothing is cleared.
        clearance = Clearance({}, manifest.fingerprint, {}, unpublished=False)
        starts = naming.PLAN_REJECTS.removesuffix("parquet")
        files = tuple(sorted(name for name in manifest.files if name.startswith(starts)))
        made = {naming.PLAN: json_bytes(plan)}
        if files:
            clear_here(Verdict(clearance, self._staged, files), self._shards.rejects.packed)
            made |= {name: self._staged.read_bytes(name) for name in files}
        if naming.NEAR_DUPLICATES in manifest.files:
            made[naming.NEAR_DUPLICATES] = self._near_duplicates(Verdict(clearance, self._root, ()))
        return made

    def _near_duplicates(self, verdict: Verdict) -> bytes:
        parts = [
            name
            for part in self._shards.near_duplicates
            for name in write_near_duplicates(part, verdict)
        ]
        try:
            return list_near_duplicates(self._root, self._manifest, sorted(parts))[0]
        finally:
            self._root.remove_all(parts)


def _contents(summary: ShardSummary) -> dict[str, FileContent | None]:
    name = summary.name
    return {
        name.shard: FileContent(summary.num_bytes, summary.crc32c),
        name.sidecar: summary.sidecar,
        name.rejects: summary.reject_file,
        name.signals: summary.signals_file,
    }


def replan(
    job: BuildJob, root: Folder, manifest: Manifest, shards: Sequence[BrokenShard]
) -> dict[str, ShardPlan]:
    """Return plans by the name of the shard; without those whose sources are not as they were.

    Args:
        job: The build.
        root: The folder of the dataset's files.
        manifest: Its manifest.
        shards: Shards of which only the index and the signals may be broken; others have no plan.

    Raises:
        ShardwrightError: INPUT cannot be listed.
    """
    if job.options.transforms:  # a function may give records other ids than those of the plan
        return {}
    ids = {shard.name.shard: _planned_ids(root, manifest, shard) for shard in shards}
    rows = pa.table({"id": pa.array([each for some in ids.values() for each in some], pa.string())})
    found = find_references(job, manifest, rows) if rows.num_rows else None
    if found is None:
        return {}
    plans = {}
    for shard in shards:
        wanted = pa.array(ids[shard.name.shard], pa.string())
        mine = found.filter(pc.is_in(found.column("id"), value_set=wanted))
        plan = _plan_of(shard, mine, job) if mine.num_rows else None
        if plan is not None and plan.digest == shard.info.digest:
            plans[shard.name.shard] = plan
    return plans


def _plan_of(shard: BrokenShard, references: pa.RecordBatch, job: BuildJob) -> ShardPlan:
    # A single bucket; the order keys follow from the ids, so the order is that of the build.
    [(_, keyed)] = spread(references, job.options.seed, 1)
    ordered = sort_bucket([keyed])[0].drop_columns([ORDER_KEY])
    split = pa.array([shard.name.split] * ordered.num_rows, pa.string())
    return ShardPlan.make(shard.name, set_column(ordered, "split", split), job.digest_settings)


def _planned_ids(root: Folder, manifest: Manifest, shard: BrokenShard) -> list[str]:
    """Return the ids of a shard's records and rejects, [] if they are not known."""
    name = shard.name
    if {name.shard, name.rejects} & shard.files:
        return []
    try:
        ids = [*_stored_ids(root, manifest, shard)]
        # With the rejects, which are in the digest: the plan was made before images were read.
        return ids + [reject.id for reject in read_rejects(root, name.rejects)]
    except (ExampleFault, StorageError):
        return []


def _stored_ids(root: Folder, manifest: Manifest, shard: BrokenShard) -> Iterator[str]:
    """Yield the ids of a sound shard's records; raise `ExampleFault` if they do not hold any."""
    feature = manifest.schema.find(Source.ID)
    with root.local_copy(shard.name.shard) as file:
        for span in scan_records(file):
            found = one_value(parse_example(span.data), feature)
            if not isinstance(found, bytes):
                raise ExampleFault("the records do not hold their ids")
            yield found.decode()
