"""Write one shard: read and encode its images in chunks, and stream the records out in plan order.

A task in the thread pool does all CPU work of a chunk (reading, checking, decoding, framing,
checksums). The calling thread only writes finished chunks, so the order causes no waiting, and the
chunks in flight bound the memory. Once the last image is being read, the rest (its records, then
fsync or the last requests to a store) is a function of its own, for another thread to run while the
next shard is read and written: so reading never pauses between shards.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import pyarrow as pa

from shardwright.format.crc import combine_all
from shardwright.format.index import INDEX_SCHEMA, ShardSummary, read_summary, write_sidecar
from shardwright.storage.addresses import is_remote
from shardwright.storage.folder import Folder, Sink
from transforms.images.pixels import PIXELS
from transforms.output_state import check_owner
from transforms.plan.shard_plans import ShardPlan
from transforms.progress import PROGRESS
from transforms.publish.statistics import describe_rows
from transforms.references import LABEL_INDEX, record_bytes
from transforms.reject_files import write_rejects
from transforms.rejects import RETRYABLE, Reject, count_reasons
from transforms.write.examples import ExampleEncoder
from transforms.write.image_chunks import Chunk, chunk_bounds, make_chunk
from transforms.write.image_reads import read_ahead
from transforms.write.read_ahead import ReadAhead
from transforms.write.write_job import WriteJob

_TASKS_AT_START = 4  # in a store the checks last as long as reading a few hundred images


def find_finished(root: Folder, plan: ShardPlan, *, retry: bool) -> ShardSummary | None:
    """Return the summary of a shard that is already written as planned, or None.

    Args:
        root: The dataset's folder.
        plan: The planned shard.
        retry: The build was never published, so shards with retryable rejects are rewritten.
    """
    summary = read_summary(root, plan.name)
    if summary is None or summary.digest != plan.digest:
        return None
    if retry and not RETRYABLE.isdisjoint(summary.rejects):
        return None
    if root.num_bytes_of(plan.name.shard) != summary.num_bytes:
        return None
    if summary.rejects and root.num_bytes_of(plan.name.rejects) is None:
        return None
    return summary


def write_shard(plan: ShardPlan, job: WriteJob) -> tuple[ShardSummary, list[Reject]]:
    """Write a shard, its rejects and, last, its sidecar. The same plan yields the same bytes.

    Raises:
        StorageError: The output cannot be written.
        BuildError: Another build has taken over the output.
    """
    return write_records(plan, job)()


def write_records(
    plan: ShardPlan, job: WriteJob
) -> Callable[[], tuple[ShardSummary, list[Reject]]]:
    """Write a shard's records until the last image has been asked for.

    Return the function that writes those still under way and puts the shard in place, to be called
    once. Both raise as `write_shard`.
    """
    all_begun = threading.Event()
    tasks = _begun(_chunk_tasks(plan.references, job, all_begun))
    check_owner(job.root, job.fingerprint)
    job.root.remove(plan.name.sidecar)  # a sidecar marks a finished shard, so it goes first
    chunks = _run(tasks, plan.references, job)
    with ExitStack() as stack:
        shard = _OpenShard(plan, stack.enter_context(job.root.open_sink(plan.name.shard)))
        for chunk in chunks:
            shard.add(chunk)
            if all_begun.is_set():
                break
        opened = stack.pop_all()

    def finish() -> tuple[ShardSummary, list[Reject]]:
        with opened:
            for chunk in chunks:
                shard.add(chunk)
            check_owner(job.root, job.fingerprint)
        summary, table = shard.described()
        write_rejects(job.root, plan.name.rejects, shard.rejects)
        return write_sidecar(job.root, summary, table), shard.rejects

    return finish


class _OpenShard:
    """A shard that is being written, with its rejects and what its sidecar will hold."""

    def __init__(self, plan: ShardPlan, sink: Sink) -> None:
        self._plan, self._sink = plan, sink
        self._rows = _IndexRows(plan.references)
        self._fixes: Counter[str] = Counter()
        self._parts: list[tuple[int, int]] = []  # CRC32C and length of each chunk
        self.rejects: list[Reject] = []

    def add(self, chunk: Chunk) -> None:
        """Write the records of the next chunk."""
        self._rows.add(chunk, self._sink.num_bytes)
        self._sink.write(chunk.framed.pieces)
        self._parts.append((chunk.framed.crc32c, chunk.framed.num_bytes))
        self.rejects += chunk.rejects
        self._fixes += chunk.fixes
        PROGRESS.add(images=len(chunk.rows) + len(chunk.rejects), num_bytes=sum(chunk.image_bytes))

    def described(self) -> tuple[ShardSummary, pa.Table]:
        """Return the summary and the index of the shard, which is in place."""
        table = self._rows.to_table()
        summary = ShardSummary(
            name=self._plan.name,
            num_records=table.num_rows,
            num_bytes=self._sink.num_bytes,
            crc32c=combine_all(
                [crc for crc, _ in self._parts], [length for _, length in self._parts]
            ),
            digest=self._plan.digest,
            etag=self._sink.etag,
            rejects=count_reasons(self.rejects),
            stats=describe_rows(table, self._fixes, self._rows.rejected_labels()),
        )
        return summary, table


class _IndexRows:
    """A collector of a shard's index rows while chunks are written."""

    def __init__(self, references: pa.RecordBatch) -> None:
        self._references = references
        self._rows: list[int] = []
        self._columns: dict[str, list[object]] = {
            name: []
            for name in (
                "id",
                "label",
                "offset",
                "length",
                "image_offset",
                "image_length",
                "crc32c",
                "format",
                "width",
                "height",
            )
        }

    def add(self, chunk: Chunk, offset: int) -> None:
        columns, framed = self._columns, chunk.framed
        self._rows += chunk.rows
        columns["id"] += chunk.ids
        columns["label"] += chunk.labels
        for length, image_offset in zip(framed.lengths, framed.image_offsets, strict=True):
            columns["offset"].append(offset)
            columns["image_offset"].append(offset + image_offset)
            offset += length
        columns["length"] += framed.lengths
        columns["image_length"] += chunk.image_bytes
        columns["crc32c"] += framed.image_crcs
        for name in ("format", "width", "height"):
            columns[name] += [getattr(info, name) for info in chunk.infos]

    def rejected_labels(self) -> pa.Array:
        """Return the label index of each row of the plan that has no record."""
        labels = self._references.column(LABEL_INDEX)
        rejected = np.ones(len(labels), bool)
        rejected[self._rows] = False
        return labels.filter(pa.array(rejected))

    def to_table(self) -> pa.Table:
        kept = self._references.take(pa.array(self._rows, pa.int64()))
        columns = {
            name: pa.array(values, INDEX_SCHEMA.field(name).type)
            for name, values in self._columns.items()
        }
        columns |= {name: kept.column(name) for name in ("uri", "etag")}
        return pa.table({name: columns[name] for name in INDEX_SCHEMA.names}, schema=INDEX_SCHEMA)


@functools.cache
def _read_ahead(computing: int, fixed: int | None) -> ReadAhead[Chunk]:
    """Return one ReadAhead per process, so that later shards reuse its measurements."""
    return ReadAhead(computing, fixed, PIXELS.seconds_waited)


def make_chunks(references: pa.RecordBatch, job: WriteJob) -> Iterator[Chunk]:
    """Yield the chunks of a shard with these references, in order, without writing them."""
    return _run(_chunk_tasks(references, job, threading.Event()), references, job)


def _run(
    tasks: Iterator[Callable[[], Chunk]], references: pa.RecordBatch, job: WriteJob
) -> Iterator[Chunk]:
    return _read_ahead(job.computing_threads, _num_tasks(references, job)).run(tasks)


def _chunk_tasks(
    references: pa.RecordBatch, job: WriteJob, all_begun: threading.Event
) -> Iterator[Callable[[], Chunk]]:
    """Yield a task per chunk; set `all_begun` once the reads of the last one have started."""
    encoder = ExampleEncoder(job.schema)
    # The results of users' functions are encoded row by row instead.
    entries = [] if job.transforms else encoder.encode_known(references)

    def chunks() -> Iterator[pa.RecordBatch]:
        for start, stop in chunk_bounds(record_bytes(references)):
            yield references.slice(start, stop - start)
        all_begun.set()

    first_row = 0
    for rows, reads in read_ahead(chunks(), job.storage, job.threads):
        known = entries[first_row : first_row + rows.num_rows]
        yield functools.partial(
            make_chunk, rows, reads, first_row=first_row, entries=known, encoder=encoder, job=job
        )
        first_row += rows.num_rows


def _begun(tasks: Iterator[Callable[[], Chunk]]) -> Iterator[Callable[[], Chunk]]:
    """Take the first tasks now, so that objects are being read while OUTPUT is still checked."""
    return itertools.chain(list(itertools.islice(tasks, _TASKS_AT_START)), tasks)


def _num_tasks(references: pa.RecordBatch, job: WriteJob) -> int | None:
    """Return the number of chunks in flight, or None to measure it.

    Reads of objects start before their chunk does, which would distort the measurement.
    """
    has_objects = bool(references.num_rows) and is_remote(references.column("uri")[0].as_py())
    return job.computing_threads + 1 if has_objects else job.threads
