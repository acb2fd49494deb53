"""Write shards, the only step that reads pixels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsSingleton

from shardwright.format.index import ShardSummary
from shardwright.storage.counters import COUNTERS
from shardwright.transforms.metrics import count, count_written, timed
from shardwright.transforms.output_state import Clearance
from shardwright.transforms.plan.packing import ShardPlan
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.reject_files import read_rejects
from shardwright.transforms.routing import Route, Routed, in_global_window, routed
from shardwright.transforms.write.shard_writing import ShardsInTurn, Written, find_finished
from shardwright.transforms.write.write_job import WriteJob


class WriteShards(beam.PTransform):
    """A transform that writes every planned shard that is not finished yet.

    Args:
        job: The settings of all shards; the vocabularies come with the clearance.
        clearance: The single Clearance; nothing is written before it arrives.
    """

    def __init__(self, job: WriteJob, *, clearance: beam.PCollection) -> None:
        super().__init__()
        self._job = job
        self._clearance = clearance

    def expand(self, plans: beam.PCollection) -> Routed:
        write = Route(
            _WriteFn(), ShardSummary, job=self._job, clearance=AsSingleton(self._clearance)
        )
        return plans | "Write" >> write  # ShardSummary


class _WriteFn(beam.DoFn):
    """A DoFn that ends each shard of a bundle while the next one is begun."""

    def setup(self) -> None:
        # For the life of the DoFn: a runner may have thousands of small bundles.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shardwright-finish")

    def start_bundle(self) -> None:
        self._shards = ShardsInTurn(self._thread)

    def process(self, plan: ShardPlan, job: WriteJob, clearance: Clearance) -> Iterator[Any]:
        job = job.cleared(clearance)
        # Also after a retry of the bundle: shards that the failed try has finished are kept.
        finished = find_finished(job.root, plan, unpublished=job.unpublished)
        if finished is not None:
            count("shards_reused")
            PROGRESS.add_reused(images=plan.references.num_rows, shards=1)
            yield from routed((finished, *read_rejects(job.root, plan.name.rejects)))
            return
        count("images_in", plan.references.num_rows)
        with timed("write_shard_msec"):
            written = self._shards.write(plan, job)
        yield from _results_of(written)

    def finish_bundle(self) -> Iterator[Any]:
        for result in _results_of(self._shards.finish()):
            # `finish_bundle` must name a window; batch builds have only the global one.
            yield in_global_window(result)

    def teardown(self) -> None:
        self._thread.shutdown()


def _results_of(written: Iterable[Written]) -> Iterator[Any]:
    """Count shards, and yield their summaries and rejects as `routed`."""
    for summary, rejects in written:
        for name, number in COUNTERS.drain().items():
            count(f"storage_{name}", number)
        for name, number in summary.stats.get("fixes", {}).items():
            count(f"fixed_{name}", number)
        count_written(summary)
        yield from routed((summary, *rejects))
