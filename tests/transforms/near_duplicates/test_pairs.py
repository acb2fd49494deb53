"""Pairs of hashes within a distance, and the groups that they form, equal those by brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shardwright.transforms.near_duplicates import groups
from shardwright.transforms.near_duplicates.groups import Pairs, find_pairs, join_pairs
from tests.support.random_tests import examples

BITS = st.integers(0, (1 << 64) - 1)


@st.composite
def some_hashes(draw: st.DrawFn) -> np.ndarray:
    """Distinct hashes of which many are near: few bits of a few hashes are flipped."""
    centers = draw(st.lists(BITS, min_size=1, max_size=4))
    flips = st.lists(st.integers(0, 63), max_size=10)
    near = draw(st.lists(st.tuples(st.sampled_from(centers), flips), max_size=30))
    values = {*centers}
    for value, places in near:
        for place in places:
            value ^= 1 << place
        values.add(value)
    return np.array(draw(st.permutations(sorted(values))), np.uint64)


def as_set(parts: list[Pairs]) -> set[frozenset[int]]:
    """Return the pairs, each of which must be there once."""
    columns = [[side.tolist() for side in part] for part in parts]
    listed = [frozenset(pair) for sides in columns for pair in zip(*sides, strict=True)]
    assert len(listed) == len(set(listed))
    return set(listed)


def brute_force(hashes: np.ndarray, distance: int) -> set[frozenset[int]]:
    every = itertools.combinations(hashes.tolist(), 2)
    return {frozenset(pair) for pair in every if (pair[0] ^ pair[1]).bit_count() <= distance}


@examples(60)
@given(some_hashes(), st.integers(0, 8), st.booleans())
def test_pairs_are_those_of_brute_force(hashes: np.ndarray, distance: int, divides: bool) -> None:
    """By comparing all, as is fastest for so few, or by tables whose large buckets are divided."""
    with pytest.MonkeyPatch.context() as patch:
        if divides:
            patch.setattr(groups, "LARGE_BUCKET", 2)
            patch.setattr(groups, "_COMPARE_NS", 10**9)  # so that tables always pay
        assert as_set(list(find_pairs(hashes, distance))) == brute_force(hashes, distance)


@pytest.mark.long_but_first
@pytest.mark.parametrize("distance", [1, 3, 8])
@pytest.mark.parametrize("num_bits", [12, 14])
def test_dense_hashes(distance: int, num_bits: int) -> None:
    """All hashes that differ in some bits: every bucket is large, or full."""
    hashes = (np.arange(1 << num_bits, dtype=np.uint64) << np.uint64(20)) | np.uint64(5)
    found = sum(len(left) for left, _ in find_pairs(hashes, distance))
    apart = np.bitwise_count(hashes ^ hashes[0])
    assert found == len(hashes) * np.count_nonzero((apart > 0) & (apart <= distance)) // 2


def groups_of(edges: list[tuple[int, int]]) -> dict[int, int]:
    """Return the least member of each node's component."""
    roots: dict[int, int] = {}
    for left, right in edges:
        low, high = sorted((roots.setdefault(left, left), roots.setdefault(right, right)))
        roots = {node: low if root == high else root for node, root in roots.items()}
    return roots


@examples(60)
@given(st.data(), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=60))
def test_groups_do_not_depend_on_order_or_batches(
    data: st.DataObject, edges: list[tuple[int, int]]
) -> None:
    assume(edges)
    size = data.draw(st.integers(1, 60))
    shuffled = data.draw(st.permutations(edges))
    columns = np.array(shuffled, np.uint64).T
    parts = [
        (columns[0, start : start + size], columns[1, start : start + size])
        for start in range(0, len(edges), size)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "_MAX_WAITING", data.draw(st.sampled_from([0, 10, 1000])))
        hashes, roots = join_pairs(parts)
    assert dict(zip(hashes.tolist(), roots.tolist(), strict=True)) == groups_of(edges)
    again, same = join_pairs([(hashes, roots), parts[0]])
    assert (again.tolist(), same.tolist()) == (hashes.tolist(), roots.tolist())


def test_no_pairs_have_no_groups() -> None:
    hashes, roots = join_pairs([])
    assert (len(hashes), len(roots)) == (0, 0)
    assert list(find_pairs(np.zeros(0, np.uint64), 3)) == []


def test_a_long_chain_in_any_order_is_one_group() -> None:
    links = np.random.default_rng(0).permutation(20_000).astype(np.uint64)
    hashes, roots = join_pairs([(links, links + np.uint64(1))])
    assert (len(hashes), roots.max()) == (20_001, 0)
