"""Run tasks ahead of their consumer, in order, with a number of threads that fits their work.

Tasks that move bytes already in memory are bound by memory and the GIL: a second thread beside the
writer gains nothing (`benchmarks/RESULTS.md`). Tasks that decode pixels release the GIL: one thread
per core. Tasks that wait for a disk or a network mount need many threads. The first two kinds are
known beforehand. The third shows in finished tasks, whose wall time exceeds their CPU time.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from shardwright.storage.reads import results_in_order

T = TypeVar("T")

MAX_THREADS = 32
_SMOOTHING = 0.3  # the weight of the newest task in the running mean
# A task that shares the GIL with the writer takes up to 1.4 times its own CPU time.
_WAITS_BELOW = 1.5


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
