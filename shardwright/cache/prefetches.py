"""Download shards in background threads before they are opened."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from shardwright.errors import StorageError
from shardwright.format.naming import ShardName
from shardwright.storage.folder import Folder

_DOWNLOADS_AT_A_TIME = 3  # four requests of 8 MB each: at most 96 MB in memory


class PrefetchCanceledError(StorageError):
    """The process is ending or the cache is closed, so a prefetch is canceled."""


class Prefetches:
    """The background downloads of one dataset. Thread-safe.

    Args:
        root: The dataset.

    Attributes:
        healing: Held while a damaged shard is downloaded again.
    """

    def __init__(self, root: Folder) -> None:
        self._root = root
        self._closed = False
        self.start_anew()
        _all_prefetches.add(self)

    def start_anew(self) -> None:
        """Forget all prefetches: a forked process does not inherit their threads."""
        # New ones: a thread of the parent may have held the old ones at the fork, and the child
        # would wait forever.
        self._lock, self.healing = threading.Lock(), threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._coming: dict[ShardName, Future[None]] = {}

    def begin(self, name: ShardName, download: Callable[[ShardName], None]) -> None:
        """Download a shard in the background, unless that is in progress."""
        with self._lock:
            # One that is done is begun again: the shard may have been evicted since, and if not,
            # that costs a look at its length.
            if self._closed or (name in self._coming and not self._coming[name].done()):
                return
            if self._pool is None:
                self._pool = ThreadPoolExecutor(
                    _DOWNLOADS_AT_A_TIME, thread_name_prefix="shardwright-cache"
                )
            self._coming[name] = self._pool.submit(download, name)

    def finish(self, name: ShardName) -> None:
        """Wait for a shard's prefetch and raise its error; cancel it if it has not started."""
        with self._lock:
            coming = self._coming.pop(name, None)
        # Not yet begun, it would wait behind other prefetches: the caller downloads the shard
        # itself, at once.
        if coming is not None and not coming.cancel():
            coming.result()

    def close(self) -> None:
        """Cancel all prefetches, and begin no more."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    def check_not_canceled(self) -> None:
        """Raise `PrefetchCanceledError` if prefetches must end."""
        # Python waits for pool threads before it exits: a prefetch must not delay that.
        if self._closed or not threading.main_thread().is_alive():
            raise PrefetchCanceledError(f"{self._root}: prefetch canceled")


_all_prefetches: weakref.WeakSet[Prefetches] = weakref.WeakSet()


def _start_all_anew() -> None:
    for prefetches in list(_all_prefetches):
        prefetches.start_anew()


os.register_at_fork(after_in_child=_start_all_anew)
