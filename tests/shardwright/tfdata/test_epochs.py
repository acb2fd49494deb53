"""`shardwright.load`: the records of parts of splits, and the order of epochs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import shardwright as sw
from shardwright.format.index import read_index
from shardwright.reader.order import ShuffledOrder
from shardwright.storage.folder import Folder
from shardwright.tfdata.epochs import NUM_NUMBERED, epoch_numbers
from tests.support.small_datasets import build, write_flat_folder

NUM_IMAGES, NUM_SHARDS = 103, 7
Ids = list[list[str]]  # of each shard


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    """103 records in 7 shards, some of 15 and some of 14."""
    folder = tmp_path_factory.mktemp("order")
    images = write_flat_folder(folder / "in", NUM_IMAGES)
    return build(images, folder / "out", f"--shard-count={NUM_SHARDS}")


@pytest.fixture(scope="module")
def shards(dataset: str) -> Ids:
    """The ids of each shard, from its index."""
    names = sw.open(dataset).shard_names("train")
    return [read_index(Folder(dataset), name, ["id"])["id"].to_pylist() for name in names]


@pytest.fixture(scope="module")
def stored(shards: Ids) -> list[str]:
    return [name for shard in shards for name in shard]


def ids_of(dataset: tf.data.Dataset) -> list[str]:
    return [example["id"].decode() for example in dataset.as_numpy_iterator()]


def load(dataset: str, split: str = "train", **arguments: Any) -> tf.data.Dataset:
    return sw.load(dataset, split, features=["id"], **arguments)


def epoch_of(shards: Ids, epoch: int, *, seed: int, window: int = NUM_SHARDS) -> list[str]:
    """Return an epoch's ids by the NumPy order, that of `sw.Reader`."""
    order = ShuffledOrder(np.array([len(shard) for shard in shards]), seed, window)
    numbers, rows = order.locate(np.full(order.size, epoch), np.arange(order.size))
    return [shards[number][row] for number, row in zip(numbers, rows, strict=True)]


@pytest.mark.long
@pytest.mark.parametrize(("seed", "window"), [(0, None), (7, 3), (-1, 1), (2**80, 100)])
def test_epochs(dataset: str, shards: Ids, seed: int, window: int | None) -> None:
    """They are in the exact order of `sw.Reader`."""
    ds = load(dataset, shuffle=True, seed=seed, window=window, repeat=True)
    epochs = [epoch_of(shards, n, seed=seed, window=window or NUM_SHARDS) for n in range(2)]
    assert ids_of(ds.take(2 * NUM_IMAGES)) == epochs[0] + epochs[1]


@pytest.mark.long
def test_every_way_to_repeat(dataset: str, shards: Ids) -> None:
    expected = [name for epoch in range(2) for name in epoch_of(shards, epoch, seed=3)]
    arguments: dict[str, Any] = {"shuffle": True, "seed": 3}

    assert ids_of(load(dataset, **arguments, repeat=True).take(2 * NUM_IMAGES)) == expected
    assert ids_of(load(dataset, **arguments).repeat(2)) == expected
    mapped = load(dataset, **arguments).map(lambda example: example).prefetch(1)
    assert [name for _ in range(2) for name in ids_of(mapped)] == expected
    batched = load(dataset, **arguments, repeat=True, batch_size=50).unbatch()
    assert ids_of(batched.take(2 * NUM_IMAGES)) == expected


def test_tensorflows_seed_has_no_effect(dataset: str, shards: Ids) -> None:
    for seed in (1, 2):
        tf.random.set_seed(seed)
        assert ids_of(load(dataset, shuffle=True)) == epoch_of(shards, 0, seed=0)


def test_without_a_seed_every_run_has_its_own_orders(dataset: str) -> None:
    one, other = load(dataset, shuffle=True, seed=None), load(dataset, shuffle=True, seed=None)
    epochs = [ids_of(one), ids_of(one), ids_of(other)]
    assert all(sorted(epoch) == sorted(epochs[0]) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


@pytest.mark.long
def test_epochs_are_numbered_by_iteration_and_distinct_beyond_the_table() -> None:
    numbers, again = epoch_numbers(), epoch_numbers().repeat()
    assert [int(next(iter(numbers))) for _ in range(3)] == [0, 1, 2]
    assert [int(number) for number in numbers.repeat(2)] == [3, 4]
    many = np.array([int(number) for number in again.take(NUM_NUMBERED + 50)])
    assert many[:NUM_NUMBERED].tolist() == list(range(NUM_NUMBERED))
    assert len(set(many.tolist())) == NUM_NUMBERED + 50
    assert many[NUM_NUMBERED:].min() >= NUM_NUMBERED
    late = epoch_numbers().repeat().skip(NUM_NUMBERED).take(50)
    assert [int(number) for number in late] == many[NUM_NUMBERED:].tolist()


PARTS = {
    "train[:10%]": slice(0, 10),
    "train[10%:]": slice(10, None),
    "train[50:]": slice(50, None),
    "train[-3:]": slice(-3, None),
    "train[20:21]": slice(20, 21),
    "train[15:30]": slice(15, 30),  # one whole shard
    "train[14:46]": slice(14, 46),  # two whole ones, and parts around them
    "train[60:60]": slice(0, 0),
}
FEW_PARTS = ("train[14:46]", "train[60:60]")
ORDERS: list[dict[str, Any]] = [{"shuffle": True}, {"deterministic": False}, {"keep": "records"}]


@pytest.mark.long
@pytest.mark.parametrize(
    ("split", "arguments"),
    [(part, {}) for part in PARTS] + [(part, more) for part in FEW_PARTS for more in ORDERS],
    ids=str,
)
def test_parts_of_a_split(dataset: str, stored: list[str], split: str, arguments: Any) -> None:
    ds = load(dataset, split, **arguments)
    expected, ids = stored[PARTS[split]], ids_of(ds)
    assert ds.cardinality() == len(expected)
    assert sorted(ids) == sorted(expected)
    if arguments in ({}, {"keep": "records"}):
        assert ids == expected


def test_several_parts_come_in_the_order_of_the_text(dataset: str, stored: list[str]) -> None:
    assert ids_of(load(dataset, "train[90:]+train[5:20]")) == stored[90:] + stored[5:20]


def test_nothing_is_read_but_the_part(dataset: str, stored: list[str], tmp_path: Path) -> None:
    """The first ten records of each shard are damaged."""
    copy = shutil.copytree(dataset, tmp_path / "copy")
    for name in sw.open(dataset).shard_names("train"):
        end = read_index(Folder(dataset), name, ["offset"])["offset"][10].as_py()
        content = (copy / name.shard).read_bytes()
        (copy / name.shard).write_bytes(bytes(end) + content[end:])

    assert ids_of(load(str(copy), "train[10:15]")) == stored[10:15]
    shuffled = ids_of(load(str(copy), "train[10:15]", shuffle=True))
    assert sorted(shuffled) == sorted(stored[10:15])
    with pytest.raises(tf.errors.DataLossError):
        ids_of(load(str(copy), "train[9:15]"))


@pytest.mark.parametrize("shuffle", [False, True])
def test_nondeterministic_order(dataset: str, stored: list[str], shuffle: bool) -> None:
    ds = load(dataset, shuffle=shuffle, deterministic=False)
    assert sorted(ids_of(ds)) == sorted(stored)
    assert ds.cardinality() == NUM_IMAGES
    assert ds.options().deterministic is False


@pytest.mark.long
@pytest.mark.parametrize(("arguments", "length"), [
    ({"split": "train[:50%]"}, 52),
    ({"split": "train[:50%]", "batch_size": 10}, 6),
    ({"split": "train[:50%]", "batch_size": 10, "drop_remainder": True}, 5),
    ({"shuffle": True, "batch_size": 10, "drop_remainder": True}, 10),
    ({"keep": "records", "batch_size": 20}, 6),
], ids=str)  # fmt: skip
def test_lengths_and_static_shapes(dataset: str, arguments: Any, length: int) -> None:
    ds = load(dataset, **arguments)
    assert len(ds) == length == sum(1 for _ in ds)
    if arguments.get("drop_remainder"):
        assert ds.element_spec["id"].shape == (10,)


@pytest.mark.parametrize("shuffle", [False, True])
def test_endless_datasets_have_infinite_cardinality(dataset: str, shuffle: bool) -> None:
    ds = load(dataset, repeat=True, shuffle=shuffle)
    assert ds.cardinality() == tf.data.INFINITE_CARDINALITY
