"""Build a dataset of Python records in this process, without Beam.

The functions are those of the graph's steps, so both write the same bytes. Importing Beam, and
making and starting its graph, takes longer than writing thousands of photographs. Builds of the
command line run on Beam, on any runner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from shardwright.format.index import ShardSummary
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.local.shards import LocalShards
from shardwright.pipelines.runners.deaths import reporting_death
from shardwright.transforms.plan.shard_plans import ShardPlan
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.publish.publication import publish
from shardwright.transforms.publish.written_shards import WrittenShards
from shardwright.transforms.write.shard_writing import find_finished
from shardwright.transforms.write.shards_in_turn import ShardsInTurn
from shardwright.transforms.write.write_job import WriteJob


def build_here(job: BuildJob, planned: LocalShards | None = None) -> None:
    """Build the dataset of a job.

    Args:
        job: The build.
        planned: Its shards with plans, if INPUT is listed already.

    Raises:
        ShardwrightError: There are too many rejects, or OUTPUT cannot be written.
    """
    with reporting_death():
        shards = planned or LocalShards(job, with_plans=True)
        clearance = shards.clear([(plan.name.shard, plan.digest) for plan in shards.plans()])
        written = WrittenShards(_write_all(shards.plans(), job.write_job.cleared(clearance)))
        publish(job.publication, written, shards.layout, clearance, shards.seen)


def _write_all(plans: Iterable[ShardPlan], job: WriteJob) -> Iterator[ShardSummary]:
    """Write all shards that are not finished yet, and yield the summaries of all."""
    with ThreadPoolExecutor(1, thread_name_prefix="shardwright-finish") as thread:
        shards = ShardsInTurn(thread)
        for plan in plans:
            finished = find_finished(job.root, plan, unpublished=job.unpublished)
            if finished is None:
                for summary, _ in shards.write(plan, job):
                    PROGRESS.add(shards=1)
                    yield summary
            else:
                PROGRESS.add_reused(images=plan.references.num_rows, shards=1)
                yield finished
        for summary, _ in shards.finish():
            PROGRESS.add(shards=1)
            yield summary
