"""Estimate requests, time and memory of a build, for `shardwright plan --estimate`.

Money follows from prices that the user states: list prices change.

The constants are counted or measured: the requests of a shard by a proxy before an S3 server
(tests/pipelines/estimates), memory as in docs/dataflow.md and docs/limits.md. Utilization and
start-up time of workers on other machines are assumed, as in docs/dataflow.md.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shardwright.errors import UsageError
from shardwright.format import naming
from shardwright.inspect.sample import TASK_RECORDS, sample_size, sampled_shards
from shardwright.pipelines.estimates.work import (
    BuildEstimate,
    Figure,
    PlannedWork,
    time_sample,
    workers_of,
)
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.local.batches import EvenSample
from shardwright.pipelines.local.plan import LocalPlan
from shardwright.sizes import counted, show_bytes, show_seconds
from shardwright.storage.counters import COUNTERS
from shardwright.storage.objects import COALESCE_BYTES
from shardwright.storage.uploads import PART_BYTES

LONG_SHARD_SECONDS = 300.0
# Of one shard in a store, counted at a server: plan, sidecar and shard four times each, the note
# of the attempt twice.
READS_OF_SHARD = 14
READS_OF_BUILD = 31
WRITES_BESIDE_SHARD = 2  # sidecar, and the note of the attempt
BEGIN_AND_COMPLETE = 2
WRITES_OF_BUILD = 8  # plan.json, manifest.json and the files beside it
LISTS_OF_OUTPUT = 10
PROCESS_BYTES = 250_000_000
READ_AHEAD_BYTES, UPLOAD_BYTES = 64_000_000, 40_000_000  # of a shard in work
LOCAL_BYTES, PLANNED_BYTES = 350_000_000, 190  # of a build in one process, and of a planned record
START_SECONDS = 240  # of a worker on another machine: machine, container image and processes
BUSY_READING, BUSY_DECODING = 0.5, 0.85  # share of the time in which a worker computes
SHUFFLED_BYTES = 1_000  # of a record, in all shuffles: references only
_REQUESTS = frozenset({"read", "write", "list"})  # per 1,000
# Sections, and the prices that each may have.
_KNOWN = {
    "s3": _REQUESTS,
    "gs": _REQUESTS,
    "az": _REQUESTS,
    # US dollars, and a fact about the machines.
    "dataflow": frozenset({"vcpu_hour", "memory_gb_hour", "memory_gb_per_vcpu", "shuffle_gb"}),
}


class Estimator:
    """Estimates of one build. Make it before the plan, because it counts the plan's requests.

    Args:
        prices: A file of prices, or None.

    Attributes:
        sample: To be shown the plan's references.

    Raises:
        UsageError: The file is invalid.
    """

    def __init__(self, prices: str | None) -> None:
        self._prices = None if prices is None else Prices.read(prices)
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
            workers=workers_of(job.options.beam_args),
        )
        return estimate_build(work, self._prices)


def _num_requests() -> int:
    return COUNTERS.snapshot().get("requests", 0)


def estimate_build(work: PlannedWork, prices: Prices | None = None) -> BuildEstimate:
    """Return the estimates of a build, with costs if there are prices."""
    workers = work.workers
    requests, used = list(requests_of(work)), list(dataflow_use(work))
    figures = [*requests, *sizes_of(work), *times_of(work), memory_of(work), *used]
    unknown: list[str] = []
    if prices is not None:
        costs = [*request_costs(requests, prices, unknown), *worker_costs(used, prices, unknown)]
        if len(costs) > 1:
            total = sum(cost.value for cost in costs)
            costs.append(Figure("cost", total, "dollars", " + ".join(cost.shown for cost in costs)))
        figures += costs
        if not (workers.is_local or workers.is_dataflow):
            unknown.append(f"cost of workers: no price of {workers.runner} machines")
    if workers.is_dataflow and workers.num_processes is None:
        unknown.append("time in all: give --max_num_workers and --worker_machine_type")
    if work.sample.wall_of_image is None:
        why = "INPUT must be unpacked first" if work.sample.spooled else "no image could be read"
        unknown.append(f"time: {why}")
    return BuildEstimate(figures, unknown, long_shard_warning(work))


def requests_of(work: PlannedWork) -> Iterator[Figure]:
    """Yield the requests by store and class, named `s3 reads`, `gs writes` and so on."""
    shards = len(work.shard_bytes)
    each_shard = counted(shards, "shard")
    for store in sorted({*work.sample.stores, work.output} - {""}):
        reads = round(work.num_records * work.sample.stores.get(store, 0.0))
        told = [f"{reads:,} images"] if reads else []
        if store == work.output:
            pictures = _reads_of_report(work)
            reads += READS_OF_SHARD * shards + READS_OF_BUILD + pictures
            told.append(f"{READS_OF_SHARD} x {each_shard} + {READS_OF_BUILD}")
            told.append(f"{pictures:,} for report.html")
        yield Figure(f"{store} reads", reads, "requests", f"{' + '.join(told)} (GET, HEAD)")
    if work.output:
        spool = math.ceil(work.bytes_read * work.sample.spooled / PART_BYTES)
        parts = spool + sum(
            1 if size < PART_BYTES else math.ceil(size / PART_BYTES) + BEGIN_AND_COMPLETE
            for size in work.shard_bytes
        )
        yield Figure(
            f"{work.output} writes",
            parts + WRITES_BESIDE_SHARD * shards + WRITES_OF_BUILD,
            "requests",
            f"{parts:,} for shards{' and spool' if spool else ''} in parts of "
            f"{PART_BYTES >> 20} MiB + {WRITES_BESIDE_SHARD} x {each_shard} + {WRITES_OF_BUILD} "
            "(PUT, POST)",
        )
    lists = work.planning_requests + (LISTS_OF_OUTPUT if work.output else 0)
    if lists:
        store = next(iter(work.sample.stores), work.output)
        beside = f" + {LISTS_OF_OUTPUT} of OUTPUT" if work.output else ""
        told_lists = f"{work.planning_requests:,} requests of this plan{beside} (counted as LIST)"
        yield Figure(f"{store} lists".strip(), lists, "requests", told_lists)


def _reads_of_report(work: PlannedWork) -> int:
    """Return the requests for the pictures of the report, and for the index of their shards."""
    number = pictures = sample_size(work.num_records)
    # Records that are near each other share a request.
    if sum(work.shard_bytes) < pictures * COALESCE_BYTES:
        pictures = math.ceil(pictures / TASK_RECORDS)
    shards = len(work.shard_bytes)
    return pictures + min(shards, sampled_shards(number, work.num_records, shards))


def sizes_of(work: PlannedWork) -> Iterator[Figure]:
    """Yield the bytes read and written."""
    known = f"sizes of {counted(work.num_records, 'record')} in the plan"
    yield Figure("bytes read", work.bytes_read, "bytes", known)
    yield Figure(
        "bytes written",
        sum(work.shard_bytes),
        "bytes",
        f"{counted(len(work.shard_bytes), 'shard')} of the plan",
    )
    if work.sample.spooled:
        spooled = work.bytes_read * work.sample.spooled
        yield Figure("bytes spooled", spooled, "bytes", "images unpacked to OUTPUT/spool first")


def times_of(work: PlannedWork) -> Iterator[Figure]:
    """Yield the time of an image, of the largest shard and of all, if a sample was timed."""
    sample, workers = work.sample, work.workers
    wall, cpu = sample.wall_of_image, sample.cpu_of_image
    if wall is None or cpu is None:
        return
    timed = (
        f"{counted(sample.num_timed, 'image')} on {counted(sample.cores, 'core')} of this machine"
    )
    # Four digits, so that the quotient has the three that are shown.
    took, used = (f"{seconds:.4g} s" for seconds in (sample.wall_seconds, sample.cpu_seconds))
    yield Figure("image", wall, "seconds", f"{took} / {timed}, without writing")
    yield Figure("CPU of image", cpu, "seconds", f"{used} of CPU / {timed}")
    each, name = (wall, "image") if workers.is_local else (cpu, "CPU of image")
    largest = f"{work.largest_records:,} records of the largest shard x {name}"
    yield Figure("shard", each * work.largest_records, "seconds", largest)
    if workers.is_local:
        yield Figure(
            "all",
            wall * work.num_records,
            "seconds",
            f"{work.num_records:,} x image, in one process",
        )
        return
    yield Figure("work", cpu * work.num_records, "seconds", f"{work.num_records:,} x {name}")
    if processes := workers.num_processes:
        # All shards on all processes, or the largest shard if there are few.
        busy, start = busy_share(work), START_SECONDS if workers.is_dataflow else 0
        shared, alone = cpu * work.num_records / processes, cpu * work.largest_records
        by = f"work / {counted(processes, 'process')}" if shared > alone else "shard"
        started = f" + {start} s to start" if start else ""
        formula = f"{by} / {busy:.0%} busy (assumed){started}"
        yield Figure("all", max(shared, alone) / busy + start, "seconds", formula)


def memory_of(work: PlannedWork) -> Figure:
    """Return the peak memory of the build's process, or of a worker machine."""
    in_work = (READ_AHEAD_BYTES if work.sample.stores else 0) + (UPLOAD_BYTES if work.output else 0)
    shard = f" + {show_bytes(in_work)} of reads and parts in work" if in_work else ""
    if work.workers.is_local:
        planned = PLANNED_BYTES * work.num_records
        return Figure(
            "memory",
            LOCAL_BYTES + planned + in_work,
            "bytes",
            f"{show_bytes(LOCAL_BYTES)} + {PLANNED_BYTES} B x {work.num_records:,} planned{shard}",
        )
    threads, processes = work.workers.threads, work.workers.processes or 1
    reads = f" + {threads} x {show_bytes(in_work)} of reads and parts in work" if in_work else ""
    return Figure(
        "memory a worker",
        processes * (PROCESS_BYTES + threads * in_work),
        "bytes",
        f"{counted(processes, 'process')} x ({show_bytes(PROCESS_BYTES)}{reads})",
    )


def busy_share(work: PlannedWork) -> float:
    """Return the assumed utilization of workers, 0 to 1; otherwise they wait for the store."""
    return BUSY_DECODING if work.decodes else BUSY_READING


def long_shard_warning(work: PlannedWork) -> str:
    """Return the reason to make shards smaller, or ""."""
    sample = work.sample
    each = sample.wall_of_image if work.workers.is_local else sample.cpu_of_image
    seconds = (each or 0.0) * work.largest_records
    if seconds <= LONG_SHARD_SECONDS:
        return ""
    size = max(work.shard_bytes) * LONG_SHARD_SECONDS / seconds
    return (
        f"the largest shard takes {show_seconds(seconds)} of work, and a crash loses as much: "
        f"--shard-size {size / 1e6:.0f}MB would take {show_seconds(LONG_SHARD_SECONDS)}"
    )


def request_costs(
    requests: Sequence[Figure], prices: Prices, unknown: list[str]
) -> Iterator[Figure]:
    """Yield the cost of the requests; adds those without a price to `unknown`."""
    for each in requests:
        store, _, kind = each.name.rpartition(" ")
        price = prices.of(store, kind.removesuffix("s"))
        if price is None:
            unknown.append(f"cost of {each.name}: the prices have none")
        else:
            formula = f"{each.shown} x ${price:g} / 1,000"
            yield Figure(f"cost of {each.name}", each.value * price / 1000, "dollars", formula)


def dataflow_use(work: PlannedWork) -> Iterator[Figure]:
    """Yield what Dataflow charges for: the hours of its vCPUs, and the bytes of its shuffles."""
    workers, cpu = work.workers, work.sample.cpu_of_image
    if not workers.is_dataflow:
        return
    if cpu is not None:
        processes, busy = workers.num_processes or 0, busy_share(work)
        hours = (cpu * work.num_records / busy + processes * START_SECONDS) / 3600
        start = f" + {processes} x {START_SECONDS} s" if processes else ", without start"
        yield Figure("vCPU hours", hours, "hours", f"work / {busy:.0%} busy (assumed){start}")
    formula = f"{work.num_records:,} x {SHUFFLED_BYTES:,} B of references"
    yield Figure("bytes shuffled", work.num_records * SHUFFLED_BYTES, "bytes", formula)


def worker_costs(used: Sequence[Figure], prices: Prices, unknown: list[str]) -> Iterator[Figure]:
    """Yield the cost of Dataflow's workers; adds what has no price to `unknown`."""
    price = {name: prices.of("dataflow", name) for name in _KNOWN["dataflow"]}
    for each in used:
        if each.unit == "hours":
            size, memory = price["memory_gb_per_vcpu"], price["memory_gb_hour"]
            if (vcpu := price["vcpu_hour"]) is not None:
                formula = f"{each.shown} x ${vcpu:g}"
                yield Figure("cost of vCPUs", each.value * vcpu, "dollars", formula)
            if size is not None and memory is not None:
                formula = f"{each.shown} x {size:g} GB x ${memory:g}"
                yield Figure("cost of memory", each.value * size * memory, "dollars", formula)
        elif (shuffle := price["shuffle_gb"]) is not None:
            formula = f"{each.shown} x ${shuffle:g} a GB"
            yield Figure("cost of shuffle", each.value / 1e9 * shuffle, "dollars", formula)
    if used and (missing := sorted(name for name, value in price.items() if value is None)):
        unknown.append(f"cost of workers: [dataflow] of the prices lacks {', '.join(missing)}")


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in US dollars by section and name, such as `{"s3": {"read": 0.0004}}`."""

    by_section: Mapping[str, Mapping[str, float]]

    def of(self, section: str, name: str) -> float | None:
        """Return a price, or None if there is none."""
        return self.by_section.get(section, {}).get(name)

    @classmethod
    def read(cls, path: str | Path) -> Prices:
        """Return the prices in a TOML file.

        Raises:
            UsageError: The file cannot be read, has an unknown name, or a price below 0.
        """
        try:
            content = tomllib.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"--prices {path} cannot be read: {error}") from error
        prices: dict[str, dict[str, float]] = {}
        for section, rows in content.items():
            if section not in _KNOWN or not isinstance(rows, dict):
                raise UsageError(
                    f"--prices {path}: [{section}] is not one of the sections {', '.join(_KNOWN)}"
                )
            prices[section] = {}
            for name, value in rows.items():
                if name not in _KNOWN[section]:
                    raise UsageError(
                        f"--prices {path}: [{section}] has no price {name!r}, only "
                        f"{', '.join(sorted(_KNOWN[section]))}"
                    )
                if type(value) not in (int, float) or not 0 <= value < math.inf:
                    raise UsageError(
                        f"--prices {path}: {name} of [{section}] must be a number of at least 0, "
                        f"got {value!r}"
                    )
                prices[section][name] = float(value)
        return cls(prices)
