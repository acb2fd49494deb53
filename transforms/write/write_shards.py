"""Write shards, the only step that reads pixels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsSingleton

from shardwright.format.index import ShardSummary
from shardwright.storage.counters import COUNTERS
from transforms.metrics import count, count_written, timed
from transforms.output_state import Clearance
from transforms.plan.shard_plans import ShardPlan
from transforms.progress import PROGRESS
from transforms.reject_files import read_rejects
from transforms.rejects import Reject
from transforms.routing import Route, Routed, in_global_window, routed
from transforms.write.shard_writing import find_finished, write_records
from transforms.write.write_job import WriteJob


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


_Finishing = Future[tuple[ShardSummary, list[Reject]]]


class _WriteFn(beam.DoFn):
    """A DoFn whose thread ends each shard while the next one is read and written.

    Otherwise reading would pause while the last images arrive and, in a store, for about ten
    requests, one after another, and the store's own copying.
    """

    def setup(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shardwright-finish")

    def start_bundle(self) -> None:
        self._finishing: list[_Finishing] = []  # at most one shard

    def process(self, plan: ShardPlan, job: WriteJob, clearance: Clearance) -> Iterator[Any]:
        job = job.cleared(clearance)
        finished = find_finished(job.root, plan, unpublished=job.unpublished)
        if finished is not None:
            count("shards_reused")
            PROGRESS.add_reused(images=plan.references.num_rows, shards=1)
            yield from routed((finished, *read_rejects(job.root, plan.name.rejects)))
            return
        count("images_in", plan.references.num_rows)
        with timed("write_shard_msec"):
            try:
                finish = write_records(plan, job)
            finally:
                wait(self._finishing)  # one at a time, and none goes on after a failed write
            # Submitted before the previous result is taken: if that raises, this shard is finished
            # all the same, so that no open upload is left behind.
            previous, self._finishing = self._finishing, [self._thread.submit(finish)]
        yield from _results_of(previous)

    def finish_bundle(self) -> Iterator[Any]:
        for result in _results_of(self._finishing):
            yield in_global_window(result)

    def teardown(self) -> None:
        self._thread.shutdown()


def _results_of(finishing: Iterable[_Finishing]) -> Iterator[Any]:
    """Wait for shards, count them, and yield their summaries and rejects as `routed`."""
    for shard in finishing:
        summary, rejects = shard.result()
        for name, number in COUNTERS.drain().items():
            count(f"storage_{name}", number)
        for name, number in summary.stats.get("fixes", {}).items():
            count(f"fixed_{name}", number)
        count_written(summary)
        yield from routed((summary, *rejects))
