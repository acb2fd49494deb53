"""A keyed permutation of [0, size): which record stands at which place of a shuffled epoch, by arithmetic alone.

A Feistel network over the smallest power of two that holds `size` (as in Black and Rogaway, "Ciphers with Arbitrary Finite
Domains", 2002): results outside are sent through again until they fall inside ("cycle walking", twice on average at the worst,
below 16 more often). The halves are mixed by `splitmix`. All of it is arithmetic modulo 2**64, so that
`trainers/tf_order.py` can do the same in a TensorFlow graph; golden values in the tests hold the two together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardwright.splitmix import GOLDEN, MASK_64, MIX_1, MIX_2, mix64

U64 = NDArray[np.uint64]

ROUNDS = 8
MIN_BITS = 5  # with fewer, 8 rounds leave some orders of 5 records twice as likely as others


def derive_key(*parts: int) -> int:
    """A 64-bit key of whole numbers such as (seed, epoch, purpose), each taken modulo 2**64; their order counts."""
    key = 0
    for part in parts:
        key = mix64((key + (part & MASK_64) + GOLDEN) & MASK_64)
    return key


def mix64_array(values: U64) -> U64:
    """`mix64` of each."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(MIX_1)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(MIX_2)
    return values ^ (values >> np.uint64(31))


def derive_keys(key: int | U64, parts: U64) -> U64:
    """`derive_key(*key's own parts, part)` of each part, given the `derive_key` of those before it: array [n]."""
    return mix64_array(np.asarray(key, np.uint64) + parts + np.uint64(GOLDEN))


def permute(ranks: U64, sizes: U64 | np.uint64, keys: U64 | np.uint64) -> U64:
    """Where each rank goes under the permutation of [0, size) that its key names.

    Args:
        ranks: [n], each below its size.
        sizes: [n], or [] for one of all; 1 to 2**63.
        keys: [n], or [] for one of all.

    Returns:
        [n], each below its size. For one size and key it is a bijection.
    """
    ranks, sizes, keys = np.broadcast_arrays(ranks, sizes, keys)
    result = ranks.astype(np.uint64)
    bits = _bit_lengths(sizes)
    outside = np.arange(result.size)
    while outside.size:
        result[outside] = _encipher(result[outside], bits[outside], keys[outside])
        outside = outside[result[outside] >= sizes[outside]]
    return result


def _bit_lengths(sizes: U64) -> U64:
    """How many bits hold size - 1, at least `MIN_BITS`."""
    bits = np.zeros(sizes.shape, np.uint64)
    rest = sizes - np.uint64(1)
    while rest.any():
        bits += rest > 0
        rest = rest >> np.uint64(1)
    return np.maximum(bits, np.uint64(MIN_BITS))


def _encipher(values: U64, bits: U64, keys: U64) -> U64:
    """One bijection of [0, 2**bits). The halves swap after each round, widths and all; an even number of rounds swaps them back."""
    one = np.uint64(1)
    low_bits = bits >> one
    high_bits = bits - low_bits
    high, low = values >> low_bits, values & ((one << low_bits) - one)
    for number in range(ROUNDS):
        mixed = mix64_array(low + keys + np.uint64(((number + 1) * GOLDEN) & MASK_64))
        high, low = low, high ^ (mixed & ((one << high_bits) - one))
        high_bits, low_bits = low_bits, high_bits
    return (high << low_bits) | low
