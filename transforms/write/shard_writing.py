"""Write one shard: read and encode its images in chunks, and stream the records out in plan order.

A task in the thread pool does all CPU work of a chunk (reading, checking, decoding, framing,
checksums). The calling thread only writes finished chunks, so the order causes no waiting, and the
chunks in flight bound the memory. What follows the last record (fsync, or the last requests to a
store) is a function of its own, for another thread to run while the next shard is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import pyarrow as pa

from shardwright.errors import BuildError
from shardwright.format import naming
from shardwright.format.crc import combine_all
from shardwright.format.index import INDEX_SCHEMA, ShardSummary, read_summary, write_sidecar
from shardwright.storage.folder import Folder
from transforms.output_state import check_owner
from transforms.plan.shard_plans import ShardPlan
from transforms.progress import PROGRESS
from transforms.publish.statistics import describe_rows
from transforms.reject_files import read_rejects, write_rejects
from transforms.rejects import RETRYABLE, Reject
from transforms.write.alone import make_alone
from transforms.write.attempts import has_died, noted_attempt
from transforms.write.image_chunks import Chunk
from transforms.write.shard_chunks import make_chunks
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
    """Write a shard's records; return the function that puts the shard in place, to be called once.

    If another worker has finished the shard by then, that one stays. Both raise as `write_shard`.
    """
    make = make_alone if has_died(job.root, plan) else make_chunks
    chunks = make(plan.references, job)
    check_owner(job.root, job.fingerprint)
    # A sidecar marks a finished shard, so it goes first. In an unpublished build it may be that of
    # a worker that has just finished this shard; find_finished does not believe an old one.
    if not job.unpublished:
        job.root.remove(plan.name.sidecar)
    rows = _IndexRows(plan.references)
    rejects: list[Reject] = []
    fixes: Counter[str] = Counter()
    parts: list[tuple[int, int]] = []  # CRC32C and length of each chunk
    with ExitStack() as stack:
        stack.enter_context(noted_attempt(job.root, plan))
        sink = stack.enter_context(job.root.open_sink(plan.name.shard))
        for chunk in chunks:
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
        try:
            with opened:
                check_owner(job.root, job.fingerprint)
                _check_unfinished(plan, job)
        except _FinishedElsewhereError as other:
            return other.summary, read_rejects(job.root, plan.name.rejects)
        table = rows.to_table()
        summary = ShardSummary(
            name=plan.name,
            num_records=table.num_rows,
            num_bytes=sink.num_bytes,
            crc32c=combine_all([crc for crc, _ in parts], [length for _, length in parts]),
            digest=plan.digest,
            etag=sink.etag,
            rejects=_count_reasons(rejects),
            stats=describe_rows(table, fixes),
        )
        write_rejects(job.root, plan.name.rejects, rejects)
        return write_sidecar(job.root, summary, table), rejects

    return finish


class _FinishedElsewhereError(Exception):
    """Another worker finished the shard; the runner may have taken this one for lost."""

    def __init__(self, summary: ShardSummary) -> None:
        super().__init__(summary.name.shard)
        self.summary = summary


def _check_unfinished(plan: ShardPlan, job: WriteJob) -> None:
    """Stop a late writer just before it replaces a shard that is finished or published."""
    if (summary := find_finished(job.root, plan, retry=job.unpublished)) is not None:
        raise _FinishedElsewhereError(summary)
    if job.unpublished and job.root.num_bytes_of(naming.MANIFEST) is not None:
        raise BuildError(
            f"the dataset at {job.root} was published meanwhile: {plan.name.shard} stays as it is"
        )


def _count_reasons(rejects: Sequence[Reject]) -> dict[str, int]:
    reasons = [str(reject.reason) for reject in rejects]
    return {reason: reasons.count(reason) for reason in sorted(set(reasons))}


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

    def to_table(self) -> pa.Table:
        kept = self._references.take(pa.array(self._rows, pa.int64()))
        columns = {
            name: pa.array(values, INDEX_SCHEMA.field(name).type)
            for name, values in self._columns.items()
        }
        columns |= {name: kept.column(name) for name in ("uri", "etag")}
        return pa.table({name: columns[name] for name in INDEX_SCHEMA.names}, schema=INDEX_SCHEMA)
