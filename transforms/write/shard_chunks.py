"""Make the chunks of a shard, in plan order, in the thread pool of this process."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator

import pyarrow as pa

from shardwright.storage.addresses import is_remote
from shardwright.transforms.images.pixels import PIXELS, pixels_for
from shardwright.transforms.references import record_bytes
from shardwright.transforms.write.copied_records import copy_chunk, record_places
from shardwright.transforms.write.examples import ExampleEncoder
from shardwright.transforms.write.image_chunks import Chunk, chunk_bounds, make_chunk
from shardwright.transforms.write.image_reads import read_ahead
from shardwright.transforms.write.read_ahead import ReadAhead
from shardwright.transforms.write.write_job import WriteJob

# A chunk costs its threads as much as several images, so a thread that is alone takes larger ones.
_SCALE_ALONE = 2
# Rows encoded at a time: a shard of images has fewer, one of small records has a million.
_ENCODED_ROWS = 4096
_TASKS_AT_START = 4  # in a store the checks last as long as reading a few hundred images


@functools.cache
def _read_ahead(computing: int, fixed: int | None) -> ReadAhead[Chunk]:
    """Return one ReadAhead per process, so that later shards reuse its measurements."""
    if computing > 1:
        PIXELS.set_bound(pixels_for(computing))  # this process's share
    return ReadAhead(computing, fixed, PIXELS.seconds_waited)


def make_chunks(
    references: pa.RecordBatch, job: WriteJob, all_begun: threading.Event | None = None
) -> Iterator[Chunk]:
    """Return the chunks of a shard with these references, in order; reads of objects start now.

    Args:
        references: The rows of the shard.
        job: The settings of all shards.
        all_begun: Set once the reads of the last chunk have started.
    """
    if job.copies:
        references = record_places(references)
    ahead = _read_ahead(job.computing_threads, _num_tasks(references, job))
    scale = _SCALE_ALONE if ahead.num_threads == 1 else 1
    tasks = _chunk_tasks(references, job, all_begun or threading.Event(), scale)
    return ahead.run(_begun(tasks))


def _chunk_tasks(
    references: pa.RecordBatch, job: WriteJob, all_begun: threading.Event, scale: int
) -> Iterator[Callable[[], Chunk]]:
    encoder = ExampleEncoder(job.schema)
    # Copied records are encoded; the results of users' functions are encoded row by row instead.
    is_made = not (job.copies or job.transforms)
    entries = _entries_of(references, encoder) if is_made else iter(())

    def chunks() -> Iterator[pa.RecordBatch]:
        for start, stop in chunk_bounds(record_bytes(references), scale):
            yield references.slice(start, stop - start)
        # After the last chunk was taken: its reads are under way, so the next shard may begin to
        # read.
        all_begun.set()

    first_row = 0
    for rows, reads in read_ahead(chunks(), job.storage, job.threads):
        # Encoded here, in the thread that makes tasks, in the order of the rows; the tasks may run
        # in any order.
        known = list(itertools.islice(entries, rows.num_rows))
        if job.copies:
            yield functools.partial(copy_chunk, rows, reads, first_row=first_row, job=job)
        else:
            make = functools.partial(make_chunk, entries=known, encoder=encoder)
            yield functools.partial(make, rows, reads, first_row=first_row, job=job)
        first_row += rows.num_rows


def _entries_of(references: pa.RecordBatch, encoder: ExampleEncoder) -> Iterator[bytes]:
    for start in range(0, references.num_rows, _ENCODED_ROWS):
        yield from encoder.encode_known(references.slice(start, _ENCODED_ROWS))


def _begun(tasks: Iterator[Callable[[], Chunk]]) -> Iterator[Callable[[], Chunk]]:
    """Take the first tasks now, so that objects are being read while OUTPUT is still checked."""
    return itertools.chain(list(itertools.islice(tasks, _TASKS_AT_START)), tasks)


def _num_tasks(references: pa.RecordBatch, job: WriteJob) -> int | None:
    """Return the number of chunks in flight, or None to measure it.

    Reads of objects start before their chunk does, which would distort the measurement.
    """
    has_objects = bool(references.num_rows) and is_remote(references.column("uri")[0].as_py())
    return job.computing_threads + 1 if has_objects else job.threads
