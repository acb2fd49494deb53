"""Find all pairs of hashes that differ in at most a few bits, exactly and in bounded memory.

Equal hashes must be collapsed first. The bits of a hash are cut into bands. Of `distance + k`
bands, two hashes within the distance have at least `k` in common. So there is a table for each
choice of `k` bands: sorted by these bands, the two are in the same bucket. Source: G. S. Manku,
A. Jain, A. Das Sarma, "Detecting near-duplicates for web crawling", WWW 2007, section 3.

A bucket of a table is compared in full, one neighbor after the other for all buckets at once. A
large bucket is divided by the same method on the other bits of its hashes. So a million hashes in
one bucket take seconds; the time grows with the pairs that are found, and memory with the hashes
only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

LARGE_BUCKET = 1024
Pairs = tuple[np.ndarray, np.ndarray]  # the hashes of each pair, uint64 [pairs] each
HASH_BITS = 64

# Nanoseconds on one core: to begin a table, to make and sort one row, and to compare two hashes.
_TABLE_NS, _SORT_NS, _COMPARE_NS = 200_000, 100, 10
_MAX_EXTRA_BANDS = 5


def find_pairs(hashes: np.ndarray, distance: int) -> Iterator[Pairs]:
    """Yield all pairs of hashes that differ in at most `distance` bits, each once.

    Args:
        hashes: Distinct hashes, uint64 [hashes], in any order.
        distance: At least 0.
    """
    if not distance or len(hashes) < 2:
        return
    # Bits that all have in common would make bands that divide nothing.
    varying = int(np.bitwise_or.reduce(hashes ^ hashes[0]))
    bits = [bit for bit in range(HASH_BITS) if varying >> bit & 1]
    num_bands = _choose_bands(len(hashes), distance, len(bits))
    if not num_bands:
        yield from _find_in_runs(hashes, np.ones(len(hashes) - 1, bool), distance)
        return
    earlier: list[np.uint64] = []
    for table in _tables(bits, num_bands, distance):
        for left, right in _find_in_table(hashes, table, distance):
            differences = left ^ right
            first = np.ones(len(differences), bool)
            for other in earlier:
                # A pair that agrees in more bands than needed is in several tables, and must be
                # counted once: an earlier table has it in one bucket if all of its bits are equal.
                first &= differences & other != 0
            if first.any():
                yield left[first], right[first]
        earlier.append(table)


def _tables(bits: Sequence[int], num_bands: int, distance: int) -> Iterator[np.uint64]:
    """Yield the bits that decide the bucket in each table: those of all bands but `distance`."""
    cuts = [len(bits) * number // num_bands for number in range(num_bands + 1)]
    bands = [sum(1 << bit for bit in bits[low:high]) for low, high in itertools.pairwise(cuts)]
    for chosen in itertools.combinations(bands, num_bands - distance):
        yield np.uint64(sum(chosen))


def _find_in_table(hashes: np.ndarray, table: np.uint64, distance: int) -> Iterator[Pairs]:
    """Yield the pairs that are in one bucket of a table."""
    order = np.argsort(hashes & table)
    ordered = hashes[order]
    joined = (ordered[1:] ^ ordered[:-1]) & table == 0
    starts = np.flatnonzero(np.append(True, ~joined))
    sizes = np.diff(starts, append=len(ordered))
    large = sizes > LARGE_BUCKET
    for start, size in zip(starts[large].tolist(), sizes[large].tolist(), strict=True):
        # Done by the recursion: comparing a large bucket in full would take the square of its size.
        joined[start : start + size - 1] = False
        yield from find_pairs(ordered[start : start + size], distance)
    yield from _find_in_runs(ordered, joined, distance)


def _find_in_runs(hashes: np.ndarray, joined: np.ndarray, distance: int) -> Iterator[Pairs]:
    """Yield the pairs that are in one run.

    Args:
        hashes: Hashes, the runs one after another.
        joined: Whether each hash but the last is in one run with the next, bool [hashes - 1].
        distance: The largest number of bits in which a pair differs.
    """
    rows = np.flatnonzero(joined)
    joined = np.append(joined, False)
    for neighbor in itertools.count(1):
        if not len(rows):
            return
        left, right = hashes[rows], hashes[rows + neighbor]
        near = np.bitwise_count(left ^ right) <= distance
        if near.any():
            yield left[near], right[near]
        # Rows whose next neighbor is in another run drop out, so each round has fewer.
        rows = rows[joined[rows + neighbor]]


def _choose_bands(num_hashes: int, distance: int, num_bits: int) -> int:
    """Return the number of bands that takes the least time, 0 to compare all hashes.

    More bands make more tables with smaller buckets.
    """
    costs = {0: num_hashes**2 / 2 * _COMPARE_NS}
    for num_bands in range(distance + 1, min(distance + _MAX_EXTRA_BANDS, num_bits) + 1):
        # If hashes were random: real ones crowd, which the division of large buckets makes up for.
        bucket_bits = num_bits * (num_bands - distance) / num_bands
        pairs = num_hashes**2 / 2 / 2**bucket_bits
        table = _TABLE_NS + num_hashes * _SORT_NS + pairs * _COMPARE_NS
        costs[num_bands] = math.comb(num_bands, distance) * table
    return min(costs, key=costs.__getitem__)
