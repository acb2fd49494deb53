"""Write one shard: read and encode its images in chunks, and stream the records out in plan order.

A task in the thread pool does all CPU work of a chunk (reading, checking, decoding, framing,
checksums). The calling thread only writes finished chunks, so the order causes no waiting, and the
chunks in flight bound the memory. Once the last image is being read, the rest (its records, then
fsync or the last requests to a store) is a function of its own, for another thread to run while the
next shard is read and written. Otherwise reading would pause while the last images arrive and, in a
store, for about ten requests, one after another, and the store's own copying.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial

import pyarrow as pa

from shardwright.errors import BuildError, MissingError, StorageError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.index import ShardSummary, read_summary, write_sidecar
from shardwright.storage.folder import Folder, Sink
from shardwright.transforms.output_state import check_owner
from shardwright.transforms.plan.packing import ShardPlan
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.reject_files import read_rejects, write_rejects
from shardwright.transforms.rejects import RETRYABLE, Reject, count_reasons
from shardwright.transforms.write.shard_chunks import (
    has_died,
    make_alone,
    make_chunks,
    noted_attempt,
)
from shardwright.transforms.write.write_job import Chunk, WriteJob
from shardwright.transforms.write.written_rows import WrittenRows

Written = tuple[ShardSummary, list[Reject]]


def find_finished(root: Folder, plan: ShardPlan, *, unpublished: bool) -> ShardSummary | None:
    """Return the summary of a shard that is already written as planned, or None.

    Args:
        root: The dataset's folder.
        plan: The planned shard.
        unpublished: The build was never published, so shards with retryable rejects are rewritten.
    """
    summary = read_summary(root, plan.name)
    if summary is None or summary.digest != plan.digest:
        return None
    if unpublished and not RETRYABLE.isdisjoint(summary.rejects):
        return None
    # A shard may be missing beside its sidecar, if somebody has removed it or a copy was cut.
    if root.num_bytes_of(plan.name.shard) != summary.num_bytes:
        return None
    signals = summary.signals_file
    if signals is not None and root.num_bytes_of(plan.name.signals) != signals.num_bytes:
        return None
    if not summary.rejects:
        return summary
    try:
        content = FileContent.of(root.read_bytes(plan.name.rejects))
    except MissingError:
        return None
    return replace(summary, reject_file=content)


def write_shard(plan: ShardPlan, job: WriteJob) -> Written:
    """Write a shard, its rejects and, last, its sidecar. The same plan yields the same bytes.

    Raises:
        StorageError: The output cannot be written.
        BuildError: Another build has taken over the output, or this one was published meanwhile.
    """
    return write_records(plan, job)()


def write_records(plan: ShardPlan, job: WriteJob) -> Callable[[], Written]:
    """Write a shard's records until the last image has been asked for.

    Return the function that writes those still under way and puts the shard in place, to be called
    once. If another worker has finished the shard by then, that one stays. Both raise as
    `write_shard`.
    """
    all_begun = threading.Event()
    chunks = make_chunks(plan.references, job, all_begun)  # first: reads of objects start now
    check_owner(job.root, job.fingerprint, unpublished=job.unpublished)
    # A sidecar marks a finished shard, so it goes first. In an unpublished build it may be that of
    # a worker that has just finished this shard; find_finished does not believe an old one.
    if not job.unpublished:
        job.root.remove(plan.name.sidecar)
    attempt = (job.root, plan.name.attempt, plan.digest)
    if job.may_crash and has_died(*attempt):
        # Replaces reads that have begun above: their results are dropped.
        chunks = make_alone(plan.references, job)
    rows = WrittenRows(plan.references, job)
    with _explaining_removal(job), ExitStack() as stack:
        if job.may_crash:
            # Before the sink, so that it is removed after the shard is in place.
            stack.enter_context(noted_attempt(*attempt))
        sink = stack.enter_context(job.root.open_sink(plan.name.shard))
        for chunk in chunks:
            _write(chunk, rows, sink)
            if all_begun.is_set():
                break
        # The open upload and the note go on to the thread that ends the shard.
        return partial(_finish, plan, job, chunks, rows, sink, stack.pop_all())


def _write(chunk: Chunk, rows: WrittenRows, sink: Sink) -> None:
    rows.add(chunk, sink.num_bytes)
    sink.write(chunk.framed.pieces)
    PROGRESS.add(images=len(chunk.rows) + len(chunk.rejects))


def _finish(
    plan: ShardPlan,
    job: WriteJob,
    chunks: Iterator[Chunk],
    rows: WrittenRows,
    sink: Sink,
    opened: ExitStack,
) -> Written:
    """Write the remaining chunks and put the shard in place, unless another worker has done it."""
    with _explaining_removal(job):
        return _finish_own(plan, job, chunks, rows, sink, opened)


@contextmanager
def _explaining_removal(job: WriteJob) -> Iterator[None]:
    """Raise the reason for a failed write if another build or `gc` has taken the folder."""
    try:
        yield
    except StorageError:
        check_owner(job.root, job.fingerprint, unpublished=job.unpublished)
        raise


def _finish_own(
    plan: ShardPlan,
    job: WriteJob,
    chunks: Iterator[Chunk],
    rows: WrittenRows,
    sink: Sink,
    opened: ExitStack,
) -> Written:
    try:
        with opened:
            for chunk in chunks:
                _write(chunk, rows, sink)
            # Inside the sink's block: the block's end puts the shard in place, and an error leaves
            # it as it is.
            _check_unfinished(plan, job)
    except _FinishedElsewhereError as other:
        return other.summary, read_rejects(job.root, plan.name.rejects)
    # Again, because a sidecar replaces that of any other build.
    check_owner(job.root, job.fingerprint, unpublished=job.unpublished)
    table = rows.to_table()
    summary = ShardSummary(
        name=plan.name,
        num_records=table.num_rows,
        num_bytes=sink.num_bytes,
        crc32c=rows.crc32c,
        digest=plan.digest,
        etag=sink.etag,
        rejects=count_reasons(rows.rejects),
        stats=rows.describe(table),
        # Before the sidecar, whose summary counts them: a finished shard has its list.
        reject_file=write_rejects(job.root, plan.name.rejects, rows.rejects),
        signals_file=rows.write_extra(plan.name),
    )
    return write_sidecar(job.root, summary, table), rows.rejects


class _FinishedElsewhereError(Exception):
    """Another worker finished the shard; the runner may have taken this one for lost."""

    def __init__(self, summary: ShardSummary) -> None:
        super().__init__(summary.name.shard)
        self.summary = summary


def _check_unfinished(plan: ShardPlan, job: WriteJob) -> None:
    """Stop a late writer just before it replaces a shard that is finished or published."""
    check_owner(job.root, job.fingerprint, unpublished=job.unpublished)
    found = find_finished(job.root, plan, unpublished=False)
    if found is None:  # then the dataset is not published, either
        return
    if not job.unpublished or RETRYABLE.isdisjoint(found.rejects):
        raise _FinishedElsewhereError(found)
    if job.root.num_bytes_of(naming.MANIFEST) is not None:
        raise BuildError(
            f"the dataset at {job.root} was published meanwhile: {plan.name.shard} stays as it is"
        )


class ShardsInTurn:
    """The shard that a thread is ending, and the next one.

    Args:
        thread: A pool of one thread, which the caller shuts down.
    """

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        # A plan made in this process leaves about 20 MB to Arrow, and images need it more.
        pa.default_memory_pool().release_unused()
        self._thread = thread
        self._ending: list[Future[Written]] = []  # at most one

    def write(self, plan: ShardPlan, job: WriteJob) -> list[Written]:
        """Write a shard; return the one before it, if there is one. Raise as `write_shard`."""
        try:
            finish = write_records(plan, job)
        finally:
            wait(self._ending)  # one at a time, and none goes on after a failed write
        # Submitted before the previous result is taken: if that raises, this shard is finished all
        # the same, so that no open upload is left behind.
        previous, self._ending = self._ending, [self._thread.submit(finish)]
        return [shard.result() for shard in previous]

    def finish(self) -> list[Written]:
        """Return the last shard, if there is one. Raise as `write_shard`."""
        return [shard.result() for shard in self._ending]
