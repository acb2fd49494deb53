"""`Reader.tf_data()` under the surface: threads, copies, references, faults, and the end of a process."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import shardwright as sw
from shardwright.index import read_index
from shardwright.naming import ShardName
from tests.damage import first_shard
from tests.readers import ids_of, take
from tests.small_datasets import Datasets

SHUFFLED: dict[str, Any] = {
    "global_batch_size": 4,
    "shuffle": True,
    "seed": 3,
    "features": ["image", "id"],
}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Datasets:
    return Datasets(tmp_path_factory)


def tensor_ids(batches: tf.data.Dataset) -> list[str]:
    return [name.decode() for batch in batches.as_numpy_iterator() for name in batch["id"]]


def test_an_iterator_needs_no_other_reference(datasets: Datasets) -> None:
    """Also of datasets made from it, and distributed."""
    expected = tensor_ids(sw.Reader(datasets["mixed"], "all", **SHUFFLED).tf_data().take(3))
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    iterators = [
        iter(sw.Reader(datasets["mixed"], "all", **SHUFFLED).tf_data()),
        iter(
            sw.Reader(datasets["mixed"], "all", **SHUFFLED)
            .tf_data()
            .map(lambda batch: batch)
            .prefetch(2)
        ),
        iter(
            strategy.experimental_distribute_dataset(
                sw.Reader(datasets["mixed"], "all", **SHUFFLED).tf_data()
            )
        ),
    ]
    gc.collect()
    for iterator in iterators:
        assert [
            name.decode() for _ in range(3) for name in next(iterator)["id"].numpy()
        ] == expected


def test_what_is_let_go_is_freed(datasets: Datasets) -> None:
    """TensorFlow keeps the functions it calls: the reader, its threads and batches must not stay with them."""
    reader = sw.Reader(datasets["mixed"], "all", **SHUFFLED)
    dataset = reader.tf_data()
    iterator = iter(dataset.prefetch(1))
    next(iterator)
    alive = weakref.ref(reader)
    del reader, dataset, iterator
    gc.collect()
    assert alive() is None


def test_batches_are_made_ahead_by_the_readers_threads(datasets: Datasets) -> None:
    reader = sw.Reader(
        datasets["mixed"], "all", global_batch_size=4, shuffle=True, prefetch=3, features=["label"]
    )
    begun, begin = [], reader.engine.begin

    def remember(step: Any) -> Any:
        begun.append(step.position)
        return begin(step)

    reader.engine.begin = remember  # type: ignore[method-assign]
    iterator = iter(reader.tf_data())
    assert begun == []
    next(iterator)
    assert begun == [0, 4, 8, 12, 16], (
        "the one that was given, and those the plain reader would have begun"
    )
    next(iterator)
    assert begun == [0, 4, 8, 12, 16, 21]


def test_images_reach_tensorflow_without_a_copy(datasets: Datasets) -> None:
    made: list[int] = []
    reader = sw.Reader(
        datasets["mixed"], global_batch_size=4, image=sw.EvalImage(64), features=["image"]
    )
    finish = reader.engine.finish

    def remember(pending: Any) -> Any:
        batch, bad = finish(pending)
        made.append(batch["image"].ctypes.data)
        return batch, bad

    reader.engine.finish = remember  # type: ignore[method-assign]
    tensor = next(iter(reader.tf_data()))["image"]
    assert np.asarray(memoryview(tensor)).ctypes.data in made


def test_a_waiting_reader_leaves_tensorflow_its_threads(datasets: Datasets) -> None:
    """While all calls wait for batches, functions with parallel parts still run: a training step would stand still for ever."""
    reader = sw.Reader(
        datasets["mixed"], global_batch_size=2, prefetch=8, threads=1, features=["label"]
    )
    go_on = threading.Event()
    begin = reader.engine.begin

    def wait_first(step: Any) -> Any:
        go_on.wait(60)
        return begin(step)

    reader.engine.begin = wait_first  # type: ignore[method-assign]
    iterator = iter(reader.tf_data())
    first = threading.Thread(target=next, args=(iterator,), daemon=True)
    first.start()

    @tf.function
    def step(values: tf.Tensor) -> tf.Tensor:
        return tf.map_fn(
            lambda value: tf.numpy_function(lambda number: number + 1, [value], tf.int64),
            values,
            parallel_iterations=4,
        )

    try:
        assert step(tf.range(20, dtype=tf.int64)).numpy().tolist() == list(range(1, 21))
    finally:
        go_on.set()
        first.join(60)
    assert not first.is_alive()


@pytest.fixture
def damaged(dataset: Path) -> tuple[Path, ShardName]:
    """A dataset whose first shard has one byte of its fifth record's image changed."""
    name = first_shard(dataset)
    row = read_index(sw.open(str(dataset)).root, name).to_pylist()[4]
    data = bytearray((dataset / name.shard).read_bytes())
    data[row["image_offset"] + 20] ^= 0x10
    (dataset / name.shard).write_bytes(data)
    return dataset, name


def test_a_bad_record_raises_with_its_place(damaged: tuple[Path, ShardName]) -> None:
    dataset, name = damaged
    reader = sw.Reader(str(dataset), global_batch_size=2, epochs=1)
    iterator = iter(reader.tf_data())
    assert ids_of([next(iterator), next(iterator)]) == [
        name.encode() for name in ids_of(take(reader, 2))
    ]
    with pytest.raises(
        tf.errors.OpError,
        match=rf"BadRecordError: .*{name.shard}: record 4 at byte .*; max_bad_records=0: copy that shard",
    ):
        next(iterator)


def test_a_bad_record_that_may_be_left_out_is_listed(damaged: tuple[Path, ShardName]) -> None:
    dataset, name = damaged
    reader = sw.Reader(str(dataset), global_batch_size=2, epochs=2, max_bad_records=1)
    tensors = reader.tf_data()

    assert tensor_ids(tensors) == ids_of(reader)
    assert tensors.element_spec["id"].shape.as_list() == [None]
    assert [(bad.shard, bad.row) for bad in reader.bad_records] == [(str(dataset / name.shard), 4)]


def test_a_missing_shard_raises_with_what_to_do(dataset: Path) -> None:
    name = first_shard(dataset)
    reader = sw.Reader(str(dataset), global_batch_size=2, epochs=1)
    tensors = reader.tf_data()
    (dataset / name.shard).unlink()
    with pytest.raises(
        tf.errors.OpError,
        match=rf"MissingError: .*{name.shard} is missing, and the manifest states .* copy the dataset again",
    ):
        list(tensors)


@pytest.mark.parametrize(
    "after",
    ["", ".prefetch(4)", ".map(lambda batch: batch['image'], num_parallel_calls=3).prefetch(2)"],
)
def test_a_process_ends_in_the_middle_of_a_reading(datasets: Datasets, after: str) -> None:
    """Also while threads of tf.data are in Python, or on their way there."""
    script = f"""
import shardwright as sw
reader = sw.Reader({datasets["mixed"]!r}, "all", global_batch_size=2, shuffle=True, image=sw.TrainImage(64))
iterator = iter(reader.tf_data(){after})
for _ in range(3):
    next(iterator)
print("all read")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stdout) == (0, "all read\n"), done.stderr
    assert after or "Traceback" not in done.stderr
