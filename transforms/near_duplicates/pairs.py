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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

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


class Band(NamedTuple):
    """Some consecutive bits of a hash: `(hash >> shift) & mask`."""

    shift: int
    mask: int


@dataclass(frozen=True, slots=True)
class Bits:
    """The bits in which some hashes differ.

    Attributes:
        bands: Runs of such bits, the lowest first.
    """

    bands: tuple[Band, ...]

    @classmethod
    def that_vary(cls, hashes: np.ndarray) -> Bits:
        """Return the bits in which hashes, uint64, are not all equal."""
        varying = int(np.bitwise_or.reduce(hashes ^ hashes[0]))
        bands, shift = [], 0
        while varying >> shift:
            if varying >> shift & 1:
                rest = ~(varying >> shift)
                length = (rest & -rest).bit_length() - 1  # up to the next bit that does not vary
                bands.append(Band(shift, (1 << length) - 1))
                shift += length
            else:
                shift += 1
        return cls(tuple(bands))

    @property
    def number(self) -> int:
        return sum(band.mask.bit_length() for band in self.bands)

    def taken_from(self, hashes: np.ndarray) -> np.ndarray:
        """Return these bits of hashes, without the others between them."""
        return _move_bits(hashes, self._moves())

    def put_into(self, taken: np.ndarray, example: np.ndarray) -> np.ndarray:
        """Return the hashes of what `taken_from` returned; `example` is any of them."""
        varying = sum(band.mask << band.shift for band in self.bands)
        moves = ((end, start, mask) for start, end, mask in self._moves())
        return _move_bits(taken, moves) | (example & ~np.uint64(varying))

    def _moves(self) -> Iterator[tuple[int, int, int]]:
        end = 0
        for band in self.bands:
            yield band.shift, end, band.mask
            end += band.mask.bit_length()


@dataclass(frozen=True, slots=True)
class Table:
    """An order of the bands: those of the bucket first.

    Attributes:
        bands: The bands of a hash, the lowest bits first.
        places: Where the table has each band, as the shift of its lowest bit.
        rest_bits: Number of bits that do not belong to the bucket, which are the lowest.
        kept: The bands of the bucket, as bits of a number.
        earlier: The same of all tables before this one.
    """

    bands: tuple[Band, ...]
    places: tuple[int, ...]
    rest_bits: int
    kept: int
    earlier: tuple[int, ...]

    def reorder(self, hashes: np.ndarray) -> np.ndarray:
        """Return hashes, uint64, in the table's order of bits."""
        return _move_bits(
            hashes, zip([band.shift for band in self.bands], self.places, self._masks, strict=True)
        )

    def restore(self, ordered: np.ndarray) -> np.ndarray:
        """Return the hashes of values that `reorder` returned."""
        return _move_bits(
            ordered, zip(self.places, [band.shift for band in self.bands], self._masks, strict=True)
        )

    @property
    def _masks(self) -> Iterable[int]:
        return (band.mask for band in self.bands)

    def finds_first(self, differences: np.ndarray) -> np.ndarray:
        """Return whether no earlier table has a pair in one bucket.

        Args:
            differences: The pair's hashes, XOR, uint64 [pairs].

        Returns:
            bool [pairs].
        """
        equal = np.zeros(len(differences), np.int64)
        for number, band in enumerate(self.bands):
            part = (differences >> np.uint64(band.shift)) & np.uint64(band.mask)
            equal |= (part == 0).astype(np.int64) << number
        first = np.ones(len(differences), bool)
        for kept in self.earlier:
            # An earlier table has the pair in one bucket if all bands that it keeps are equal.
            first &= (equal & kept) != kept
        return first


def _move_bits(values: np.ndarray, moves: Iterable[tuple[int, int, int]]) -> np.ndarray:
    moved = np.zeros_like(values)
    for start, end, mask in moves:
        part = values >> np.uint64(start)
        part &= np.uint64(mask)
        part <<= np.uint64(end)
        moved |= part
    return moved


def make_tables(num_hashes: int, distance: int, num_bits: int = HASH_BITS) -> list[Table]:
    """Return the tables that take the least time for so many hashes.

    More bands make more tables with smaller buckets.

    Args:
        num_hashes: The number of distinct hashes.
        distance: The largest number of bits in which a pair differs, at least 1.
        num_bits: Number of the hashes' lowest bits that may differ, more than `distance`.
    """
    costs = _costs(num_hashes, distance, num_bits)
    num_bands = min(costs, key=costs.__getitem__)
    cuts = [num_bits * number // num_bands for number in range(num_bands + 1)]
    bands = tuple(Band(low, (1 << high - low) - 1) for low, high in itertools.pairwise(cuts))
    tables: list[Table] = []
    for chosen in itertools.combinations(range(num_bands), num_bands - distance):
        tables.append(_table(bands, chosen, tuple(table.kept for table in tables)))
    return tables


def tables_pay(num_hashes: int, distance: int, num_bits: int) -> bool:
    """Return whether tables take less time than to compare all hashes with one another."""
    costs = _costs(num_hashes, distance, num_bits).values()
    return min(costs, default=math.inf) < num_hashes**2 / 2 * _COMPARE_NS


def _costs(num_hashes: int, distance: int, num_bits: int) -> dict[int, float]:
    """Return the nanoseconds by the number of bands."""
    numbers = range(distance + 1, min(distance + _MAX_EXTRA_BANDS, num_bits) + 1)
    return {bands: _cost(num_hashes, distance, num_bits, bands) for bands in numbers}


def _cost(num_hashes: int, distance: int, num_bits: int, num_bands: int) -> float:
    # If hashes were random: real ones crowd, which the division of large buckets makes up for.
    bucket_bits = num_bits * (num_bands - distance) / num_bands
    pairs = num_hashes**2 / 2 / 2**bucket_bits
    table = _TABLE_NS + num_hashes * _SORT_NS + pairs * _COMPARE_NS
    return math.comb(num_bands, distance) * table


def _table(bands: tuple[Band, ...], chosen: tuple[int, ...], earlier: tuple[int, ...]) -> Table:
    rest = [number for number in range(len(bands)) if number not in chosen]
    places, end = [0] * len(bands), 0
    for number in (*rest, *chosen):
        places[number] = end
        end += bands[number].mask.bit_length()
    rest_bits = sum(bands[number].mask.bit_length() for number in rest)
    return Table(bands, tuple(places), rest_bits, sum(1 << number for number in chosen), earlier)
