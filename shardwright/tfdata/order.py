"""Compute an epoch's order in TensorFlow graph code, exactly as `reader/order.py` does in NumPy.

TensorFlow's uint64 wraps around as NumPy's does, so the same arithmetic (`reader/permutation.py`)
gives the same order. Golden values in the tests keep the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from shardwright.reader.order import (
    I64,
    RECORD_ORDER,
    SHARD_ORDER,
    ShuffledOrder,
    StoredOrder,
    starts_of,
)
from shardwright.reader.permutation import MIN_BITS, ROUNDS
from shardwright.splitmix import GOLDEN, MIX_1, MIX_2

Tensor = Any  # tf.Tensor: TensorFlow has no type hints

_MASK = (1 << 64) - 1
_shift_right, _shift_left = tf.bitwise.right_shift, tf.bitwise.left_shift
_and, _or, _xor = tf.bitwise.bitwise_and, tf.bitwise.bitwise_or, tf.bitwise.bitwise_xor


def _u64(value: Any) -> Tensor:
    return (
        tf.constant(value & _MASK, tf.uint64)
        if isinstance(value, int)
        else tf.cast(value, tf.uint64)
    )


def mix64(values: Tensor) -> Tensor:
    """Return splitmix64's output function of each value, uint64 of any shape."""
    values = _xor(values, _shift_right(values, _u64(30))) * _u64(MIX_1)
    values = _xor(values, _shift_right(values, _u64(27))) * _u64(MIX_2)
    return _xor(values, _shift_right(values, _u64(31)))


def derive_key(*parts: Tensor | int) -> Tensor:
    """Return a 64-bit key of integers or tensors; a part with several values gives several keys."""
    key = _u64(0)
    for part in parts:
        key = mix64(key + _u64(part) + _u64(GOLDEN))
    return key


def permute(ranks: Tensor, sizes: Tensor, keys: Tensor) -> Tensor:
    """Permute ranks within [0, size), by the permutation of the key.

    Args:
        ranks: uint64 [n], each below its size.
        sizes: uint64 [n], or [] for a common one; 1 to 2**63.
        keys: uint64 [n], or [] for a common one.

    Returns:
        uint64 [n], each below its size.
    """
    bits = _bit_lengths(sizes)
    # One window has one size and one key: no need to spread and gather them.
    if sizes.shape.rank == 0 and keys.shape.rank == 0:
        return _walk(ranks, sizes, keys, bits)
    spread = tf.zeros_like(ranks)
    return _walk(ranks, sizes + spread, keys + spread, bits + spread)


def _walk(ranks: Tensor, sizes: Tensor, keys: Tensor, bits: Tensor) -> Tensor:
    """Encipher the values, and repeat for those outside [0, size): cycle walking."""

    def part(of: Tensor, at: Tensor) -> Tensor:
        return of if of.shape.rank == 0 else tf.gather(of, at)

    def again(values: Tensor, outside: Tensor) -> tuple[Tensor, Tensor]:
        moved = _encipher(tf.gather(values, outside), part(bits, outside), part(keys, outside))
        values = tf.tensor_scatter_nd_update(values, outside[:, tf.newaxis], moved)
        return values, tf.boolean_mask(outside, moved >= part(sizes, outside))

    shapes = (tf.TensorShape([None]), tf.TensorShape([None]))
    # `outside` holds the numbers of the values to encipher: all at first, then fewer each round.
    everything = tf.range(tf.size(ranks, out_type=tf.int64))
    values, _ = tf.while_loop(
        lambda _, outside: tf.size(outside) > 0, again, (ranks, everything), shape_invariants=shapes
    )
    return values


def _bit_lengths(sizes: Tensor) -> Tensor:
    """Return the number of bits of size - 1, at least `MIN_BITS`."""
    # TensorFlow has no bit length of integers: count the shifts that leave something.
    powers = _shift_right((sizes - _u64(1))[..., tf.newaxis], _u64(tf.range(64)))
    bits = tf.reduce_sum(tf.cast(powers > _u64(0), tf.int64), axis=-1)
    return _u64(tf.maximum(bits, MIN_BITS))


def _encipher(values: Tensor, bits: Tensor, keys: Tensor) -> Tensor:
    # A Feistel network. With an odd number of bits the halves differ by one and swap every round.
    one = _u64(1)
    low_bits = _shift_right(bits, one)
    high_bits = bits - low_bits
    high, low = _shift_right(values, low_bits), _and(values, _shift_left(one, low_bits) - one)
    for number in range(ROUNDS):
        mixed = mix64(low + keys + _u64((number + 1) * GOLDEN))
        high, low = low, _xor(high, _and(mixed, _shift_left(one, high_bits) - one))
        high_bits, low_bits = low_bits, high_bits
    return _or(_shift_left(high, low_bits), low)


@dataclass(frozen=True)
class GraphTable:
    """One epoch's shards in order, and their windows: `reader.order.EpochTable` as int64 tensors.

    Attributes:
        shards: [shards], in the order of this epoch.
        starts: [shards + 1], the first place of each in the epoch.
        window_starts: [windows + 1], the first place of each window.
        window_keys: uint64 [windows], the key of the permutation of each window's records; None
            for stored order.
    """

    shards: Tensor
    starts: Tensor
    window_starts: Tensor
    window_keys: Tensor | None

    def locate(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return (shard, row) of each place, int64 [n]; rows count a shard's selected records."""
        ranks = places if self.window_keys is None else self._shuffle(places, self.window_keys)
        slots = tf.searchsorted(self.starts, ranks, side="right", out_type=tf.int64) - 1
        return tf.gather(self.shards, slots), ranks - tf.gather(self.starts, slots)

    def _shuffle(self, places: Tensor, keys: Tensor) -> Tensor:
        if self.window_starts.shape[0] == 2:  # one window: a common size and key
            return tf.cast(permute(_u64(places), _u64(self.window_starts[1]), keys[0]), tf.int64)
        windows = tf.searchsorted(self.window_starts, places, side="right", out_type=tf.int64) - 1
        begins = tf.gather(self.window_starts, windows)
        sizes = tf.gather(self.window_starts, windows + 1) - begins
        ranks = permute(_u64(places - begins), _u64(sizes), tf.gather(keys, windows))
        return begins + tf.cast(ranks, tf.int64)


class GraphOrder:
    """An order as graph code.

    Args:
        order: The same order in NumPy.
    """

    def __init__(self, order: StoredOrder | ShuffledOrder) -> None:
        self.order = order
        self._sizes: I64 = np.asarray(order.sizes, np.int64)

    @property
    def size(self) -> int:
        """The number of places in an epoch."""
        return self.order.size

    @property
    def num_windows(self) -> int:
        """The number of groups of shards that are shuffled together; 1 in stored order."""
        if isinstance(self.order, StoredOrder):
            return 1
        return max(1, -(-len(self._sizes) // self.order.window))

    def table(self, epoch: Tensor) -> GraphTable:
        """Return the shards and windows of an epoch, int64 []."""
        count = len(self._sizes)
        if isinstance(self.order, StoredOrder):
            starts = tf.constant(starts_of(self._sizes))
            return GraphTable(
                tf.range(count, dtype=tf.int64), starts, tf.constant([0, self.size], tf.int64), None
            )
        shards = (
            self._shuffle_shards(epoch, self.order.seed)
            if self.order.window < count
            else tf.range(count, dtype=tf.int64)
        )
        starts = tf.concat(
            [[tf.constant(0, tf.int64)], tf.cumsum(tf.gather(tf.constant(self._sizes), shards))],
            axis=0,
        )
        ends = np.append(np.arange(0, count, self.order.window), count)
        keys = derive_key(
            self.order.seed, epoch, RECORD_ORDER, tf.range(self.num_windows, dtype=tf.int64)
        )
        return GraphTable(
            shards, tf.ensure_shape(starts, [count + 1]), tf.gather(starts, tf.constant(ends)), keys
        )

    def _shuffle_shards(self, epoch: Tensor, seed: int) -> Tensor:
        ranks = _u64(tf.range(len(self._sizes)))
        shards = permute(ranks, _u64(len(self._sizes)), derive_key(seed, epoch, SHARD_ORDER))
        return tf.cast(tf.ensure_shape(shards, [len(self._sizes)]), tf.int64)
