"""Estimate requests, bytes, time and memory of a build, each figure with its formula.

The constants are counted or measured: the requests of a shard by a proxy before an S3 server
(tests/pipelines/estimates), memory as in docs/dataflow.md and docs/limits.md. Utilization and
start-up time of workers on other machines are assumed, as in docs/dataflow.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from shardwright.inspect.sample import TASK_RECORDS, sample_size, sampled_shards
from shardwright.pipelines.estimates.planned_work import Figure, PlannedWork
from shardwright.sizes import counted, show_bytes, show_seconds
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
