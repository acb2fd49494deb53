"""Shards in use, which are not evicted."""

from __future__ import annotations

from shardwright.cache.eviction import note_next_use
from shardwright.cache.locks import FileLock


class PinnedShard:
    """A shard that stays in the cache until it is closed or its process ends.

    Attributes:
        path: The local file, complete and checked.
    """

    def __init__(self, path: str, lock: FileLock) -> None:
        self.path = path
        self._lock = lock

    def close(self, *, comes_again_in: float | None = None) -> None:
        """Unpin the shard, so that it may be evicted. Closing it again does nothing.

        Args:
            comes_again_in: Seconds until it is opened again, None if unknown.
        """
        if comes_again_in is not None:
            note_next_use(self.path, comes_again_in)
        self._lock.release()

    def __enter__(self) -> PinnedShard:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
