"""Estimate the cost of a build from its requests, its work and a table of prices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardwright.pipelines.estimates.planned_work import Figure, PlannedWork
from shardwright.pipelines.estimates.prices import Prices
from shardwright.pipelines.estimates.work_figures import START_SECONDS, busy_share

SHUFFLED_BYTES = 1_000  # of a record, in all shuffles: references only


def request_costs(
    requests: Sequence[Figure], prices: Prices, unknown: list[str]
) -> Iterator[Figure]:
    """Yield the cost of the requests; adds those without a price to `unknown`."""
    for each in requests:
        store, _, kind = each.name.rpartition(" ")
        price = prices.of(store, kind.removesuffix("s"))
        if price is None:
            unknown.append(f"cost of {each.name}: the price table has none")
        else:
            formula = f"{each.shown} x ${price:g} / 1,000"
            yield Figure(f"cost of {each.name}", each.value * price / 1000, "dollars", formula)


def worker_costs(work: PlannedWork, prices: Prices, unknown: list[str]) -> Iterator[Figure]:
    """Yield the cost of Dataflow's workers; adds what has no price to `unknown`."""
    workers, cpu = work.workers, work.sample.cpu_of_image
    if not workers.is_dataflow:
        if not workers.is_local:
            unknown.append(f"cost of workers: no price of {workers.runner} machines")
        return
    vcpu, memory = prices.of("dataflow", "vcpu_hour"), prices.of("dataflow", "memory_gb_hour")
    shuffle = prices.of("dataflow", "shuffle_gb")
    if cpu is not None and vcpu is not None:
        processes, busy = workers.num_processes or 0, busy_share(work)
        hours = (cpu * work.num_records / busy + processes * START_SECONDS) / 3600
        told = f"{hours:,.2f} vCPU hours (work / {busy:.0%} busy"
        told += f" + {processes} x {START_SECONDS} s)" if processes else ", without start)"
        yield Figure("cost of vCPUs", hours * vcpu, "dollars", f"{told} x ${vcpu:g}")
        if memory is not None and (size := workers.memory_gb_per_process) is not None:
            formula = f"{hours:,.2f} vCPU hours x {size:g} GB x ${memory:g}"
            yield Figure("cost of memory", hours * size * memory, "dollars", formula)
        else:
            unknown.append("cost of memory: give a --worker_machine_type of the price table")
    if shuffle is not None:
        shuffled = work.num_records * SHUFFLED_BYTES / 1e9
        formula = f"{work.num_records:,} x {SHUFFLED_BYTES:,} B of references x ${shuffle:g} a GB"
        yield Figure("cost of shuffle", shuffled * shuffle, "dollars", formula)
    if workers.num_processes is None:
        unknown.append("time in all: give --max_num_workers and --worker_machine_type")
