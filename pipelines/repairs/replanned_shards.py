"""Plan single shards again whose indexes are broken, from the ids of their records and rejects.

So other parts of INPUT may have changed, which would move every record in the plan of a new build.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import StorageError
from shardwright.format.example import ExampleFault, parse_example
from shardwright.format.manifest import Manifest
from shardwright.format.records import scan_records
from shardwright.format.schema import Source
from shardwright.inspect.example_check import one_value
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.repairs.broken_files import BrokenShard
from shardwright.pipelines.repairs.fresh_records import find_references
from shardwright.storage.folder import Folder
from shardwright.transforms.plan.packing import ORDER_KEY, sort_bucket, spread
from shardwright.transforms.plan.shard_plans import ShardPlan
from shardwright.transforms.references import set_column
from shardwright.transforms.reject_files import read_rejects


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
