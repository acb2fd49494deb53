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
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

LARGE_BUCKET = 1024
Pairs = tuple[np.ndarray, np.ndarray]  # the hashes of each pair, uint64 [pairs] each
HASH_BITS = 64

# Nanoseconds on one core: to begin a table, to make and sort one row, and to compare two hashes.
_TABLE_NS, _SORT_NS, _COMPARE_NS = 200_000, 100, 10
_MAX_EXTRA_BANDS = 5
_Move = tuple[int, int, int]  # (shift before, shift after, mask) of consecutive bits


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
        yield from _find_by_comparing(hashes, distance)
        return
    common = hashes[0] & ~np.uint64(varying)
    for table in make_tables(bits, num_bands, distance):
        for left, right in _find_in_table(hashes, table, distance):
            yield left | common, right | common


def _find_by_comparing(hashes: np.ndarray, distance: int) -> Iterator[Pairs]:
    for neighbor in range(1, len(hashes)):
        left, right = hashes[:-neighbor], hashes[neighbor:]
        near = np.bitwise_count(left ^ right) <= distance
        if near.any():
            yield left[near], right[near]


def _find_in_table(hashes: np.ndarray, table: Table, distance: int) -> Iterator[Pairs]:
    """Yield the pairs that are in one bucket of a table, and of no table before it.

    They have only the bits that the table has.
    """
    ordered = _move_bits(hashes, table.moves)
    ordered.sort()
    back = [(after, before, mask) for before, after, mask in table.moves]
    for left, right in _find_in_buckets(ordered, table.rest_bits, distance):
        differences = _move_bits(left ^ right, back)
        first = np.ones(len(differences), bool)
        for kept in table.earlier:
            # A pair that agrees in more bands than needed is in several tables, and must be counted
            # once: an earlier table has it in one bucket if all bits that it keeps are equal.
            first &= differences & np.uint64(kept) != 0
        if first.any():
            yield _move_bits(left[first], back), _move_bits(right[first], back)


def _find_in_buckets(ordered: np.ndarray, rest_bits: int, distance: int) -> Iterator[Pairs]:
    """Yield the pairs of sorted values that are equal but for their lowest `rest_bits`."""
    rest = np.uint64(rest_bits)
    joined = (ordered[1:] ^ ordered[:-1]) >> rest == 0
    for start, stop in _large_buckets(joined):
        # Done by the recursion: comparing a large bucket in full would take the square of its size.
        joined[start : stop - 1] = False
        yield from find_pairs(ordered[start:stop], distance)
    rows = np.flatnonzero(joined)
    for neighbor in range(1, LARGE_BUCKET):
        if not len(rows):
            return
        left, right = ordered[rows], ordered[rows + neighbor]
        near = np.bitwise_count(left ^ right) <= distance
        if near.any():
            yield left[near], right[near]
        kept = int(np.searchsorted(rows, len(ordered) - neighbor - 1))
        rows, left = rows[:kept], left[:kept]
        # Rows whose next neighbor is in another bucket drop out, so each round has fewer.
        rows = rows[(left ^ ordered[rows + neighbor + 1]) >> rest == 0]


def _large_buckets(joined: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield [start, stop) of buckets of more than `LARGE_BUCKET` values.

    Args:
        joined: Whether each value but the last is in one bucket with the next, bool.
    """
    ends = np.flatnonzero(~joined)
    starts = np.append(0, ends + 1)
    stops = np.append(ends + 1, len(joined) + 1)
    for number in np.flatnonzero(stops - starts > LARGE_BUCKET):
        yield int(starts[number]), int(stops[number])


class Table(NamedTuple):
    """An order of the bits: those of the bucket's bands are the highest.

    Attributes:
        moves: The moves of bits from a hash to the order.
        rest_bits: Number of bits that do not belong to the bucket, which are the lowest.
        earlier: The bits of a hash that each table before this one has in its bucket.
    """

    moves: Sequence[_Move]
    rest_bits: int
    earlier: Sequence[int]


def _move_bits(values: np.ndarray, moves: Iterable[_Move]) -> np.ndarray:
    moved = np.zeros_like(values)
    for before, after, mask in moves:
        part = values >> np.uint64(before)
        part &= np.uint64(mask)
        part <<= np.uint64(after)
        moved |= part
    return moved


def make_tables(bits: Sequence[int], num_bands: int, distance: int) -> Iterator[Table]:
    """Yield a table for each choice of all bands but `distance`.

    Args:
        bits: The bits of a hash that may differ, ascending.
        num_bands: The number of bands that they are cut into.
        distance: The largest number of bits in which a pair differs, at least 1.
    """
    cuts = [len(bits) * number // num_bands for number in range(num_bands + 1)]
    bands = [bits[low:high] for low, high in itertools.pairwise(cuts)]
    earlier: list[int] = []
    for chosen in itertools.combinations(range(num_bands), num_bands - distance):
        rest = [number for number in range(num_bands) if number not in chosen]
        order = [bit for number in (*rest, *chosen) for bit in bands[number]]
        rest_bits = sum(len(bands[number]) for number in rest)
        yield Table(_moves_to(order), rest_bits, tuple(earlier))
        earlier.append(sum(1 << bit for bit in order[rest_bits:]))


def _moves_to(order: Sequence[int]) -> list[_Move]:
    """Return the moves that give bits this order, the lowest first; neighbors move together."""
    moves = []
    for _, run in itertools.groupby(enumerate(order), lambda place: place[1] - place[0]):
        (after, before), *others = run
        moves.append((before, after, (2 << len(others)) - 1))
    return moves


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
