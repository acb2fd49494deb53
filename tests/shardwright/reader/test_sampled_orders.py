"""Orders that sample: exact shares, groups read in turn, and any place located alone."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from shardwright.errors import UsageError
from shardwright.reader.order import Order, ShuffledOrder, StoredOrder
from shardwright.reader.sampled_orders import ClassOrder, MixedOrder, Shares
from tests.support.order_golden import (
    CLASS_DRAWS,
    MIXED_DRAWS,
    POSITIONS,
    SLOTS,
    Pairs,
)
from tests.support.random_tests import examples

WEIGHT = st.integers(1, 20).map(float) | st.floats(1e-3, 1e3)
LABELS = st.lists(st.integers(-1, 4), min_size=1, max_size=60).filter(
    lambda labels: max(labels) >= 0
)
SEEDS = st.one_of(st.integers(-3, 3), st.integers(-(2**80), 2**80))


def i64(values: Sequence[int] | range) -> NDArray[np.int64]:
    return np.array(values, np.int64)


def cut(total: int, pieces: int) -> NDArray[np.int64]:
    """Return sizes of shards with this total; the second is empty."""
    sizes = [total // pieces] * pieces
    sizes[-1] += total - sum(sizes)
    return i64([sizes[0], 0, *sizes[1:]])


def class_order(
    labels: Sequence[int], weights: dict[int, float], *, seed: int = 0, pieces: int = 3
) -> ClassOrder:
    return ClassOrder(np.array(labels, np.int32), cut(len(labels), pieces), weights, seed)


def drawn(order: Order, start: int, stop: int) -> Pairs:
    """Return the records at these positions of the run."""
    return drawn_at(order, range(start, stop))


def drawn_at(order: Order, positions: Sequence[int]) -> Pairs:
    shards, rows = order.locate(*np.divmod(i64(positions), order.size))
    assert shards.dtype == rows.dtype == np.int64
    return list(zip(shards.tolist(), rows.tolist(), strict=True))


def number(sizes: NDArray[np.int64], records: Pairs) -> list[int]:
    """Return the numbers of records, counted through all shards."""
    starts = np.cumsum(sizes) - sizes
    assert all(0 <= row < sizes[shard] for shard, row in records)
    return [int(starts[shard]) + row for shard, row in records]


@given(st.lists(WEIGHT, min_size=1, max_size=12))
@example([0.7, 0.3])
@example([1.0] * 1000)
@example([1.0, 1e-6])
@example([math.pi, math.e, 1.0])
def test_shares_follow_the_weights(weights: list[float]) -> None:
    slots = Shares.of(weights, 0).slots
    wanted = np.array(weights) / sum(weights)
    assert slots.min() >= 1
    assert (np.abs(slots / slots.sum() - wanted) <= 1.0001e-3 * wanted).all()
    assert np.array_equal(Shares.of([8 * weight for weight in weights], 0).slots, slots)
    assert np.array_equal(Shares.of(weights[::-1], 0).slots, slots[::-1])


@pytest.mark.parametrize(("weights", "slots"), SLOTS)
def test_golden_slots(weights: list[float], slots: list[int]) -> None:
    """Blocks are as short as possible: the shorter, the more even every batch."""
    assert Shares.of(weights, 0).slots.tolist() == slots


def test_weights_too_far_apart() -> None:
    assert Shares.of([1.0, 1e12], 0).slots.tolist() == [1000, 10**15]
    what = r"the weights 1.0 and 1100000000000.0 differ by a factor of more than 10\*\*12: leave"
    with pytest.raises(UsageError, match=what):
        Shares.of([1.0, 1.1e12], 0)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), SEEDS, st.integers(0, 10**12))
def test_each_draw_of_each_group_at_one_place(slots: list[int], seed: int, first: int) -> None:
    """In any block each group has its slots, and its draws are numbered on from the last block."""
    block = sum(slots)
    groups, draws = Shares(i64(slots), seed).assign(np.arange(first * block, (first + 3) * block))
    for group, count in enumerate(slots):
        for nth in range(3):
            inside = slice(nth * block, (nth + 1) * block)
            found = np.sort(draws[inside][groups[inside] == group])
            start = (first + nth) * count
            assert found.tolist() == list(range(start, start + count))


@examples(60)
@given(LABELS, st.lists(st.integers(1, 9), min_size=5, max_size=5), SEEDS, st.data())
def test_classes_in_turn(labels: list[int], weights: Any, seed: int, data: st.DataObject) -> None:
    """Every record of a class is drawn once before one is drawn again."""
    present = sorted({label for label in labels if label >= 0})
    chosen = data.draw(st.lists(st.sampled_from(present), min_size=1, unique=True))
    wanted = {label: float(weights[label]) for label in chosen}
    order = class_order(labels, wanted, seed=seed, pieces=data.draw(st.integers(1, 6)))
    assert order.size == len(labels)
    num_blocks = data.draw(st.integers(1, 5))
    records = number(order.sizes, drawn(order, 0, num_blocks * int(order.shares.slots.sum())))
    counts = Counter(records)
    assert {labels[record] for record in counts} <= set(chosen)
    for slots, label in zip(order.shares.slots.tolist(), sorted(chosen), strict=True):
        members = [record for record, found in enumerate(labels) if found == label]
        full, rest = divmod(num_blocks * slots, len(members))
        often = +Counter({full: len(members) - rest, full + 1: rest})
        assert Counter(counts[record] for record in members) == often


@examples(40)
@given(
    st.lists(st.tuples(st.integers(4, 60), st.integers(1, 9)), min_size=1, max_size=4),
    SEEDS,
    st.integers(1, 3),
    st.booleans(),
)
def test_mixing(parts: Pairs, seed: int, num_blocks: int, shuffle: bool) -> None:
    """Each dataset is read in its own order, one epoch after the other."""
    sizes = [cut(total, 3) for total, _ in parts]
    orders = [
        ShuffledOrder(part, seed + n, 100) if shuffle else StoredOrder(part)
        for n, part in enumerate(sizes)
    ]
    mixed = MixedOrder(orders, sizes, [float(weight) for _, weight in parts], seed)
    assert mixed.size == sum(total for total, _ in parts)
    assert mixed.sizes.tolist() == [size for part in sizes for size in part.tolist()]
    found = drawn(mixed, 0, num_blocks * int(mixed.shares.slots.sum()))
    for group, (order, slots) in enumerate(zip(orders, mixed.shares.slots.tolist(), strict=True)):
        mine = [(shard % 4, row) for shard, row in found if shard // 4 == group]
        assert sorted(mine) == sorted(drawn(order, 0, num_blocks * slots))


def test_a_dataset_without_records_is_not_mixed() -> None:
    sizes = [i64([3]), i64([0, 0])]
    what = "dataset 2 of 2 has no records to read: leave it out"
    with pytest.raises(UsageError, match=what):
        MixedOrder([StoredOrder(part) for part in sizes], sizes, [1.0, 1.0], 0)


def golden_orders() -> list[tuple[Order, Pairs]]:
    found: list[Any] = []
    for labels, class_weights, seed, records in CLASS_DRAWS:
        found.append((class_order(labels, class_weights, seed=seed), records))
    for totals, weights, seed, records in MIXED_DRAWS:
        sizes = [cut(total, 3) for total in totals]
        orders = [ShuffledOrder(part, seed, 2) for part in sizes]
        found.append((MixedOrder(orders, sizes, weights, seed), records))
    return found


@pytest.mark.parametrize(("order", "records"), golden_orders())
def test_golden_draws(order: Order, records: Pairs) -> None:
    assert drawn_at(order, POSITIONS) == records


def sampled_orders(seed: int = 0, weight: float = 1.0) -> list[Any]:
    inner = StoredOrder(i64([3, 0, 4]))
    return [
        class_order([0, 1, 0, 1, 1, 1, -1], {0: 1.0, 1: weight}, seed=seed),
        MixedOrder([inner, inner], [inner.sizes, inner.sizes], [1.0, weight], seed),
    ]


@pytest.mark.parametrize("order", sampled_orders())
def test_any_shard_with_records_may_be_needed(order: Any) -> None:
    filled = np.flatnonzero(order.sizes).tolist()
    assert len(filled) < len(order.sizes)
    for epoch, place in ((0, 0), (3, order.size - 1)):
        assert order.windows(epoch, place) == (tuple(filled), ())
        assert list(itertools.islice(order.upcoming(epoch, place), 2 * len(filled))) == filled * 2
    assert {shard for shard, _ in drawn(order, 0, 500)} <= set(filled)


def test_a_fingerprint_is_of_records_and_weights() -> None:
    """It leaves out the seed, which a state holds itself."""
    one, same, other = (sampled_orders(0), sampled_orders(1), sampled_orders(0, 2.0))
    assert [order.fingerprint for order in one] == [order.fingerprint for order in same]
    assert len({order.fingerprint for order in one + other}) == 4
    swapped = class_order([1, 0, 0, 1, 1, 1, -1], {0: 1.0, 1: 1.0})
    assert swapped.fingerprint != one[0].fingerprint
    assert len(one[0].fingerprint) == 16
