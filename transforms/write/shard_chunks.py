"""Make the chunks of a shard, in plan order, in the thread pool of this process.

Tasks that move bytes already in memory are bound by memory and the GIL: a second thread beside the
writer gains nothing (`benchmarks/RESULTS.md`). Tasks that decode pixels release the GIL: one thread
per core. Tasks that wait for a disk or a network mount need many threads. The first two kinds are
known beforehand. The third shows in finished tasks, whose wall time exceeds their CPU time.

After an attempt at a shard died, its records are made one image at a time in a child process: the
image that kills or stops its child is rejected, and the others get the same bytes as ever.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Generic, TypeVar

import pyarrow as pa

from shardwright.errors import MissingError
from shardwright.storage.addresses import is_remote
from shardwright.storage.folder import Folder
from shardwright.storage.reads import results_in_order
from shardwright.transforms.child_process import Death, call_in_child
from shardwright.transforms.images.budget import PIXELS, pixels_for
from shardwright.transforms.references import record_bytes
from shardwright.transforms.rejects import Reject, RejectReason
from shardwright.transforms.write.examples import ExampleEncoder, FramedRecords
from shardwright.transforms.write.image_chunks import chunk_bounds
from shardwright.transforms.write.image_reads import read_ahead
from shardwright.transforms.write.write_job import Chunk, ReadRows, WriteJob

T = TypeVar("T")

MAX_THREADS = 32
_SMOOTHING = 0.3  # the weight of the newest task in the running mean
# A task that shares the GIL with the writer takes up to 1.4 times its own CPU time.
_WAITS_BELOW = 1.5
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
    references = job.maker.places(references)
    ahead = _read_ahead(job.computing_threads, _num_tasks(references, job))
    scale = _SCALE_ALONE if ahead.num_threads == 1 else 1
    tasks = _chunk_tasks(references, job, all_begun or threading.Event(), scale)
    return ahead.run(_begun(tasks))


def _chunk_tasks(
    references: pa.RecordBatch, job: WriteJob, all_begun: threading.Event, scale: int
) -> Iterator[Callable[[], Chunk]]:
    encoder = ExampleEncoder(job.schema)
    entries = _entries_of(references, encoder) if job.maker.encodes_rows else iter(())

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
        read = ReadRows(rows, reads, first_row, known, encoder)
        yield functools.partial(job.maker.make, read, job)
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


def make_alone(references: pa.RecordBatch, job: WriteJob) -> Iterator[Chunk]:
    """Yield a chunk per row, in order. A row whose child dies is rejected as `crashed`."""
    made = call_in_child(
        functools.partial(_make, references, job), references.num_rows, job.image_seconds
    )
    for row, chunk in enumerate(made):
        if isinstance(chunk, Death):
            yield _rejected(references, row, f"decoding or transforming it {chunk.detail}")
        else:
            # The child has made it of one row, so its own number there is 0.
            yield replace(chunk, rows=[row] * len(chunk.rows))


def _make(references: pa.RecordBatch, job: WriteJob, row: int) -> Chunk:
    return next(make_chunks(references.slice(row, 1), job))


def _rejected(references: pa.RecordBatch, row: int, detail: str) -> Chunk:
    image_id, uri = (references.column(name)[row].as_py() for name in ("id", "uri"))
    reject = Reject(image_id, uri, RejectReason.CRASHED, detail)
    return Chunk(FramedRecords([], [], [], [], [], 0), [], [], [], [], [], [reject], Counter())


def has_died(root: Folder, note: str, digest: str) -> bool:
    """Return whether an earlier attempt at images with this digest died, or is still at work."""
    try:
        # Of another plan, the note says nothing about these images.
        return root.read_bytes(note) == digest.encode()
    except MissingError:
        return False


@contextmanager
def noted_attempt(root: Folder, note: str, digest: str) -> Iterator[None]:
    """Note an attempt in OUTPUT, in a file with this name, during the block.

    Any exception removes the note, too: only the death of this process leaves it there.
    """
    # Not synced to disk: it must survive this process, not a power failure.
    root.write_bytes(note, digest.encode(), sync=False)
    try:
        yield
    finally:
        root.remove(note)


class ReadAhead(Generic[T]):
    """A runner of tasks in threads of this process that measures how many threads to use.

    Args:
        computing: Number of threads that tasks can keep busy by computing alone.
        fixed: Run exactly this many tasks at a time, and measure nothing.
        seconds_waited: Returns how long this thread has waited in total for what more threads do
            not shorten, such as memory.
    """

    def __init__(
        self,
        computing: int,
        fixed: int | None = None,
        seconds_waited: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._computing = computing
        self._fixed = fixed
        self._seconds_waited = seconds_waited
        self._wall_per_cpu = 1.0

    @property
    def num_threads(self) -> int:
        """The number of tasks to run at a time, according to the measurements so far."""
        if self._fixed is not None:
            return self._fixed
        return max(
            1, min(MAX_THREADS, int(self._computing * max(1.0, self._wall_per_cpu / _WAITS_BELOW)))
        )

    def run(self, tasks: Iterator[Callable[[], T]]) -> Iterator[T]:
        """Yield results in task order.

        At most `num_threads` tasks run, and with them at most two more wait to run or to be taken.
        """
        queue = _Queue[T](_pool(max(MAX_THREADS, self._fixed or 0)), lambda: self.num_threads)
        begun = (queue.begin(functools.partial(self._timed, task)) for task in tasks)
        return results_in_order(begun, lambda: self.num_threads + 2)

    def _timed(self, task: Callable[[], T]) -> T:
        wall, cpu, waited = time.monotonic(), time.thread_time(), self._seconds_waited()
        result = task()
        # Time that a task waits for memory would look like a slow disk, and more threads would need
        # still more memory.
        wall, waited = time.monotonic() - wall, self._seconds_waited() - waited
        taken = (wall - waited) / max(time.thread_time() - cpu, 1e-6)
        # Without a lock: an update lost between two threads changes a running mean by little.
        self._wall_per_cpu += _SMOOTHING * (taken - self._wall_per_cpu)
        return result


class _Queue(Generic[T]):
    """Tasks that run in order, as many at a time as `most()` says, which may change meanwhile.

    A thread goes on with the next task: it has the memory of the last one at hand.
    """

    def __init__(self, pool: ThreadPoolExecutor, most: Callable[[], int]) -> None:
        self._pool, self._most = pool, most
        self._waiting: deque[tuple[Future[T], Callable[[], T]]] = deque()
        self._threads = 0
        self._lock = threading.Lock()

    def begin(self, task: Callable[[], T]) -> Future[T]:
        """Run a task after those that were begun before."""
        future: Future[T] = Future()
        with self._lock:
            self._waiting.append((future, task))
            # Counted under the lock in which the task is queued: a thread that is about to end
            # takes the task or is counted out.
            starts = self._threads < self._most()
            self._threads += starts
        if starts:
            self._pool.submit(self._run)
        return future

    def _run(self) -> None:
        while (first := self._next()) is not None:
            future, task = first
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(task())
                except BaseException as error:
                    future.set_exception(error)

    def _next(self) -> tuple[Future[T], Callable[[], T]] | None:
        with self._lock:
            # A thread ends by itself if fewer are wanted now.
            if self._waiting and self._threads <= self._most():
                return self._waiting.popleft()
            self._threads -= 1
            return None


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Return one pool per process, shared by all bundles of Beam; threads start on demand."""
    return ThreadPoolExecutor(threads, thread_name_prefix="shardwright-images")
