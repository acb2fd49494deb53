"""Download shards in background threads before they are opened."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future

from shardwright.format.naming import ShardName
from shardwright.storage.cancellation import CancelablePool, result_of

_DOWNLOADS_AT_A_TIME = 3  # four requests of 8 MB each: at most 96 MB in memory


class Prefetches:
    """The background downloads of one dataset. Thread-safe.

    Attributes:
        healing: Held while a damaged shard is downloaded again.
    """

    def __init__(self) -> None:
        self._closed = False
        self.start_anew()
        _all_prefetches.add(self)

    def start_anew(self) -> None:
        """Forget all prefetches: a forked process does not inherit their threads."""
        # New ones: a thread of the parent may have held the old ones at the fork, and the child
        # would wait forever.
        self._lock, self.healing = threading.Lock(), threading.Lock()
        self._pool: CancelablePool | None = None
        self._coming: dict[ShardName, Future[None]] = {}

    def begin(self, name: ShardName, download: Callable[[ShardName], None]) -> None:
        """Download a shard in the background, unless that is in progress."""
        with self._lock:
            # One that is done is begun again: the shard may have been evicted since, and if not,
            # that costs a look at its length.
            if self._closed or (name in self._coming and not self._coming[name].done()):
                return
            if self._pool is None:
                self._pool = CancelablePool(_DOWNLOADS_AT_A_TIME, "shardwright-cache")
            self._coming[name] = self._pool.submit(download, name)

    def finish(self, name: ShardName) -> None:
        """Wait for a shard's prefetch and raise its error; cancel it if it has not started."""
        with self._lock:
            coming = self._coming.pop(name, None)
        # Not yet begun, it would wait behind other prefetches: the caller downloads the shard
        # itself, at once.
        if coming is not None and not coming.cancel():
            result_of(coming)

    def close(self) -> None:
        """Cancel all prefetches, and begin no more."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


_all_prefetches: weakref.WeakSet[Prefetches] = weakref.WeakSet()


def _start_all_anew() -> None:
    for prefetches in list(_all_prefetches):
        prefetches.start_anew()


os.register_at_fork(after_in_child=_start_all_anew)
