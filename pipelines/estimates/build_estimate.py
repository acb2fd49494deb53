"""Put the estimates of a build together."""

from __future__ import annotations

from shardwright.pipelines.estimates.cost_figures import request_costs, worker_costs
from shardwright.pipelines.estimates.planned_work import BuildEstimate, Figure, PlannedWork
from shardwright.pipelines.estimates.prices import Prices
from shardwright.pipelines.estimates.work_figures import (
    long_shard_warning,
    memory_of,
    requests_of,
    sizes_of,
    times_of,
)


def estimate_build(work: PlannedWork, prices: Prices) -> BuildEstimate:
    """Return the estimates of a build."""
    requests = list(requests_of(work))
    figures = [*requests, *sizes_of(work), *times_of(work), memory_of(work)]
    unknown: list[str] = []
    costs = [*request_costs(requests, prices, unknown), *worker_costs(work, prices, unknown)]
    if len(costs) > 1:
        total = sum(cost.value for cost in costs)
        costs.append(Figure("cost", total, "dollars", " + ".join(cost.shown for cost in costs)))
    if work.sample.wall_of_image is None:
        why = "INPUT must be unpacked first" if work.sample.spooled else "no image could be read"
        unknown.append(f"time: {why}")
    used = {*work.sample.stores, work.output} | (
        {"dataflow"} if work.workers.is_dataflow else set()
    )
    sources = [f"{name}: {told}" for name, told in prices.sources.items() if name in used]
    return BuildEstimate(
        [*figures, *costs], unknown, long_shard_warning(work), sources if costs else ()
    )
