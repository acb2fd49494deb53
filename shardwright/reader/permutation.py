"""Permute [0, size) by a key: the record at each place of a shuffled epoch, by arithmetic alone.

A Feistel network over the smallest power of two that holds `size` (as in Black and Rogaway,
"Ciphers with Arbitrary Finite Domains", 2002). Results outside of [0, size) are encrypted again
until they fall inside ("cycle walking": twice on average at worst, more often for sizes below 16).
`splitmix` mixes the halves. All arithmetic is modulo 2**64; golden values in the tests fix it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardwright.splitmix import GOLDEN, MASK_64, MIX_1, MIX_2, mix64

U64 = NDArray[np.uint64]

# Even, so that unequal halves end where they began. Part of every order: never change it.
ROUNDS = 8
MIN_BITS = 5  # with fewer, 8 rounds leave some orders of 5 records twice as likely as others


def derive_key(*parts: int) -> int:
    """Return a 64-bit key of ordered integers modulo 2**64, such as (seed, epoch, purpose)."""
    key = 0
    for part in parts:
        # `mix64(0)` is 0: without the constant, (0,) and (0, 0) would have the same key.
        key = mix64((key + (part & MASK_64) + GOLDEN) & MASK_64)
    return key


def mix64_array(values: U64) -> U64:
    """Apply `mix64` to each value."""
    # NumPy wraps around on overflow in arrays of uint64 without a warning, which is meant here.
    values = (values ^ (values >> np.uint64(30))) * np.uint64(MIX_1)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(MIX_2)
    return values ^ (values >> np.uint64(31))


def derive_keys(key: int | U64, parts: U64 | np.uint64) -> U64:
    """Return `derive_key(*prefix, part)` of each part [n], where `key` is `derive_key(*prefix)`.

    Each of them may have a key of its own: then keys [n] and parts [n] or [].
    """
    return mix64_array(np.asarray(key, np.uint64) + parts + np.uint64(GOLDEN))


def permute(ranks: U64, sizes: U64 | np.uint64, keys: U64 | np.uint64) -> U64:
    """Return where the keyed permutation of [0, size) sends each rank.

    Args:
        ranks: [n], each below its size.
        sizes: [n], or [] for one size; 1 to 2**63.
        keys: [n], or [] for one key.

    Returns:
        [n], each below its size. A bijection for each size and key.
    """
    ranks, sizes, keys = np.broadcast_arrays(ranks, sizes, keys)
    result = ranks.astype(np.uint64)
    bits = _bit_lengths(sizes)
    outside = np.arange(result.size)
    # Ends: the cipher permutes a finite set, so a walk from inside returns to the inside.
    while outside.size:
        # Fewer than half of all values are outside, so each round walks on with at most half of the
        # rest.
        result[outside] = _encipher(result[outside], bits[outside], keys[outside])
        outside = outside[result[outside] >= sizes[outside]]
    return result


def _bit_lengths(sizes: U64) -> U64:
    """Return the number of bits that hold size - 1, at least `MIN_BITS`."""
    bits = np.zeros(sizes.shape, np.uint64)
    # By shifts: `log2` rounds above 2**53.
    rest = sizes - np.uint64(1)
    while rest.any():
        bits += rest > 0
        rest = rest >> np.uint64(1)
    return np.maximum(bits, np.uint64(MIN_BITS))


def _encipher(values: U64, bits: U64, keys: U64) -> U64:
    """Apply one bijection of [0, 2**bits).

    The halves swap after each round, widths too; an even number of rounds swaps them back.
    """
    one = np.uint64(1)
    low_bits = bits >> one
    high_bits = bits - low_bits
    high, low = values >> low_bits, values & ((one << low_bits) - one)
    for number in range(ROUNDS):
        mixed = mix64_array(low + keys + np.uint64(((number + 1) * GOLDEN) & MASK_64))
        high, low = low, high ^ (mixed & ((one << high_bits) - one))
        high_bits, low_bits = low_bits, high_bits
    return (high << low_bits) | low
