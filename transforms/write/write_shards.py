"""Write shards, the only step that reads pixels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

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
from transforms.routing import Route, Routed
from transforms.write.shard_writing import find_finished, write_shard
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
        write = Route(_write, ShardSummary, job=self._job, clearance=AsSingleton(self._clearance))
        return plans | "Write" >> write  # ShardSummary


def _write(plan: ShardPlan, job: WriteJob, clearance: Clearance) -> Iterator[ShardSummary | Reject]:
    finished = find_finished(job.root, plan, retry=clearance.retry)
    if finished is not None:
        count("shards_reused")
        PROGRESS.add_reused(images=plan.references.num_rows, shards=1)
        yield finished
        yield from read_rejects(job.root, plan.name.rejects)
        return
    count("images_in", plan.references.num_rows)
    with timed("write_shard_msec"):
        summary, rejects = write_shard(
            plan,
            replace(
                job.with_vocabularies(clearance.vocabularies), fingerprint=clearance.fingerprint
            ),
        )
    for name, number in COUNTERS.drain().items():
        count(f"storage_{name}", number)
    for name, number in summary.stats.get("fixes", {}).items():
        count(f"fixed_{name}", number)
    count_written(summary)
    yield summary
    yield from rejects
