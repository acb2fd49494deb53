"""Reading many objects at once: a pool of threads, one a process, so that requests in flight are bounded whoever asks.

Threads rather than asyncio: the same work costs the client a third less (the design's measurements). While a thread waits
for the network, or copies and checks what has come, it does not hold Python's lock.
"""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

REQUESTS_IN_FLIGHT = (
    128  # 64 take the same CPU an object, but are bound by waiting from 30 ms a request on
)


def start_read(read: Callable[[], T], in_flight: int = REQUESTS_IN_FLIGHT) -> Future[T]:
    """Run a read in the pool, behind those that were started before."""
    return _pool(in_flight, os.getpid()).submit(read)


def map_reads(
    read: Callable[[T], R], items: Iterable[T], in_flight: int = REQUESTS_IN_FLIGHT
) -> Iterator[R]:
    """`read` of every item, in order, up to twice `in_flight` of them ahead of whoever takes the results."""
    rest = iter(items)
    waiting: deque[Future[R]] = deque()
    try:
        for item in rest:
            waiting.append(start_read(functools.partial(read, item), in_flight))
            if len(waiting) >= 2 * in_flight:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


@functools.cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:  # noqa: ARG001 - a forked process has the pool, and not its threads
    return ThreadPoolExecutor(threads, thread_name_prefix="shardwright-reads")
