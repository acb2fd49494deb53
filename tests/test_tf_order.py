"""`trainers/tf_order.py`: the graph gives what NumPy gives, and both the golden values."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.reader import permutation
from shardwright.reader.order import ShuffledOrder, StoredOrder
from shardwright.trainers import tf_order
from shardwright.trainers.tf_order import GraphOrder
from tests import order_golden as golden

MAX = (1 << 64) - 1


def u64(values: Any) -> tf.Tensor:
    return tf.constant(np.array(values, np.uint64))


@cache
def graph_permute() -> Any:
    """Traced once for all sizes, as a graph."""
    spec = tf.TensorSpec([None], tf.uint64)
    return tf.function(tf_order.permute, input_signature=[spec, spec, spec])


def located(
    order: StoredOrder | ShuffledOrder, epoch: int, places: Any, *, as_graph: bool = True
) -> list[tuple[int, int]]:
    locate = GraphOrder(order).locate
    shards, rows = (tf.function(locate) if as_graph else locate)(
        tf.constant(epoch, tf.int64), tf.constant(places, tf.int64)
    )
    return list(zip(shards.numpy().tolist(), rows.numpy().tolist(), strict=True))


@pytest.mark.parametrize(("parts", "key"), golden.KEYS)
def test_golden_keys(parts: tuple[int, ...], key: int) -> None:
    tensors = [
        part if not -(2**63) <= part < 2**63 else tf.constant(part, tf.int64) for part in parts
    ]

    assert int(tf_order.derive_key(*parts)) == key
    assert int(tf_order.derive_key(*tensors)) == key


@pytest.mark.parametrize(("size", "key", "ranks", "expected"), golden.PERMUTED)
def test_golden_permutations(size: int, key: int, ranks: list[int], expected: list[int]) -> None:
    assert tf_order.permute(u64(ranks), u64(size), u64(key)).numpy().tolist() == expected


@pytest.mark.parametrize(("size", "key", "expected"), golden.SMALL_PERMUTATIONS)
def test_golden_small_permutations(size: int, key: int, expected: list[int]) -> None:
    assert tf_order.permute(u64(range(size)), u64(size), u64(key)).numpy().tolist() == expected


@pytest.mark.parametrize(("sizes", "seed", "window", "epoch", "expected"), golden.EPOCHS)
def test_golden_epochs(
    sizes: list[int], seed: int, window: int, epoch: int, expected: list[tuple[int, int]]
) -> None:
    assert (
        located(ShuffledOrder(np.array(sizes), seed, window), epoch, range(sum(sizes))) == expected
    )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_permutes_as_numpy_does(data: st.DataObject) -> None:
    """Every rank with a size and key of its own, up to the largest there may be."""
    sizes = data.draw(st.lists(st.integers(1, 40) | st.integers(1, 2**63), min_size=1, max_size=20))
    ranks = [data.draw(st.integers(0, size - 1)) for size in sizes]
    keys = [data.draw(st.integers(0, MAX)) for _ in sizes]

    expected = permutation.permute(
        np.array(ranks, np.uint64), np.array(sizes, np.uint64), np.array(keys, np.uint64)
    )

    np.testing.assert_array_equal(
        graph_permute()(u64(ranks), u64(sizes), u64(keys)).numpy(), expected
    )


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=12).filter(sum),
    seed=st.integers(-(2**70), 2**70),
    window=st.integers(1, 14),
    epoch=st.integers(0, 2**40),
)
def test_orders_epochs_as_numpy_does(sizes: list[int], seed: int, window: int, epoch: int) -> None:
    order = ShuffledOrder(np.array(sizes), seed, window)
    places = np.random.default_rng(seed % 2**32).permutation(sum(sizes))

    shards, rows = order.locate(np.full(len(places), epoch), places)

    # Tracing each order anew would take a second; the golden ones are traced.
    assert located(order, epoch, places, as_graph=False) == list(
        zip(shards.tolist(), rows.tolist(), strict=True)
    )


@pytest.mark.parametrize("sizes", [[3, 0, 2], [1], [0, 0, 4, 1, 0]])
def test_stored_order(sizes: list[int]) -> None:
    order = StoredOrder(np.array(sizes))

    assert located(order, 5, range(sum(sizes))) == [
        (shard, row) for shard, size in enumerate(sizes) for row in range(size)
    ]


def test_windows_follow_one_another() -> None:
    """What a window holds is told by its starts, so that the shards of one can be at hand while it is read."""
    order = ShuffledOrder(np.array([4, 3, 5, 0, 2]), 0, 2)
    table = GraphOrder(order).table(tf.constant(7, tf.int64))

    assert GraphOrder(order).num_windows == 3
    assert table.window_starts.numpy().tolist() == order.table(7).window_starts.tolist()
    assert table.shards.numpy().tolist() == order.table(7).shards.tolist()
