"""The keyed permutation: a bijection for every size, the same numbers forever, and no pattern."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from shardwright.reader.permutation import (
    MIN_BITS,
    ROUNDS,
    derive_key,
    derive_keys,
    mix64_array,
    permute,
)
from shardwright.splitmix import GOLDEN, mix64
from tests.support.order_golden import KEYS, PERMUTED, SMALL_PERMUTATIONS
from tests.support.random_tests import examples

U64 = NDArray[np.uint64]
MASK = (1 << 64) - 1

SIZES = st.one_of(
    st.integers(1, 40),
    st.integers(1, 2**40),
    st.integers(2**40, 2**63),
    st.integers(0, 63).map(lambda bits: 1 << bits),
)
KEY = st.integers(0, MASK)


def u64(values: object) -> U64:
    return np.asarray(values, np.uint64)


def permuted(size: int, key: int | np.uint64) -> NDArray[np.int64]:
    """Return the places of all ranks."""
    places: NDArray[np.int64] = permute(u64(range(size)), u64(size), u64(key)).astype(np.int64)
    return places


def encipher(value: int, bits: int, key: int, *, backwards: bool = False) -> int:
    """Run the network on Python's own integers, forwards or backwards."""
    widths = (bits - bits // 2, bits // 2)  # of the high half and of the low one
    high, low = value >> widths[1], value & ((1 << widths[1]) - 1)
    for number in reversed(range(ROUNDS)) if backwards else range(ROUNDS):
        # In even rounds the half that is mixed is as wide as the high one.
        width = widths[number % 2]
        fixed = high if backwards else low
        mixed = mix64((fixed + key + (number + 1) * GOLDEN) & MASK) & ((1 << width) - 1)
        high, low = (low ^ mixed, high) if backwards else (low, high ^ mixed)
    return (high << widths[1]) | low


def walk(value: int, size: int, key: int, *, backwards: bool = False) -> int:
    bits = max((size - 1).bit_length(), MIN_BITS)
    while (value := encipher(value, bits, key, backwards=backwards)) >= size:
        pass
    return value


def fresh_keys(count: int, purpose: int = 0) -> U64:
    return derive_keys(derive_key(2024, purpose), np.arange(count, dtype=np.uint64))


def excess(counts: NDArray[np.int64]) -> float:
    """Return chi-square of equal counts, in standard deviations above chance."""
    expected = counts.mean()
    freedom = counts.size - 1
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom))


@pytest.mark.parametrize(("state", "output"), [
    (GOLDEN, 0xE220A8397B1DCDAF),
    ((2 * GOLDEN) & MASK, 0x6E789E6AA1B965F4),
    ((1234567 + GOLDEN) & MASK, 6457827717110365317),
])  # fmt: skip
def test_the_published_values_of_splitmix64(state: int, output: int) -> None:
    """The first outputs of its reference code, from the seeds 0 and 1234567."""
    assert mix64(state) == output
    assert mix64_array(u64([state])).tolist() == [output]


@pytest.mark.parametrize(("parts", "key"), KEYS)
def test_golden_keys(parts: tuple[int, ...], key: int) -> None:
    assert derive_key(*parts) == key


@pytest.mark.parametrize(
    ("size", "key", "ranks", "places"),
    PERMUTED + [(size, key, [*range(size)], places) for size, key, places in SMALL_PERMUTATIONS],
)
def test_golden_values(size: int, key: int, ranks: list[int], places: list[int]) -> None:
    assert permute(u64(ranks), u64(size), u64(key)).tolist() == places


@given(st.lists(st.integers(-(2**70), 2**70), max_size=4), st.lists(KEY, min_size=1, max_size=5))
def test_keys_of_arrays_are_the_scalar_ones(parts: list[int], last: list[int]) -> None:
    wanted = [derive_key(*parts, part) for part in last]
    first = derive_key(*parts)
    assert derive_keys(first, u64(last)).tolist() == wanted
    assert derive_keys(np.full(len(last), first, np.uint64), u64(last)).tolist() == wanted
    assert first == derive_key(*(part % 2**64 for part in parts))


def test_keys_differ_by_each_part_and_by_their_order() -> None:
    threes, twos = (itertools.product(range(-3, 4), repeat=count) for count in (3, 2))
    parts = [*threes, *twos, (2**63, 0), (0, 2**63)]
    assert len({derive_key(*given) for given in parts}) == len(parts)


@examples(60)
@given(SIZES, KEY, st.data())
@example(1, 0, None)
@example(2**63, MASK, None)
@example(2**40 + 1, 1, None)
def test_the_inverse_leads_back(size: int, key: int, data: st.DataObject | None) -> None:
    """An inverse for every rank makes a bijection, at sizes that nobody can list."""
    drawn = [] if data is None else data.draw(st.lists(st.integers(0, size - 1), max_size=5))
    ranks = [0, size - 1, size // 2, *drawn]
    given = u64(ranks), u64(size), u64(key)
    with np.errstate(all="raise"):
        places = permute(*given).tolist()
    assert [part.tolist() for part in given] == [ranks, size, key], "arguments stay as they are"
    assert places == [walk(rank, size, key) for rank in ranks]
    assert all(place < size for place in places)
    assert [walk(place, size, key, backwards=True) for place in places] == ranks


@pytest.mark.long_but_first
@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 31, 32, 33, 64, 100, 257])
def test_every_rank_goes_everywhere_equally_often(size: int) -> None:
    """Each place of a rank, and each pair of places of two ranks, over 60,000 keys."""
    keys = fresh_keys(60_000, size)
    first, second = (
        permute(np.full(len(keys), rank, np.uint64), u64(size), keys).astype(np.int64)
        for rank in (0, size - 1)
    )
    assert excess(np.bincount(first, minlength=size)) < 5
    if 2 < size < 34:
        pairs = np.bincount(first * size + second, minlength=size * size).reshape(size, size)
        assert (np.diagonal(pairs) == 0).all()
        assert excess(pairs[~np.eye(size, dtype=bool)]) < 5


@pytest.mark.parametrize("parts", [
    [(seed,) for seed in range(40)],
    [(0, epoch) for epoch in range(40)],
    [(-seed, 1) for seed in range(40)],
])  # fmt: skip
def test_consecutive_seeds_and_epochs_have_nothing_in_common(parts: list[tuple[int, ...]]) -> None:
    size = 4096
    orders = np.stack([np.arange(size), *(permuted(size, derive_key(*given)) for given in parts)])
    correlations = np.corrcoef(orders)[~np.eye(len(orders), dtype=bool)]
    assert np.abs(correlations).max() < 0.08  # 5 standard deviations of 1/64 by chance
    agreements = np.array([(one == two).sum() for one, two in itertools.combinations(orders, 2)])
    assert agreements.max() < 10
    assert abs(agreements.mean() - 1) < 0.2
    # No order is another one, shifted or reversed.
    for one, two in itertools.pairwise(orders):
        assert np.bincount((one - two) % size, minlength=size).max() < 12
        assert np.bincount((one + two) % size, minlength=size).max() < 12
