"""The keyed permutation: a bijection for every size, the same numbers for ever, and no pattern to be seen in them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
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
from tests.order_golden import KEYS, PERMUTED, SMALL_PERMUTATIONS

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


def encipher(value: int, bits: int, key: int, *, backwards: bool = False) -> int:
    """The network again, in Python's own whole numbers, forwards and backwards."""
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
    """How far counts are from equal ones: chi-square in standard deviations above what chance gives."""
    expected = counts.mean()
    freedom = counts.size - 1
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom))


@pytest.mark.parametrize(
    ("state", "output"),
    [
        (GOLDEN, 0xE220A8397B1DCDAF),
        ((2 * GOLDEN) & MASK, 0x6E789E6AA1B965F4),
        ((1234567 + GOLDEN) & MASK, 6457827717110365317),
    ],
)
def test_the_published_values_of_splitmix64(state: int, output: int) -> None:
    """The first outputs of its reference code, from the seeds 0 and 1234567."""
    assert mix64(state) == output
    assert mix64_array(u64([state])).tolist() == [output]


@pytest.mark.parametrize(("parts", "key"), KEYS)
def test_golden_keys(parts: tuple[int, ...], key: int) -> None:
    assert derive_key(*parts) == key


@pytest.mark.parametrize(("size", "key", "ranks", "places"), PERMUTED)
def test_golden_values(size: int, key: int, ranks: list[int], places: list[int]) -> None:
    assert permute(u64(ranks), u64(size), u64(key)).tolist() == places


@pytest.mark.parametrize(("size", "key", "permutation"), SMALL_PERMUTATIONS)
def test_golden_permutations(size: int, key: int, permutation: list[int]) -> None:
    assert permute(np.arange(size, dtype=np.uint64), u64(size), u64(key)).tolist() == permutation


@given(st.lists(st.integers(-(2**70), 2**70), max_size=4), st.lists(KEY, min_size=1, max_size=5))
def test_keys_of_arrays_are_the_scalar_ones(parts: list[int], last: list[int]) -> None:
    wanted = [derive_key(*parts, part) for part in last]
    assert derive_keys(derive_key(*parts), u64(last)).tolist() == wanted
    assert (
        derive_keys(np.full(len(last), derive_key(*parts), np.uint64), u64(last)).tolist() == wanted
    )
    assert derive_key(*parts) == derive_key(*(part % 2**64 for part in parts))


def test_keys_differ_by_each_part_and_by_their_order() -> None:
    parts = [
        *itertools.product(range(-3, 4), repeat=3),
        *itertools.product(range(-3, 4), repeat=2),
        (2**63, 0),
        (0, 2**63),
    ]
    assert len({derive_key(*given) for given in parts}) == len(parts)


def test_every_size_up_to_300_is_a_bijection() -> None:
    for size in range(1, 301):
        ranks = np.arange(size, dtype=np.uint64)
        for key in (0, 1, MASK, derive_key(size)):
            assert np.array_equal(np.sort(permute(ranks, u64(size), u64(key))), ranks), (size, key)


@pytest.mark.parametrize("size", [1023, 1024, 1025, 65_535, 65_536, 65_537, 99_991, 300_000])
def test_larger_sizes_are_bijections(size: int) -> None:
    places = permute(np.arange(size, dtype=np.uint64), u64(size), u64(derive_key(size)))
    assert np.array_equal(np.sort(places), np.arange(size, dtype=np.uint64))


@settings(max_examples=200, deadline=None)
@given(SIZES, KEY, st.data())
@example(1, 0, None)
@example(2**63, MASK, None)
@example(2**40 + 1, 1, None)
def test_the_inverse_leads_back(size: int, key: int, data: st.DataObject | None) -> None:
    """An inverse for every rank is what makes it a bijection, at sizes that nobody can list."""
    drawn = [] if data is None else data.draw(st.lists(st.integers(0, size - 1), max_size=5))
    ranks = [0, size - 1, size // 2, *drawn]
    places = permute(u64(ranks), u64(size), u64(key)).tolist()
    assert places == [walk(rank, size, key) for rank in ranks]
    assert all(place < size for place in places)
    assert [walk(place, size, key, backwards=True) for place in places] == ranks


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SIZES, KEY, st.floats(0, 1, exclude_max=True)), max_size=20))
def test_sizes_and_keys_of_each_element(given: list[tuple[int, int, float]]) -> None:
    sizes, keys = ([row[column] for row in given] for column in (0, 1))
    ranks = [int(size * fraction) for size, _, fraction in given]
    together = permute(u64(ranks), u64(sizes), u64(keys))
    assert together.dtype == np.uint64
    assert together.shape == (len(given),)
    alone = [
        int(permute(u64([rank]), u64(size), u64(key))[0])
        for rank, size, key in zip(ranks, sizes, keys, strict=True)
    ]
    assert together.tolist() == alone


def test_arguments_are_left_as_they_were_and_nothing_warns() -> None:
    ranks, sizes, keys = u64([5, 6, 7]), u64([10, 100, 2**63]), u64([MASK, MASK, 3])
    before = [array.copy() for array in (ranks, sizes, keys)]
    with np.errstate(all="raise"):
        permute(ranks, sizes, keys)
        permute(ranks, np.uint64(10), np.uint64(MASK))
        derive_keys(MASK, keys)
    assert all(
        np.array_equal(now, then) for now, then in zip((ranks, sizes, keys), before, strict=True)
    )


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 31, 32, 33, 64, 100, 257])
def test_every_rank_goes_everywhere_alike(size: int) -> None:
    """Over 60,000 keys: each place of a rank, and each pair of places of two ranks, as often as the others."""
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


@pytest.mark.parametrize("size", [3, 4, 5])
def test_every_order_of_a_few_is_about_as_likely(size: int) -> None:
    num_orders = math.factorial(size)
    keys = fresh_keys(1000 * num_orders, size)
    places = [permute(np.full(len(keys), rank, np.uint64), u64(size), keys) for rank in range(size)]
    orders, counts = np.unique(np.stack(places), axis=1, return_counts=True)
    assert orders.shape[1] == num_orders
    assert counts.min() > 850
    assert counts.max() < 1150


def test_ranks_and_places_are_not_correlated() -> None:
    """At 10,000 ranks chance alone gives 0.01; so do neighbours' places, and the steps between them."""
    ranks = np.arange(10_000)
    for key in fresh_keys(20):
        places = permute(ranks.astype(np.uint64), u64(10_000), key).astype(np.float64)
        assert abs(np.corrcoef(ranks, places)[0, 1]) < 0.05
        assert abs(np.corrcoef(places[:-1], places[1:])[0, 1]) < 0.05
        steps = np.diff(places)
        assert (np.abs(steps) == 1).sum() < 12  # 2 by chance
        assert len(np.unique(steps)) > 6000
        assert excess(np.histogram2d(ranks, places, bins=10)[0].astype(np.int64).ravel()) < 5


def test_fixed_points_and_cycles_are_those_of_chance() -> None:
    """A random permutation of n has 1 fixed point and ln(n) + 0.58 cycles on the average."""
    size, count = 1000, 400
    ranks = np.arange(size, dtype=np.uint64)
    places = np.stack([permute(ranks, u64(size), key) for key in fresh_keys(count)]).astype(
        np.int64
    )
    fixed = (places == np.arange(size)).sum(axis=1)
    assert abs(fixed.mean() - 1) < 0.25
    assert abs(fixed.var() - 1) < 0.4
    assert abs(np.mean([count_cycles(row) for row in places[:100]]) - (math.log(size) + 0.577)) < 1
    inversions = np.mean(
        [(row[:, None] > row[None, :])[np.triu_indices(size, 1)].mean() for row in places[:20]]
    )
    assert abs(inversions - 0.5) < 0.01


def count_cycles(places: NDArray[np.int64]) -> int:
    seen, cycles = np.zeros(len(places), bool), 0
    for start in range(len(places)):
        cycles += not seen[start]
        while not seen[start]:
            seen[start] = True
            start = places[start]
    return cycles


@pytest.mark.parametrize(
    "parts",
    [
        [(seed,) for seed in range(40)],
        [(0, epoch) for epoch in range(40)],
        [(-seed, 1) for seed in range(40)],
    ],
)
def test_consecutive_seeds_and_epochs_have_nothing_in_common(parts: list[tuple[int, ...]]) -> None:
    size = 4096
    ranks = np.arange(size, dtype=np.uint64)
    orders = np.stack(
        [permute(ranks, u64(size), u64(derive_key(*given))) for given in parts]
    ).astype(np.float64)
    apart = ~np.eye(len(orders), dtype=bool)
    correlations = np.corrcoef(orders)[apart]
    assert np.abs(correlations).max() < 0.08  # 5 of chance's standard deviations of 1/64
    agreements = np.array([(one == two).sum() for one, two in itertools.combinations(orders, 2)])
    assert agreements.max() < 10
    assert abs(agreements.mean() - 1) < 0.2
    # No order is another one that was shifted or turned round.
    for one, two in itertools.pairwise(orders.astype(np.int64)):
        assert np.bincount((one - two) % size, minlength=size).max() < 12
        assert np.bincount((one + two) % size, minlength=size).max() < 12


def test_one_bit_of_the_key_changes_the_whole_order() -> None:
    ranks = np.arange(1000, dtype=np.uint64)
    key = derive_key(7)
    places = permute(ranks, u64(1000), u64(key))
    for bit in range(64):
        other = permute(ranks, u64(1000), u64(key ^ (1 << bit)))
        assert (other == places).sum() < 10, bit
