"""`tfdata/order.py`: the graph gives the values of NumPy, and the golden ones."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from shardwright.reader import permutation
from shardwright.reader.order import ShuffledOrder, StoredOrder
from shardwright.tfdata import order as tf_order
from shardwright.tfdata.order import GraphOrder
from tests.support import order_golden as golden
from tests.support.random_tests import examples

MAX = (1 << 64) - 1


def u64(values: Any) -> tf.Tensor:
    return tf.constant(np.array(values, np.uint64))


@cache
def graph_permute() -> Any:
    """Traced once for all sizes, as a graph."""
    spec = tf.TensorSpec([None], tf.uint64)
    return tf.function(tf_order.permute, input_signature=[spec, spec, spec])


def located(
    order: StoredOrder | ShuffledOrder, epoch: int, places: Any, *, as_graph: bool = False
) -> list[tuple[int, int]]:
    def locate(epoch: Any, places: Any) -> Any:
        return GraphOrder(order).table(epoch).locate(places)

    shards, rows = (tf.function(locate) if as_graph else locate)(
        tf.constant(epoch, tf.int64), tf.constant(places, tf.int64)
    )
    return list(zip(shards.numpy().tolist(), rows.numpy().tolist(), strict=True))


@pytest.mark.parametrize(("parts", "key"), golden.KEYS)
def test_golden_keys(parts: tuple[int, ...], key: int) -> None:
    is_int64 = [-(2**63) <= part < 2**63 for part in parts]
    tensors = [
        tf.constant(part, tf.int64) if fits else part
        for part, fits in zip(parts, is_int64, strict=True)
    ]
    assert int(tf_order.derive_key(*parts)) == key
    assert int(tf_order.derive_key(*tensors)) == key


@pytest.mark.parametrize("number", range(len(golden.EPOCHS)))
def test_golden_epochs(number: int) -> None:
    """One is traced, which takes a second, and the others run eagerly."""
    sizes, seed, window, epoch, expected = golden.EPOCHS[number]
    order = ShuffledOrder(np.array(sizes), seed, window)
    assert located(order, epoch, range(sum(sizes)), as_graph=number == 7) == expected


SIZES = st.integers(1, 40) | st.integers(1, 2**63)
TRIPLES = SIZES.flatmap(
    lambda size: st.tuples(st.integers(0, size - 1), st.just(size), st.integers(0, MAX))
)


@given(st.lists(TRIPLES, min_size=1, max_size=20))
def test_permutes_as_numpy_does(triples: list[tuple[int, int, int]]) -> None:
    """Every rank has its own size and key, up to the largest."""
    ranks, sizes, keys = (np.array(column, np.uint64) for column in zip(*triples, strict=True))
    found = graph_permute()(u64(ranks), u64(sizes), u64(keys)).numpy()
    np.testing.assert_array_equal(found, permutation.permute(ranks, sizes, keys))


@examples(12, 250)
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
    wanted = list(zip(shards.tolist(), rows.tolist(), strict=True))
    assert located(order, epoch, places) == wanted


@pytest.mark.parametrize("sizes", [[3, 0, 2], [1], [0, 0, 4, 1, 0]])
def test_stored_order(sizes: list[int]) -> None:
    stored = [(shard, row) for shard, size in enumerate(sizes) for row in range(size)]
    order = StoredOrder(np.array(sizes))
    assert located(order, 5, range(sum(sizes)), as_graph=len(sizes) == 3) == stored


def test_the_table_of_an_epoch_is_that_of_numpy() -> None:
    order = ShuffledOrder(np.array([4, 3, 5, 0, 2]), 0, 2)
    table = GraphOrder(order).table(tf.constant(7, tf.int64))
    assert GraphOrder(order).num_windows == 3
    assert table.window_starts.numpy().tolist() == order.table(7).window_starts.tolist()
    assert table.shards.numpy().tolist() == order.table(7).shards.tolist()
