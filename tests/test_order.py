"""The order of an epoch: every record once, in windows of whole shards, the same on every machine."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardwright.reader.order import Order, ShuffledOrder, StoredOrder
from tests.order_golden import EPOCHS, PLACES

Pairs = list[tuple[int, int]]

SHARDS = st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any)
SEEDS = st.one_of(st.integers(-3, 3), st.integers(-(2**80), 2**80))
EPOCH = st.integers(0, 2**31)


def shuffled(sizes: list[int], *, seed: int = 0, window: int = 10**9) -> ShuffledOrder:
    return ShuffledOrder(np.array(sizes, np.int64), seed, window)


def located(order: Order, epochs: list[int], places: list[int]) -> Pairs:
    shards, rows = order.locate(np.array(epochs, np.int64), np.array(places, np.int64))
    assert shards.dtype == rows.dtype == np.int64
    assert shards.shape == rows.shape == (len(places),)
    return list(zip(shards.tolist(), rows.tolist(), strict=True))


def epoch_of(order: Order, epoch: int) -> Pairs:
    return located(order, [epoch] * order.size, list(range(order.size)))


def records_of(sizes: list[int], shards: tuple[int, ...] | None = None) -> Pairs:
    return [
        (shard, row)
        for shard in (range(len(sizes)) if shards is None else shards)
        for row in range(sizes[shard])
    ]


@pytest.mark.parametrize(("sizes", "seed", "window", "epoch", "records"), EPOCHS)
def test_golden_epochs(
    sizes: list[int], seed: int, window: int, epoch: int, records: Pairs
) -> None:
    assert epoch_of(shuffled(sizes, seed=seed, window=window), epoch) == records


@pytest.mark.parametrize(("sizes", "seed", "window", "epochs", "places", "records"), PLACES)
def test_golden_places(
    sizes: list[int], seed: int, window: int, epochs: list[int], places: list[int], records: Pairs
) -> None:
    assert located(shuffled(sizes, seed=seed, window=window), epochs, places) == records


@settings(max_examples=150, deadline=None)
@given(SHARDS, SEEDS, st.integers(1, 14), EPOCH)
@example([0, 0, 1, 0], 0, 1, 0)
@example([1], 0, 1, 0)
@example([5, 5], 0, 2, 0)
@example([0, 9, 0, 0, 0, 9], 0, 2, 0)
def test_every_record_once_an_epoch_and_windows_of_whole_shards(
    sizes: list[int], seed: int, window: int, epoch: int
) -> None:
    """`windows` is what decides which shards are fetched: it must agree with `locate` at every place."""
    order = shuffled(sizes, seed=seed, window=window)
    assert order.size == sum(sizes)
    records = epoch_of(order, epoch)
    assert sorted(records) == records_of(sizes)
    said = [order.windows(epoch, place) for place in range(order.size)]
    runs = [
        (shards, [record for _, record in run])
        for shards, run in itertools.groupby(zip(said, records, strict=True), key=lambda p: p[0])
    ]
    for (this, _), part in runs:
        assert sorted(part) == sorted(records_of(sizes, this))
        assert 1 <= len(this) <= window
        assert all(sizes[shard] for shard in this), "an empty shard is never read"
    assert [following for (_, following), _ in runs] == [*(this for (this, _), _ in runs[1:]), ()]
    assert len(runs) <= -(-len(sizes) // window)
    check_upcoming(order, epoch)


def check_upcoming(order: Order, epoch: int) -> None:
    """From every place: what its window is followed by in this epoch, then each shard of the next epoch as it is needed there."""
    next_epoch = [
        shard
        for shard, _ in itertools.groupby(
            order.windows(epoch + 1, place)[0] for place in range(order.size)
        )
    ]
    for place in range(order.size):
        this, following = order.windows(epoch, place)
        ahead = [order.windows(epoch, later)[0] for later in range(place, order.size)]
        wanted = [shard for window in dict.fromkeys(ahead) if window != this for shard in window]
        wanted += [shard for window in next_epoch for shard in window]
        assert list(itertools.islice(order.upcoming(epoch, place), len(wanted))) == wanted
        assert tuple(wanted[: len(following)]) == following


@settings(max_examples=60, deadline=None)
@given(SHARDS, SEEDS, st.integers(1, 14), st.data())
def test_epochs_and_places_in_any_mixture(
    sizes: list[int], seed: int, window: int, data: st.DataObject
) -> None:
    order = shuffled(sizes, seed=seed, window=window)
    wanted = data.draw(st.lists(st.tuples(EPOCH, st.integers(0, order.size - 1)), max_size=12))
    alone = [located(order, [epoch], [place])[0] for epoch, place in wanted]
    assert located(order, [epoch for epoch, _ in wanted], [place for _, place in wanted]) == alone


@settings(max_examples=60, deadline=None)
@given(SHARDS)
@example([0, 2, 0, 0, 3, 0])
def test_the_stored_order(sizes: list[int]) -> None:
    order = StoredOrder(np.array(sizes, np.int64))
    assert order.size == sum(sizes)
    for epoch in (0, 7):
        assert epoch_of(order, epoch) == records_of(sizes)
        filled = [shard for shard, size in enumerate(sizes) if size]
        after = dict(itertools.pairwise(filled))
        for place, (shard, _) in enumerate(records_of(sizes)):
            assert order.windows(epoch, place) == (
                (shard,),
                (after[shard],) if shard in after else (),
            )
        check_upcoming(order, epoch)
    places = list(range(order.size))[::-1]
    assert located(order, [*range(order.size)], places) == records_of(sizes)[::-1]


def test_what_decides_an_order() -> None:
    sizes = [40, 30, 0, 50]
    base = epoch_of(shuffled(sizes, seed=1, window=2), 3)
    assert epoch_of(shuffled(sizes, seed=1, window=2), 3) == base
    assert epoch_of(shuffled(sizes, seed=1 + 2**64, window=2), 3) == base, (
        "seeds count modulo 2**64"
    )
    others = [
        epoch_of(shuffled(sizes, seed=2, window=2), 3),
        epoch_of(shuffled(sizes, seed=-1, window=2), 3),
        epoch_of(shuffled(sizes, seed=1, window=1), 3),
        epoch_of(shuffled(sizes, seed=1, window=4), 3),
        epoch_of(shuffled(sizes, seed=1, window=2), 4),
        epoch_of(shuffled(sizes, seed=3, window=2), 1),
        epoch_of(StoredOrder(np.array(sizes)), 3),
    ]
    assert all(other != base for other in others)
    assert all(one != two for one, two in itertools.combinations(others, 2))


@pytest.mark.parametrize("window", [4, 5, 1000])
def test_a_window_of_all_shards_is_one_permutation(window: int) -> None:
    order = shuffled([3, 0, 4, 2], window=window)
    assert epoch_of(order, 1) == epoch_of(shuffled([3, 0, 4, 2], window=4), 1)
    assert [order.windows(1, place) for place in range(9)] == [((0, 2, 3), ())] * 9


@pytest.mark.parametrize(
    "order", [shuffled([3, 4, 5], seed=-9, window=2), StoredOrder(np.array([3, 4, 5]))]
)
@pytest.mark.parametrize(
    "clone", [lambda order: pickle.loads(pickle.dumps(order)), copy.copy, copy.deepcopy]
)
def test_orders_travel_to_other_processes(order: Order, clone: object) -> None:
    wanted = epoch_of(order, 5)  # with the epoch's table already made
    copied = clone(order)  # type: ignore[operator]
    assert epoch_of(copied, 5) == wanted
    assert copied.windows(5, 11) == order.windows(5, 11)
    assert len(pickle.dumps(order)) < 1000


def test_shards_come_in_every_order() -> None:
    """With windows of one shard the epoch's first shard is each of five equally often, and shards move independently of each other."""
    order = shuffled([1] * 5, window=1)
    firsts = np.array([order.table(epoch).shards for epoch in range(1000)])
    for place in range(5):
        assert (
            np.abs(np.bincount(firsts[:, place], minlength=5) - 200).max() < 63
        )  # 5 standard deviations
    assert len({tuple(row) for row in firsts.tolist()}) == 120


@pytest.mark.parametrize("window", [1, 3, 10, 20])
def test_a_record_comes_anywhere_in_an_epoch(window: int) -> None:
    """Over 300 epochs, whatever the window: the window decides who a record's neighbours are, never when it comes."""
    order = shuffled([50] * 20, window=window)
    places = np.array(
        [
            [epoch_of(order, epoch).index(record) for record in ((0, 0), (7, 33), (19, 49))]
            for epoch in range(300)
        ]
    )
    quarters = np.stack([np.bincount(column // 250, minlength=4) for column in places.T])
    assert np.abs(quarters - 75).max() < 38  # 5 standard deviations
    assert np.abs(np.corrcoef(places[:-1, 0], places[1:, 0])[0, 1]) < 0.25


def test_neighbours_are_mixed_as_far_as_the_window_goes() -> None:
    """Of 20 equal shards, two records in succession are of one shard as often as 1 in the window's shards."""
    for window, wanted in ((1, 1.0), (2, 0.5), (5, 0.2), (20, 0.05)):
        shards = np.array([shard for shard, _ in epoch_of(shuffled([500] * 20, window=window), 0)])
        assert abs((shards[1:] == shards[:-1]).mean() - wanted) < 0.02


def test_nothing_is_kept_of_the_records() -> None:
    """Ten billion records in 10,000 shards: any place of any epoch, at once, and no place that is not there."""
    order = shuffled([10**6] * 10_000, seed=3, window=16)
    places = [0, 1, 16 * 10**6 - 1, 16 * 10**6, 10**10 - 1]
    records = located(order, [2] * 5, places)
    for place, (shard, row) in zip(places, records, strict=True):
        assert shard in order.windows(2, place)[0]
        assert 0 <= row < 10**6
    with pytest.raises(IndexError):
        order.locate(np.array([0]), np.array([10**10]))
