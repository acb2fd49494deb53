"""Find all pairs of hashes that differ in at most a few bits, exactly and in bounded memory.

Equal hashes must be collapsed first. A bucket of a table is compared in full, one neighbor after
the other for all buckets at once. A large bucket is divided by the same method on the other bits of
its hashes. So a million hashes in one bucket take seconds; the time grows with the pairs that are
found, and memory with the hashes only.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shardwright.transforms.near_duplicates.tables import Bits, Table, make_tables, tables_pay

LARGE_BUCKET = 1024
Pairs = tuple[np.ndarray, np.ndarray]  # the hashes of each pair, uint64 [pairs] each


def find_pairs(hashes: np.ndarray, distance: int) -> Iterator[Pairs]:
    """Yield all pairs of hashes that differ in at most `distance` bits, each once.

    Args:
        hashes: Distinct hashes, uint64 [hashes], in any order.
        distance: At least 0.
    """
    if not distance or len(hashes) < 2:
        return
    # Bits that all have in common would make bands that divide nothing.
    varying = Bits.that_vary(hashes)
    if not tables_pay(len(hashes), distance, varying.number):
        yield from _find_by_comparing(hashes, distance)
        return
    narrow = varying.taken_from(hashes)
    for table in make_tables(len(hashes), distance, varying.number):
        for left, right in _find_in_table(narrow, table, distance):
            yield varying.put_into(left, hashes[0]), varying.put_into(right, hashes[0])


def _find_by_comparing(hashes: np.ndarray, distance: int) -> Iterator[Pairs]:
    for neighbor in range(1, len(hashes)):
        left, right = hashes[:-neighbor], hashes[neighbor:]
        near = np.bitwise_count(left ^ right) <= distance
        if near.any():
            yield left[near], right[near]


def _find_in_table(hashes: np.ndarray, table: Table, distance: int) -> Iterator[Pairs]:
    """Yield the pairs that are in one bucket of a table, and of no table before it."""
    ordered = table.reorder(hashes)
    ordered.sort()
    for left, right in _find_in_buckets(ordered, table.rest_bits, distance):
        # A pair that agrees in more bands than needed is in several tables, and must be counted
        # once.
        first = table.finds_first(table.restore(left ^ right))
        if first.any():
            yield table.restore(left[first]), table.restore(right[first])


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
        rows, left = _without_last(rows, left, len(ordered) - neighbor - 1)
        # Rows whose next neighbor is in another bucket drop out, so each round has fewer.
        rows = rows[(left ^ ordered[rows + neighbor + 1]) >> rest == 0]


def _without_last(rows: np.ndarray, left: np.ndarray, stop: int) -> Pairs:
    """Return the ascending rows before `stop`, and their values."""
    kept = int(np.searchsorted(rows, stop))
    return rows[:kept], left[:kept]


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
