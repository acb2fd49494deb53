"""Plan downloads of remote shards: how many ahead of use, and when each is used next."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TypeVar

from shardwright.cache.shard_cache import ShardCache
from shardwright.reader.corpus import ShardRef

_SECONDS_PER_SHARD = 1.0  # before the actual pace is known: 150 MB, decoded by two cores
Shard = TypeVar("Shard")


class Pace:
    """The time per shard so far."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._num_shards = 0
        self.seconds_per_shard = _SECONDS_PER_SHARD

    def left(self, num_shards: int) -> None:
        """Count `num_shards` more shards as read."""
        if num_shards:
            self._num_shards += num_shards
            self.seconds_per_shard = (time.monotonic() - self._started) / self._num_shards


def count_shards_ahead(refs: Iterable[ShardRef], at_a_time: int) -> dict[ShardCache, int]:
    """Return the number of shards that each cache downloads ahead of use.

    Args:
        refs: The shards to read, each once; local ones are ignored.
        at_a_time: Number of shards needed at once.

    Raises:
        UsageError: A cache cannot hold `at_a_time` shards.
    """
    by_cache: dict[ShardCache, list[ShardRef]] = {}
    for ref in refs:
        if ref.source.cache is not None:
            by_cache.setdefault(ref.source.cache, []).append(ref)
    return {cache: _count_ahead(cache, found, at_a_time) for cache, found in by_cache.items()}


def _count_ahead(cache: ShardCache, refs: Sequence[ShardRef], at_a_time: int) -> int:
    at_a_time = min(at_a_time, len(refs))
    ahead = cache.shards_ahead([ref.name for ref in refs], at_a_time, "reading")
    num_bytes = [ref.info.num_bytes for ref in refs]
    if sum(num_bytes) <= cache.max_bytes:
        return ahead
    # Shards waiting for their turn take room from those that could stay until the next epoch.
    room = cache.max_bytes // max(num_bytes) - at_a_time
    return min(ahead, max(room // 4, 1))


def first_uses(order: Iterable[Shard], num_shards: int) -> dict[Shard, int]:
    """Return the number of shards used before each shard's first use, in that order.

    Stops as soon as it has found `num_shards` different shards.
    """
    distances: dict[Shard, int] = {}
    for place, shard in enumerate(order):
        distances.setdefault(shard, place)
        if len(distances) == num_shards:
            break
    return distances
