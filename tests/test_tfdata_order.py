"""`shardwright.load`: which records, and in which order, of parts of splits, of epochs, and shuffled."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import shardwright as sw
from shardwright.index import read_index
from shardwright.reader.order import ShuffledOrder
from shardwright.storage import Folder
from shardwright.trainers.tf_epochs import NUM_NUMBERED, epoch_numbers
from tests.small_datasets import build, write_flat_folder

NUM_IMAGES, NUM_SHARDS = 103, 7


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    """103 records in 7 shards, some of 15 and some of 14."""
    folder = tmp_path_factory.mktemp("order")
    return build(
        write_flat_folder(folder / "in", NUM_IMAGES),
        folder / "out",
        "--shard-count",
        str(NUM_SHARDS),
    )


def stored_ids(dataset: str) -> list[list[str]]:
    """Of each shard, by its index."""
    names = sw.open(dataset).shard_names("train")
    return [read_index(Folder(dataset), name, ["id"])["id"].to_pylist() for name in names]


def ids_of(dataset: tf.data.Dataset) -> list[str]:
    return [
        name.decode() for name in dataset.map(lambda example: example["id"]).as_numpy_iterator()
    ]


def load(dataset: str, split: str = "train", **arguments: Any) -> tf.data.Dataset:
    return sw.load(dataset, split, features=["id"], **arguments)


def epoch_of(dataset: str, epoch: int, *, seed: int, window: int = NUM_SHARDS) -> list[str]:
    """An epoch's ids by the NumPy order, as `sw.Reader` has it."""
    ids = stored_ids(dataset)
    order = ShuffledOrder(np.array([len(shard) for shard in ids]), seed, window)
    shards, rows = order.locate(np.full(order.size, epoch), np.arange(order.size))
    return [ids[shard][row] for shard, row in zip(shards, rows, strict=True)]


@pytest.mark.parametrize(("seed", "window"), [(0, None), (7, 3), (-1, 1), (2**80, 100)])
def test_an_epoch_is_the_readers_exact_order(dataset: str, seed: int, window: int | None) -> None:
    ds = load(dataset, shuffle=True, seed=seed, window=window)

    for epoch in range(3):
        assert ids_of(ds) == epoch_of(dataset, epoch, seed=seed, window=window or NUM_SHARDS)


def test_every_way_to_repeat_goes_on_with_the_next_epoch(dataset: str) -> None:
    expected = [name for epoch in range(3) for name in epoch_of(dataset, epoch, seed=3)]
    arguments: dict[str, Any] = {"shuffle": True, "seed": 3}

    assert ids_of(load(dataset, **arguments, repeat=True).take(3 * NUM_IMAGES)) == expected
    assert ids_of(load(dataset, **arguments).repeat(3)) == expected
    mapped = load(dataset, **arguments).map(lambda example: example).prefetch(1)
    assert [name for _ in range(3) for name in ids_of(mapped)] == expected
    batched = load(dataset, **arguments, repeat=True, batch_size=50).unbatch()
    assert ids_of(batched.take(3 * NUM_IMAGES)) == expected


def test_no_other_seed_has_a_part_in_it(dataset: str) -> None:
    tf.random.set_seed(1)
    first = ids_of(load(dataset, shuffle=True))
    tf.random.set_seed(2)

    assert ids_of(load(dataset, shuffle=True)) == first == epoch_of(dataset, 0, seed=0)


def test_without_a_seed_every_run_has_its_own_orders(dataset: str) -> None:
    one, other = load(dataset, shuffle=True, seed=None), load(dataset, shuffle=True, seed=None)
    epochs = [ids_of(one), ids_of(one), ids_of(other)]

    assert all(sorted(epoch) == sorted(epochs[0]) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


def test_epochs_are_numbered_by_iteration_and_distinct_beyond_the_table() -> None:
    numbers = epoch_numbers()
    again = epoch_numbers().repeat()

    assert [int(next(iter(numbers))) for _ in range(3)] == [0, 1, 2]
    assert [int(number) for number in numbers.repeat(2)] == [3, 4]
    many = np.array([int(number) for number in again.take(NUM_NUMBERED + 50)])
    assert many[:NUM_NUMBERED].tolist() == list(range(NUM_NUMBERED))
    assert len(set(many.tolist())) == NUM_NUMBERED + 50
    assert many[NUM_NUMBERED:].min() >= NUM_NUMBERED
    assert [int(number) for number in epoch_numbers().repeat().skip(NUM_NUMBERED).take(50)] == many[
        NUM_NUMBERED:
    ].tolist()


@pytest.mark.parametrize(
    ("split", "part"),
    [
        ("train[:10%]", slice(0, 10)),
        ("train[10%:]", slice(10, None)),
        ("train[50:]", slice(50, None)),
        ("train[-3:]", slice(-3, None)),
        ("train[20:21]", slice(20, 21)),
        ("train[15:30]", slice(15, 30)),  # one whole shard
        ("train[14:46]", slice(14, 46)),  # two whole ones, and parts around them
        ("train[60:60]", slice(0, 0)),
    ],
)
@pytest.mark.parametrize(
    "arguments", [{}, {"shuffle": True}, {"deterministic": False}, {"keep": "records"}], ids=str
)
def test_parts_of_a_split(dataset: str, split: str, part: slice, arguments: dict[str, Any]) -> None:
    ds = load(dataset, split, **arguments)
    expected = [name for shard in stored_ids(dataset) for name in shard][part]

    ids = ids_of(ds)

    assert ds.cardinality() == len(expected)
    assert sorted(ids) == sorted(expected)
    if arguments in ({}, {"keep": "records"}):
        assert ids == expected


def test_several_parts_come_in_the_order_they_are_named(dataset: str) -> None:
    stored = [name for shard in stored_ids(dataset) for name in shard]

    assert ids_of(load(dataset, "train[90:]+train[5:20]")) == stored[90:] + stored[5:20]


def test_nothing_is_read_but_the_part(dataset: str, tmp_path: Path) -> None:
    """All other records of its shards are damaged."""
    copy = shutil.copytree(dataset, tmp_path / "copy")
    for name in sw.open(dataset).shard_names("train"):
        rows = read_index(Folder(dataset), name, ["offset", "length"])
        content = bytearray((copy / name.shard).read_bytes())
        for offset, length in list(
            zip(rows["offset"].to_pylist(), rows["length"].to_pylist(), strict=True)
        )[:10]:
            content[offset : offset + length] = bytes(length)
        (copy / name.shard).write_bytes(content)

    assert ids_of(load(str(copy), "train[10:15]")) == stored_ids(dataset)[0][10:15]
    assert sorted(ids_of(load(str(copy), "train[10:15]", shuffle=True))) == sorted(
        stored_ids(dataset)[0][10:15]
    )
    with pytest.raises(tf.errors.DataLossError):
        ids_of(load(str(copy), "train[9:15]"))


@pytest.mark.parametrize("shuffle", [False, True])
def test_undetermined_order_loses_nothing(dataset: str, shuffle: bool) -> None:
    ds = load(dataset, shuffle=shuffle, deterministic=False)

    assert sorted(ids_of(ds)) == sorted(epoch_of(dataset, 0, seed=0))
    assert ds.cardinality() == NUM_IMAGES
    assert ds.options().deterministic is False


@pytest.mark.parametrize(
    ("arguments", "length"),
    [
        ({"split": "train[:50%]"}, 52),
        ({"split": "train[:50%]", "batch_size": 10}, 6),
        ({"split": "train[:50%]", "batch_size": 10, "drop_remainder": True}, 5),
        ({"shuffle": True, "batch_size": 10, "drop_remainder": True}, 10),
        ({"keep": "records", "batch_size": 20}, 6),
    ],
    ids=str,
)
def test_knows_its_length_and_has_static_shapes(
    dataset: str, arguments: dict[str, Any], length: int
) -> None:
    ds = load(dataset, **arguments)

    assert len(ds) == length == sum(1 for _ in ds)
    if arguments.get("drop_remainder"):
        assert ds.element_spec["id"].shape == (10,)


@pytest.mark.parametrize(
    "arguments", [{"repeat": True}, {"repeat": True, "shuffle": True}], ids=str
)
def test_what_never_ends_says_so(dataset: str, arguments: dict[str, Any]) -> None:
    assert load(dataset, **arguments).cardinality() == tf.data.INFINITE_CARDINALITY
