"""Compute the record at each position of a reader, some thousands at a time."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardwright.reader.order import I64, Order
from shardwright.reader.permutation import derive_key, derive_keys
from shardwright.reader.selection import Selection

# Array operations have a nearly fixed cost, so a block is far cheaper than its batches one by one.
# But each epoch has a cost, too, so that a block holds few of them.
_LEAST_BLOCK, _MOST_BLOCK = 256, 4096
_BLOCKS_KEPT = 8
_DRAW = 3  # a purpose of keys, in addition to those of `order`


@dataclass(frozen=True, slots=True)
class Places:
    """Records to read.

    Attributes:
        shards: [n], shard numbers.
        rows: [n], rows in the shards' files.
        draws: [n], uint64, the random bits of each image's augmentation.
    """

    shards: I64
    rows: I64
    draws: NDArray[np.uint64]

    def __getitem__(self, part: slice) -> Places:
        return Places(self.shards[part], self.rows[part], self.draws[part])


class PlaceTable:
    """The record at each position. Thread-safe.

    Args:
        order: The order of an epoch.
        selection: Maps an order's rows to rows of the shards' files.
        seed: Seed of the augmentation's draws.
    """

    def __init__(self, order: Order, selection: Selection, seed: int) -> None:
        self.order = order
        self._selection = selection
        self._seed = seed
        # A small dataset has many epochs in a block of 4,096, and each epoch costs a key and a
        # table.
        self._block_size = min(max(_LEAST_BLOCK, order.size), _MOST_BLOCK)
        self._blocks: OrderedDict[int, Places] = OrderedDict()

    def find(self, start: int, count: int) -> Places:
        """Return the records of positions [start, start + count)."""
        parts = []
        while count > 0:
            block, inside = divmod(start, self._block_size)
            part = self._block(block)[inside : inside + count]
            parts.append(part)
            start, count = start + len(part.rows), count - len(part.rows)
        if len(parts) == 1:
            return parts[0]
        return Places(
            *(
                np.concatenate([getattr(part, name) for part in parts] or [np.empty(0, np.int64)])
                for name in Places.__slots__
            )
        )

    def _block(self, number: int) -> Places:
        # Without a lock: two threads may compute the same block, and both results are equal.
        found = self._blocks.get(number)
        if found is None:
            size = self._block_size
            found = self.locate(np.arange(number * size, (number + 1) * size))
            self._blocks[number] = found
            while len(self._blocks) > _BLOCKS_KEPT:
                self._blocks.popitem(last=False)
        return found

    def locate(self, positions: I64) -> Places:
        """Return the records of these positions [n], in any order."""
        epochs, places = np.divmod(positions, self.order.size)
        shards, nths = self.order.locate(epochs, places)
        # By the place, not by the record: a record that is drawn twice in an epoch gets two crops.
        keys = derive_keys(derive_key(self._seed), epochs.astype(np.uint64))
        keys = derive_keys(keys, np.uint64(_DRAW))
        draws = derive_keys(keys, places.astype(np.uint64))
        return Places(shards, self._selection.rows(shards, nths), draws)
