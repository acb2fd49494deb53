"""Compute the order of an epoch: the record at each place, from the shards' sizes.

A shuffled epoch permutes the shards, groups them in windows of `window` shards, and permutes the
records within each window. With all shards in one window, the whole epoch is permuted. Only the
sizes are stored: epoch and place give the record, on every machine, without reading earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shardwright.reader.permutation import derive_key, derive_keys, permute

I64 = NDArray[np.int64]

# Purposes of keys. They are part of the order, which golden tests fix.
SHARD_ORDER, RECORD_ORDER = 1, 2


class Order(Protocol):
    """The record at each place of an epoch."""

    @property
    def size(self) -> int:
        """The number of places in an epoch."""

    def locate(self, epochs: I64, places: I64) -> tuple[I64, I64]:
        """Return (shard, row among its selected records) of each place [n] of its epoch [n]."""

    def windows(self, epoch: int, place: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shards of the window at a place, and those of the epoch's next window."""

    def upcoming(self, epoch: int, place: int) -> Iterator[int]:
        """Yield the shards after that window in order of use, through all coming epochs."""


def starts_of(sizes: I64) -> I64:
    """Return [n + 1]: where each shard begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


@dataclass(frozen=True)
class EpochTable:
    """An epoch's order of shards, and its windows.

    Attributes:
        shards: [shards], in the order of this epoch.
        starts: [shards + 1], where each shard begins among the epoch's places.
        window_starts: [windows + 1], where each window begins.
    """

    shards: I64
    starts: I64
    window_starts: I64


class ShardOrder:
    """The base of orders by windows of whole shards.

    Args:
        sizes: Records of each shard, [shards].
        window: Number of shards that are read together, at least 1.
    """

    def __init__(self, sizes: I64, window: int) -> None:
        self.sizes = sizes
        self.window = window
        self.size = int(sizes.sum())

    def table(self, epoch: int) -> EpochTable:
        """Return the order of shards and the windows of an epoch."""
        raise NotImplementedError

    def windows(self, epoch: int, place: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        table = self.table(epoch)
        window = int(np.searchsorted(table.window_starts, place, side="right")) - 1
        # The next window with records: one of empty shards alone shares its start.
        following = (
            int(np.searchsorted(table.window_starts, table.window_starts[window + 1], side="right"))
            - 1
        )
        return self._shards_of(table, window), self._shards_of(table, following)

    def _shards_of(self, table: EpochTable, window: int) -> tuple[int, ...]:
        return tuple(self._filled(table.shards[window * self.window : (window + 1) * self.window]))

    def _filled(self, shards: I64) -> list[int]:
        found: list[int] = shards[self.sizes[shards] > 0].tolist()  # an empty shard is never read
        return found

    def upcoming(self, epoch: int, place: int) -> Iterator[int]:
        table = self.table(epoch)
        first = int(np.searchsorted(table.window_starts, place, side="right")) * self.window
        yield from self._filled(table.shards[first:])
        for later in count(epoch + 1):
            yield from self._filled(self.table(later).shards)


class StoredOrder(ShardOrder):
    """Stored order, the same in every epoch: shards are read one after another."""

    def __init__(self, sizes: I64) -> None:
        super().__init__(sizes, 1)
        starts = starts_of(sizes)
        self._table = EpochTable(np.arange(len(sizes)), starts, starts)

    def table(self, epoch: int) -> EpochTable:  # noqa: ARG002 - every epoch is the same
        return self._table

    def locate(self, epochs: I64, places: I64) -> tuple[I64, I64]:  # noqa: ARG002
        # An empty shard shares its start with the next one, which `side="right"` finds instead.
        shards = np.searchsorted(self._table.starts, places, side="right") - 1
        return shards, places - self._table.starts[shards]


class ShuffledOrder(ShardOrder):
    """A shuffled order that differs in every epoch, fixed by the seed.

    Args:
        sizes: Records of each shard, [shards].
        seed: Any whole number.
        window: Number of shards shuffled together, at least 1.
    """

    def __init__(self, sizes: I64, seed: int, window: int) -> None:
        super().__init__(sizes, window)
        self.seed = seed
        # Batches made ahead and `upcoming` use a few neighboring epochs at the same time.
        self._tables = lru_cache(maxsize=4)(self._make_table)

    def table(self, epoch: int) -> EpochTable:
        return self._tables(epoch)

    def _make_table(self, epoch: int) -> EpochTable:
        num_shards = len(self.sizes)
        shards = np.arange(num_shards, dtype=np.uint64)
        if self.window < num_shards:  # else one window permutes all records anyway
            key = derive_key(self.seed, epoch, SHARD_ORDER)
            shards = permute(shards, np.uint64(num_shards), np.uint64(key))
        ordered = shards.astype(np.int64)
        starts = starts_of(self.sizes[ordered])
        # The last window has what is left over, and may be smaller.
        ends = np.append(np.arange(0, num_shards, self.window), num_shards)
        return EpochTable(ordered, starts, starts[ends])

    def locate(self, epochs: I64, places: I64) -> tuple[I64, I64]:
        shards, rows = np.empty(len(places), np.int64), np.empty(len(places), np.int64)
        # A block of places spans few epochs, and each of them has a table of its own.
        for epoch in np.unique(epochs):
            chosen = np.flatnonzero(epochs == epoch)
            shards[chosen], rows[chosen] = self._locate_in(int(epoch), places[chosen])
        return shards, rows

    def _locate_in(self, epoch: int, places: I64) -> tuple[I64, I64]:
        table = self.table(epoch)
        windows = np.searchsorted(table.window_starts, places, side="right") - 1
        begins = table.window_starts[windows]
        # A key of its own for each window: with one key, windows of equal sizes would have equal
        # orders.
        keys = derive_keys(derive_key(self.seed, epoch, RECORD_ORDER), windows.astype(np.uint64))
        sizes = (table.window_starts[windows + 1] - begins).astype(np.uint64)
        # A place moves within its window only: a remote reader needs the shards of a window alone.
        ranks = begins + permute((places - begins).astype(np.uint64), sizes, keys).astype(np.int64)
        # As in `StoredOrder`, `side="right"` passes over empty shards, which begin where the next
        # one does.
        slots = np.searchsorted(table.starts, ranks, side="right") - 1
        return table.shards[slots], ranks - table.starts[slots]
