"""Estimate the time and memory of a build, for `shardwright plan --estimate`.

Memory is as in docs/dataflow.md and docs/limits.md. Utilization and start-up time of workers on
other machines are assumed, as in docs/dataflow.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from shardwright.format import naming
from shardwright.pipelines.estimates.work import (
    BuildEstimate,
    Figure,
    PlannedWork,
    time_sample,
    workers_of,
)
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.local.plan import LocalPlan
from shardwright.sizes import counted, show_bytes, show_seconds

LONG_SHARD_SECONDS = 300.0
PROCESS_BYTES = 250_000_000
READ_AHEAD_BYTES, UPLOAD_BYTES = 64_000_000, 40_000_000  # of a shard in work
LOCAL_BYTES, PLANNED_BYTES = 350_000_000, 190  # of a build in one process, and of a planned record
START_SECONDS = 240  # of a worker on another machine: machine, container image and processes
BUSY_READING, BUSY_DECODING = 0.5, 0.85  # share of the time in which a worker computes
SHUFFLED_BYTES = 1_000  # of a record, in all shuffles: references only


def estimate_plan(job: BuildJob, plan: LocalPlan, sample: pa.RecordBatch | None) -> BuildEstimate:
    """Time a sample of the plan's references, and return the estimates of the build.

    Raises:
        BuildError: The work on an image cannot continue, such as a lost decoder process.
    """
    root = job.options.root
    write_job = job.write_job.with_vocabularies(plan.vocabularies)
    records = (np.diff(cuts.starts).max() for cuts in plan.layout.cuts.values())
    work = PlannedWork(
        num_records=plan.layout.num_records,
        shard_bytes=[each for split in plan.bytes_per_shard.values() for each in split],
        largest_records=int(max(records, default=0)),
        bytes_read=plan.known_bytes,
        to_store=root.is_remote,
        decodes=write_job.maker.decodes,
        sample=time_sample(sample, write_job, root.below(naming.SPOOL_DIR)),
        workers=workers_of(job.options.beam_args),
    )
    return estimate_build(work)


def estimate_build(work: PlannedWork) -> BuildEstimate:
    """Return the estimates of a build."""
    figures = [*sizes_of(work), *times_of(work), memory_of(work), *dataflow_use(work)]
    unknown: list[str] = []
    workers = work.workers
    if workers.is_dataflow and workers.num_processes is None:
        unknown.append("time in all: give --max_num_workers and --worker_machine_type")
    if work.sample.wall_of_image is None:
        why = "INPUT must be unpacked first" if work.sample.spooled else "no image could be read"
        unknown.append(f"time: {why}")
    return BuildEstimate(figures, unknown, long_shard_warning(work))


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
    in_work = READ_AHEAD_BYTES * work.sample.in_store + UPLOAD_BYTES * work.to_store
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
