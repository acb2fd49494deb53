"""Build a dataset of Python records in this process, or publish a finished one, without Beam.

The functions are those of the graph's steps, so both write the same bytes. Importing Beam, and
making and starting its graph, takes longer than writing thousands of photographs. Builds of the
command line run on Beam, on any runner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from shardwright.format import naming
from shardwright.format.index import ShardSummary
from shardwright.format.manifest import read_manifest
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.local.plan import LocalShards
from shardwright.pipelines.runners.beam_options import is_local
from shardwright.pipelines.runners.processes import reporting_death
from shardwright.transforms.plan.shard_plans import ShardPlan
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.publish.publication import publish
from shardwright.transforms.publish.written_shards import WrittenShards
from shardwright.transforms.write.shard_writing import ShardsInTurn, find_finished
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
        # The plans are made twice, here for their digests alone: held together they would fill the
        # memory.
        clearance = shards.clear([(plan.name.shard, plan.digest) for plan in shards.plans()])
        written = WrittenShards(_write_all(shards.plans(), job.write_job.cleared(clearance)))
        publish(written, job.publication, shards.layout, clearance, shards.seen)


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


def publish_finished(job: BuildJob) -> bool:
    """Publish a finished dataset whose shards are all in place; return False if there is none.

    Its INPUT is planned in this process, so a build on other machines leaves that to its runner.

    Raises:
        ShardwrightError: As in the build: INPUT has changed, or there are too many rejects.
    """
    options = job.options
    if (
        not is_local(options.beam_args)
        or options.if_exists != "resume"
        or options.root.num_bytes_of(naming.MANIFEST) is None
    ):
        return False
    # If a shard is missing, the graph plans anyway. Two listings show that, where planning takes as
    # long as listing INPUT.
    shown = options.root.names(naming.INDEX_DIR)
    there = {*options.root.names(), *(f"{naming.INDEX_DIR}/{name}" for name in shown)}
    for shard, _ in read_manifest(options.root).named_shards():
        if shard.shard not in there or shard.sidecar not in there:
            return False
    shards = LocalShards(job, with_plans=True)
    digests, finished, all_finished = [], WrittenShards(), True
    for state in shards.states(options.root, unpublished=False):
        digests.append(state[:2])
        if state.finished is None:
            all_finished = False
        else:
            finished.add(state.finished)
    clearance = shards.clear(digests)
    if not all_finished:
        return False
    PROGRESS.add_reused(images=shards.layout.num_records, shards=shards.layout.num_shards)
    publish(finished, job.publication, shards.layout, clearance)
    return True
