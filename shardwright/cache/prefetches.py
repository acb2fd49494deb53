"""Download shards in background threads before they are opened."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from shardwright.format.naming import ShardName
from shardwright.storage.cancellation import cancelable, result_of

_DOWNLOADS_AT_A_TIME = 3  # four requests of 8 MB each: at most 96 MB in memory


class Prefetches:
    """The background downloads of one dataset. Thread-safe.

    Args:
        most_ahead: The initial number of shards to have ahead of their use.
        is_there: Whether a shard is in the cache.

    Attributes:
        healing: Held while a damaged shard is downloaded again.
        most_ahead: That number now: fewer where other processes evict them before they are used.
    """

    def __init__(self, most_ahead: int, is_there: Callable[[ShardName], bool]) -> None:
        self._closed, self._is_there = False, is_there
        self._limit = self.most_ahead = most_ahead
        self.start_anew()
        _all_prefetches.add(self)

    def start_anew(self) -> None:
        """Forget all prefetches: a forked process does not inherit their threads."""
        # New ones: a thread of the parent may have held the old ones at the fork, and the child
        # would wait forever.
        self._lock, self.healing = threading.Lock(), threading.Lock()
        self._canceled = threading.Event()
        self._pool: ThreadPoolExecutor | None = None
        self._coming: dict[ShardName, Future[bool]] = {}

    def begin(self, name: ShardName, download: Callable[[ShardName], bool]) -> None:
        """Download a shard in the background, unless that is in progress."""
        with self._lock:
            coming = self._coming.get(name)
            if self._closed or (coming is not None and not coming.done()):
                return
            if coming is not None and _has_come(coming):
                if not self._is_there(name):
                    del self._coming[name]
                    self._evicted_before_use()
                return
            if self._pool is None:
                self._pool = ThreadPoolExecutor(
                    _DOWNLOADS_AT_A_TIME, thread_name_prefix="shardwright-cache"
                )
            self._coming[name] = self._pool.submit(cancelable, self._canceled, download, name)

    def finish(self, name: ShardName) -> None:
        """Wait for a shard's prefetch and raise its error; cancel it if it has not started."""
        with self._lock:
            coming = self._coming.pop(name, None)
        # Not yet begun, it would wait behind other prefetches: the caller downloads the shard
        # itself, at once.
        if coming is None or coming.cancel() or not result_of(coming):
            return
        if self._is_there(name):
            self.most_ahead = min(self.most_ahead + 1, self._limit)
        else:
            self._evicted_before_use()

    def _evicted_before_use(self) -> None:
        # Each process believes that it has the cache alone until it finds out.
        self.most_ahead = max(self.most_ahead // 2, 1)

    def drop(self) -> None:
        """Forget those that have not begun."""
        with self._lock:
            for coming in self._coming.values():
                coming.cancel()

    def close(self) -> None:
        """Cancel all prefetches, and begin no more."""
        with self._lock:
            self._closed = True
            self._canceled.set()
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)


def _has_come(coming: Future[bool]) -> bool:
    return not coming.cancelled() and coming.exception() is None and coming.result()


_all_prefetches: weakref.WeakSet[Prefetches] = weakref.WeakSet()


def _start_all_anew() -> None:
    for prefetches in list(_all_prefetches):
        prefetches.start_anew()


os.register_at_fork(after_in_child=_start_all_anew)
