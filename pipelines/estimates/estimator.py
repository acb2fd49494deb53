"""Estimate requests, time, memory and cost of a build, for `shardwright plan --estimate`.

The constants are counted or measured: the requests of a shard by a proxy before an S3 server
(tests/pipelines/estimates), memory as in docs/dataflow.md and docs/limits.md. Utilization and
start-up time of workers on other machines are assumed, as in docs/dataflow.md.
"""

from __future__ import annotations

import datetime
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
DEFAULT_PRICES = Path(__file__).with_name("prices.toml")
_REQUESTS = frozenset({"read", "write", "list"})  # per 1,000
# Sections, and the prices that each may have.
_KNOWN = {
    "s3": _REQUESTS,
    "gs": _REQUESTS,
    "az": _REQUESTS,
    "dataflow": frozenset({"vcpu_hour", "memory_gb_hour", "shuffle_gb"}),
    "memory_gb_per_vcpu": None,
}


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
        self._prices = Prices.read(DEFAULT_PRICES if prices is None else prices)
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
        parts = sum(_uploads(num_bytes) for num_bytes in work.shard_bytes) + spool
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


def _uploads(num_bytes: int) -> int:
    """Return the requests that put one shard into a store."""
    return 1 if num_bytes < PART_BYTES else math.ceil(num_bytes / PART_BYTES) + BEGIN_AND_COMPLETE


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
        yield _time_of_all(work, cpu, processes)


def _time_of_all(work: PlannedWork, cpu: float, processes: int) -> Figure:
    """Return the time on other machines: that of all shards, or of the largest if there are few."""
    busy, start = busy_share(work), START_SECONDS if work.workers.is_dataflow else 0
    shared, largest = cpu * work.num_records / processes, cpu * work.largest_records
    by = f"work / {counted(processes, 'process')}" if shared > largest else "shard"
    started = f" + {start} s to start" if start else ""
    formula = f"{by} / {busy:.0%} busy (assumed){started}"
    return Figure("all", max(shared, largest) / busy + start, "seconds", formula)


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


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in US dollars by section and name, and where they are from.

    Attributes:
        by_section: For example `{"s3": {"read": 0.0004}}`.
        sources: Section -> source and date, for the output.
    """

    by_section: Mapping[str, Mapping[str, float]]
    sources: Mapping[str, str] = field(default_factory=dict)

    def of(self, section: str, name: str) -> float | None:
        """Return a price, or None if the table has none."""
        return self.by_section.get(section, {}).get(name)

    @classmethod
    def read(cls, path: str | Path = DEFAULT_PRICES) -> Prices:
        """Return the table in a TOML file.

        Raises:
            UsageError: The file cannot be read, has an unknown name, or a price below 0.
        """
        try:
            content = tomllib.loads(Path(path).read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"--prices {path} cannot be read: {error}") from error
        try:
            return cls(
                {section: _section(section, rows) for section, rows in content.items()},
                {section: _source(rows) for section, rows in content.items() if "source" in rows},
            )
        except ValueError as error:
            raise UsageError(
                f"--prices {path}: {error}; copy {DEFAULT_PRICES} and edit it"
            ) from error


def _section(section: str, rows: Any) -> dict[str, float]:
    if section not in _KNOWN or not isinstance(rows, dict):
        raise ValueError(f"[{section}] is not one of the sections {', '.join(_KNOWN)}")
    known, found = _KNOWN[section], {}
    for name, value in rows.items():
        if name in ("source", "date"):
            continue
        if known is not None and name not in known:
            raise ValueError(f"[{section}] has no price {name!r}, only {', '.join(sorted(known))}")
        if type(value) not in (int, float) or not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"{name} of [{section}] must be a number of at least 0, got {value!r}")
        found[name] = float(value)
    return found


def _source(rows: Mapping[str, Any]) -> str:
    date = rows.get("date")
    told = date.isoformat() if isinstance(date, datetime.date) else date
    return f"{rows['source']}, {told}" if told else str(rows["source"])
