"""The order of an epoch: every record once, in windows of whole shards, on every machine."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.reader.order import Order, ShuffledOrder, StoredOrder
from tests.support.order_golden import EPOCHS, PLACES, Pairs
from tests.support.random_tests import examples

SHARDS = st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any)
SEEDS = st.one_of(st.integers(-3, 3), st.integers(-(2**80), 2**80))
EPOCH = st.integers(0, 2**31)


def shuffled(sizes: list[int], seed: int = 0, window: int = 10**9) -> ShuffledOrder:
    return ShuffledOrder(np.array(sizes, np.int64), seed, window)


def located(order: Order, epochs: list[int], places: list[int]) -> Pairs:
    shards, rows = order.locate(np.array(epochs, np.int64), np.array(places, np.int64))
    assert shards.dtype == rows.dtype == np.int64
    assert shards.shape == rows.shape == (len(places),)
    return list(zip(shards.tolist(), rows.tolist(), strict=True))


def epoch_of(order: Order, epoch: int) -> Pairs:
    return located(order, [epoch] * order.size, list(range(order.size)))


def records_of(sizes: list[int], shards: tuple[int, ...] | None = None) -> Pairs:
    chosen = range(len(sizes)) if shards is None else shards
    return [(shard, row) for shard in chosen for row in range(sizes[shard])]


@pytest.mark.parametrize(("sizes", "seed", "window", "epoch", "records"), EPOCHS)
def test_golden_epochs(sizes: Any, seed: int, window: int, epoch: int, records: Pairs) -> None:
    assert epoch_of(shuffled(sizes, seed, window), epoch) == records


@pytest.mark.parametrize(("sizes", "seed", "window", "epochs", "at", "to"), PLACES)
def test_golden_places(sizes: Any, seed: int, window: int, epochs: Any, at: Any, to: Pairs) -> None:
    assert located(shuffled(sizes, seed, window), epochs, at) == to


@examples(60)
@given(SHARDS, SEEDS, st.integers(1, 14), EPOCH)
@example([0, 0, 1, 0], 0, 1, 0)
@example([1], 0, 1, 0)
@example([5, 5], 0, 2, 0)
@example([0, 9, 0, 0, 0, 9], 0, 2, 0)
def test_every_record_once(sizes: list[int], seed: int, window: int, epoch: int) -> None:
    """`windows` decides which shards are fetched: it must agree with `locate` at every place."""
    order = shuffled(sizes, seed, window)
    assert order.size == sum(sizes)
    records = epoch_of(order, epoch)
    assert sorted(records) == records_of(sizes)
    said = [order.windows(epoch, place) for place in range(order.size)]
    pairs = itertools.groupby(zip(said, records, strict=True), key=lambda pair: pair[0])
    runs = [(shards, [record for _, record in run]) for shards, run in pairs]
    for (this, _), part in runs:
        assert sorted(part) == sorted(records_of(sizes, this))
        assert 1 <= len(this) <= window
        assert all(sizes[shard] for shard in this), "an empty shard is never read"
    assert [following for (_, following), _ in runs] == [*(this for (this, _), _ in runs[1:]), ()]
    assert len(runs) <= -(-len(sizes) // window)
    check_upcoming(order, epoch)


def check_upcoming(order: Order, epoch: int) -> None:
    """Compare with the later windows of this epoch, then all of the next, from every place."""
    epochs = (epoch, epoch + 1)
    now, later = ([order.windows(one, n)[0] for n in range(order.size)] for one in epochs)
    for place, this in enumerate(now):
        _, following = order.windows(epoch, place)
        windows = [window for window in dict.fromkeys(now[place:]) if window != this]
        wanted = [shard for window in (*windows, *dict.fromkeys(later)) for shard in window]
        assert list(itertools.islice(order.upcoming(epoch, place), len(wanted))) == wanted
        assert tuple(wanted[: len(following)]) == following


@given(SHARDS, SEEDS, st.integers(1, 14), st.data())
def test_any_mixture(sizes: list[int], seed: int, window: int, data: st.DataObject) -> None:
    order = shuffled(sizes, seed, window)
    wanted = data.draw(st.lists(st.tuples(EPOCH, st.integers(0, order.size - 1)), max_size=12))
    alone = [located(order, [epoch], [place])[0] for epoch, place in wanted]
    assert located(order, [epoch for epoch, _ in wanted], [place for _, place in wanted]) == alone


@examples(25)
@given(SHARDS)
@example([0, 2, 0, 0, 3, 0])
def test_the_stored_order(sizes: list[int]) -> None:
    order = StoredOrder(np.array(sizes, np.int64))
    assert order.size == sum(sizes)
    for epoch in (0, 7):
        assert epoch_of(order, epoch) == records_of(sizes)
        filled = [shard for shard, size in enumerate(sizes) if size]
        after = {one: (two,) for one, two in itertools.pairwise(filled)}
        for place, (shard, _) in enumerate(records_of(sizes)):
            assert order.windows(epoch, place) == ((shard,), after.get(shard, ()))
        check_upcoming(order, epoch)
    places = list(range(order.size))[::-1]
    assert located(order, [*range(order.size)], places) == records_of(sizes)[::-1]


def test_seed_window_and_epoch_decide_an_order() -> None:
    """Seeds count modulo 2**64."""
    sizes = [40, 30, 0, 50]
    base = epoch_of(shuffled(sizes, 1, 2), 3)
    assert base == epoch_of(shuffled(sizes, 1, 2), 3) == epoch_of(shuffled(sizes, 1 + 2**64, 2), 3)
    changes = [(2, 2, 3), (-1, 2, 3), (1, 1, 3), (1, 4, 3), (1, 2, 4), (3, 2, 1)]
    orders = [epoch_of(shuffled(sizes, seed, window), epoch) for seed, window, epoch in changes]
    orders += [base, epoch_of(StoredOrder(np.array(sizes)), 3)]
    assert all(one != two for one, two in itertools.combinations(orders, 2))


@pytest.mark.parametrize("window", [4, 5, 1000])
def test_a_window_of_all_shards_is_one_permutation(window: int) -> None:
    order = shuffled([3, 0, 4, 2], window=window)
    assert epoch_of(order, 1) == epoch_of(shuffled([3, 0, 4, 2], window=4), 1)
    assert [order.windows(1, place) for place in range(9)] == [((0, 2, 3), ())] * 9


def test_nothing_is_kept_of_the_records() -> None:
    """Any place of ten billion records in 10,000 shards is located at once."""
    order = shuffled([10**6] * 10_000, seed=3, window=16)
    places = [0, 1, 16 * 10**6 - 1, 16 * 10**6, 10**10 - 1]
    records = located(order, [2] * 5, places)
    for place, (shard, row) in zip(places, records, strict=True):
        assert shard in order.windows(2, place)[0]
        assert 0 <= row < 10**6
    with pytest.raises(IndexError):
        order.locate(np.array([0]), np.array([10**10]))
