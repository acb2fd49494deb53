"""Write one shard: read and encode its images in chunks, and stream the records out in plan order.

A task in the thread pool does all CPU work of a chunk (reading, checking, decoding, framing,
checksums). The calling thread only writes finished chunks, so the order causes no waiting, and the
chunks in flight bound the memory. What follows the last record (fsync, or the last requests to a
store) is a function of its own, for another thread to run while the next shard is written.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pyarrow as pa

from shardwright.errors import MissingError
from shardwright.format.contents import FileContent
from shardwright.format.crc import combine_all
from shardwright.format.index import INDEX_SCHEMA, ShardSummary, read_summary, write_sidecar
from shardwright.storage.addresses import is_remote
from shardwright.storage.folder import Folder
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
    if not summary.rejects:
        return summary
    try:
        content = FileContent.of(root.read_bytes(plan.name.rejects))
    except MissingError:
        return None
    return replace(summary, reject_file=content)


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
    """Write a shard's records; return the function that puts the shard in place, to be called once.

    Both raise as `write_shard`.
    """
    tasks = _begun(_chunk_tasks(plan.references, job))
    check_owner(job.root, job.fingerprint)
    job.root.remove(plan.name.sidecar)  # a sidecar marks a finished shard, so it goes first
    rows = _IndexRows(plan.references)
    rejects: list[Reject] = []
    fixes: Counter[str] = Counter()
    parts: list[tuple[int, int]] = []  # CRC32C and length of each chunk
    with ExitStack() as stack:
        sink = stack.enter_context(job.root.open_sink(plan.name.shard))
        for chunk in _run(tasks, plan.references, job):
            rows.add(chunk, sink.num_bytes)
            sink.write(chunk.framed.pieces)
            parts.append((chunk.framed.crc32c, chunk.framed.num_bytes))
            rejects += chunk.rejects
            fixes += chunk.fixes
            PROGRESS.add(
                images=len(chunk.rows) + len(chunk.rejects), num_bytes=sum(chunk.image_bytes)
            )
        opened = stack.pop_all()

    def finish() -> tuple[ShardSummary, list[Reject]]:
        with opened:
            check_owner(job.root, job.fingerprint)
        table = rows.to_table()
        summary = ShardSummary(
            name=plan.name,
            num_records=table.num_rows,
            num_bytes=sink.num_bytes,
            crc32c=combine_all([crc for crc, _ in parts], [length for _, length in parts]),
            digest=plan.digest,
            etag=sink.etag,
            rejects=count_reasons(rejects),
            stats=describe_rows(table, fixes, rows.rejected_labels()),
            reject_file=write_rejects(job.root, plan.name.rejects, rejects),
        )
        return write_sidecar(job.root, summary, table), rejects

    return finish


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
    return _run(_chunk_tasks(references, job), references, job)


def _run(
    tasks: Iterator[Callable[[], Chunk]], references: pa.RecordBatch, job: WriteJob
) -> Iterator[Chunk]:
    return _read_ahead(job.computing_threads, _num_tasks(references, job)).run(tasks)


def _chunk_tasks(references: pa.RecordBatch, job: WriteJob) -> Iterator[Callable[[], Chunk]]:
    encoder = ExampleEncoder(job.schema)
    # The results of users' functions are encoded row by row instead.
    entries = [] if job.transforms else encoder.encode_known(references)
    chunks = (
        references.slice(start, stop - start)
        for start, stop in chunk_bounds(record_bytes(references))
    )
    first_row = 0
    for rows, reads in read_ahead(chunks, job.storage, job.threads):
        known = entries[first_row : first_row + rows.num_rows]
        yield functools.partial(
            make_chunk, rows, reads, first_row=first_row, entries=known, encoder=encoder, job=job
        )
        first_row += rows.num_rows


def _begun(tasks: Iterator[Callable[[], Chunk]]) -> Iterator[Callable[[], Chunk]]:
    """Take the first task now, so that objects are being read while OUTPUT is still checked."""
    return itertools.chain(list(itertools.islice(tasks, 1)), tasks)


def _num_tasks(references: pa.RecordBatch, job: WriteJob) -> int | None:
    """Return the number of chunks in flight, or None to measure it.

    Reads of objects start before their chunk does, which would distort the measurement.
    """
    has_objects = bool(references.num_rows) and is_remote(references.column("uri")[0].as_py())
    return job.computing_threads + 1 if has_objects else job.threads
