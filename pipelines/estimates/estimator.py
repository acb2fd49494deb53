"""Collect what the estimates of `shardwright plan --estimate` follow from, beside its plan."""

from __future__ import annotations

import numpy as np

from shardwright.format import naming
from shardwright.pipelines.estimates.build_estimate import estimate_build
from shardwright.pipelines.estimates.planned_work import BuildEstimate, PlannedWork
from shardwright.pipelines.estimates.prices import DEFAULT, Prices
from shardwright.pipelines.estimates.timed_sample import time_sample
from shardwright.pipelines.estimates.workers import workers_of
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.local.even_sample import EvenSample
from shardwright.pipelines.local.plan import LocalPlan
from shardwright.storage.counters import COUNTERS


class Estimator:
    """Estimates of one build. Make it before the plan, because it counts the plan's requests.

    Args:
        prices: A file of prices; None for the default.

    Attributes:
        sample: To be shown the plan's references.

    Raises:
        UsageError: The file is invalid.
    """

    def __init__(self, prices: str | None) -> None:
        self._prices = Prices.read(DEFAULT if prices is None else prices)
        self._requests = _num_requests()
        self.sample = EvenSample()

    def estimate(self, job: BuildJob, plan: LocalPlan) -> BuildEstimate:
        """Time the sample and return the estimates.

        Raises:
            BuildError: The work on an image cannot continue, such as a lost decoder process.
        """
        requests = _num_requests() - self._requests
        root = job.options.root
        write_job = job.write_job.with_vocabularies(plan.vocabularies)
        sample = time_sample(self.sample.rows(), write_job, root.below(naming.SPOOL_DIR))
        records = (np.diff(cuts.starts).max() for cuts in plan.layout.cuts.values())
        work = PlannedWork(
            num_records=plan.layout.num_records,
            shard_bytes=[each for split in plan.bytes_per_shard.values() for each in split],
            largest_records=int(max(records, default=0)),
            bytes_read=plan.known_bytes,
            output=root.uri.partition("://")[0] if root.is_remote else "",
            planning_requests=requests,
            decodes=(
                write_job.check == "decode"
                or write_job.encode.decodes
                or bool(write_job.transforms)
            ),
            sample=sample,
            workers=workers_of(
                job.options.beam_args, self._prices.by_section.get("memory_gb_per_vcpu", {})
            ),
        )
        return estimate_build(work, self._prices)


def _num_requests() -> int:
    return COUNTERS.snapshot().get("requests", 0)
