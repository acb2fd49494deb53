"""Tasks run ahead of whoever takes their results, in order, by as many threads as pay.

What pays depends on what a task does. One that moves bytes already at hand is bound by memory and by Python's lock: a second
thread beside the one that writes gains nothing (`benchmarks/RESULTS.md`). One that decodes pixels computes without the lock: a
thread a core. One that waits for a disk or a network mount needs neither: many threads. The first two are known beforehand; the
third is seen in finished tasks, which then took much longer than they computed.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_THREADS = 32
_SMOOTHING = 0.3  # the weight of the newest task in the running mean
_WAITS_BELOW = (
    2.0  # a task that shares a core and the lock with one other takes up to twice its own time
)


_idle = threading.local()


def note_idle(seconds: float) -> None:
    """Tells of time in which this thread's task waited for memory: more threads would not make it come sooner."""
    _idle.seconds = getattr(_idle, "seconds", 0.0) + seconds


class ReadAhead(Generic[T]):
    """Runs tasks in the threads of this process, and learns from them how many at a time are worth while.

    Args:
        computing: Threads that tasks can keep busy with computing alone.
        fixed: Run just so many at a time, and learn nothing.
    """

    def __init__(self, computing: int, fixed: int | None = None) -> None:
        self._computing = computing
        self._fixed = fixed
        self._wall_per_cpu = 1.0

    @property
    def num_threads(self) -> int:
        """How many tasks are worth running at a time, as far as it is known."""
        if self._fixed is not None:
            return self._fixed
        return max(
            1, min(MAX_THREADS, int(self._computing * max(1.0, self._wall_per_cpu / _WAITS_BELOW)))
        )

    def run(self, tasks: Iterator[Callable[[], T]]) -> Iterator[T]:
        """Results in task order; up to `num_threads` tasks run, and up to two more wait to be taken."""
        pool = _pool(max(MAX_THREADS, self._fixed or 0))
        waiting: deque[Future[T]] = deque()
        try:
            for task in tasks:
                waiting.append(pool.submit(self._timed, task))
                while len(waiting) > self.num_threads + 1:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def _timed(self, task: Callable[[], T]) -> T:
        wall, cpu, _idle.seconds = time.monotonic(), time.thread_time(), 0.0
        result = task()
        taken = (time.monotonic() - wall - _idle.seconds) / max(time.thread_time() - cpu, 1e-6)
        self._wall_per_cpu += _SMOOTHING * (taken - self._wall_per_cpu)
        return result


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """One pool a process, whatever the number of bundles Beam runs in it at a time; threads start as they are needed."""
    return ThreadPoolExecutor(threads, thread_name_prefix="shardwright-images")
