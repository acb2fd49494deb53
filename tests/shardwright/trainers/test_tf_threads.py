"""`Reader.tf_data()` inside: threads, copies, references, faults, and the end of a process."""

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
from tests.support.bad_records import copy_with_bad_record
from tests.support.cached_datasets import wait_until
from tests.support.damage import first_shard
from tests.support.readers import ids_of, take
from tests.support.small_datasets import Datasets, datasets_fixture, tensor_ids  # noqa: F401


def make_reader(datasets: Datasets, **options: Any) -> sw.Reader:
    return datasets.read(**{"shuffle": True, "features": ["image", "id"], **options})


@pytest.mark.long
def test_an_iterator_needs_no_other_reference(datasets: Datasets) -> None:
    """Neither do iterators of datasets made from it, nor of distributed ones."""

    def make() -> tf.data.Dataset:
        return make_reader(datasets).tf_data()

    expected = tensor_ids(make().take(3))
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    iterators = [
        iter(make()),
        iter(make().map(lambda batch: batch).prefetch(2)),
        iter(strategy.experimental_distribute_dataset(make())),
    ]
    gc.collect()
    for iterator in iterators:
        batches = [next(iterator)["id"].numpy() for _ in range(3)]
        assert [name.decode() for ids in batches for name in ids] == expected


def test_a_reader_is_freed_with_its_dataset(datasets: Datasets) -> None:
    """TensorFlow keeps the functions it calls: the reader, threads and batches must not stay."""
    reader = make_reader(datasets)
    dataset = reader.tf_data()
    iterator = iter(dataset.prefetch(1))
    next(iterator)
    alive = weakref.ref(reader)
    del reader, dataset, iterator

    def is_freed() -> bool:
        gc.collect()
        return alive() is None

    wait_until(is_freed)  # a thread of TensorFlow may still be in a call


def test_batches_are_made_ahead_by_the_readers_threads(datasets: Datasets) -> None:
    reader = make_reader(datasets, prefetch=3, features=["label"])
    begun, begin = [], reader.engine.begin

    def remember(step: Any) -> Any:
        begun.append(step.position)
        return begin(step)

    reader.engine.begin = remember  # type: ignore[method-assign]
    iterator = iter(reader.tf_data())
    assert begun == []
    next(iterator)
    assert begun == [0, 4, 8, 12, 16], "the one given, and those the plain reader would have begun"
    next(iterator)
    assert begun == [0, 4, 8, 12, 16, 21]


def test_images_reach_tensorflow_without_a_copy(datasets: Datasets) -> None:
    reader = make_reader(datasets, image=sw.EvalImage(64))
    made, finish = [], reader.engine.finish

    def remember(pending: Any) -> Any:
        batch, bad = finish(pending)
        made.append(batch["image"].ctypes.data)
        return batch, bad

    reader.engine.finish = remember  # type: ignore[method-assign]
    tensor = next(iter(reader.tf_data()))["image"]
    assert np.asarray(memoryview(tensor)).ctypes.data in made


def test_a_waiting_reader_leaves_tensorflow_its_threads(datasets: Datasets) -> None:
    """While all calls wait for batches, a training step with parallel parts still runs."""
    reader = make_reader(datasets, global_batch_size=2, prefetch=8, threads=1, features=["label"])
    go_on, waits, begin = threading.Event(), threading.Event(), reader.engine.begin

    def wait_first(step: Any) -> Any:
        waits.set()
        go_on.wait(200)
        return begin(step)

    reader.engine.begin = wait_first  # type: ignore[method-assign]
    first = threading.Thread(target=next, args=(iter(reader.tf_data()),), daemon=True)
    first.start()

    def add_one(value: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(lambda number: number + 1, [value], tf.int64)

    @tf.function
    def step(values: tf.Tensor) -> tf.Tensor:
        return tf.map_fn(add_one, values, parallel_iterations=4)

    try:
        assert waits.wait(60)
        assert step(tf.range(20, dtype=tf.int64)).numpy().tolist() == list(range(1, 21))
    finally:
        go_on.set()
        first.join(120)
    assert not first.is_alive()


def test_a_bad_record_raises_with_its_place_or_is_listed(zoo: Path, tmp_path: Path) -> None:
    damaged, _ = copy_with_bad_record(zoo, tmp_path)
    shard, split = first_shard(zoo, "test").shard, {"split": "test", "global_batch_size": 2}
    reader, whole = (sw.Reader(damaged, **split, epochs=1) for _ in range(2))
    iterator = iter(reader.tf_data())
    found = [next(iterator)["id"].numpy().tolist() for _ in range(2)]
    assert found == [[name.encode() for name in batch["id"]] for batch in take(whole, 2)]
    message = rf"BadRecordError: .*{shard}: record 4 at byte .*; max_bad_records=0"
    with pytest.raises(tf.errors.OpError, match=f"{message}: copy that shard"):
        next(iterator)

    reader = sw.Reader(damaged, **split, epochs=2, max_bad_records=1)
    tensors = reader.tf_data()
    assert tensor_ids(tensors) == ids_of(reader)
    assert tensors.element_spec["id"].shape.as_list() == [None]
    assert [(bad.shard, bad.row) for bad in reader.bad_records] == [(f"{damaged}/{shard}", 4)]


def test_a_missing_shard_raises_with_the_fix(dataset: Path) -> None:
    name = first_shard(dataset).shard
    tensors = sw.Reader(str(dataset), global_batch_size=2, epochs=1).tf_data()
    (dataset / name).unlink()
    message = rf"MissingError: .*{name} is missing, and the manifest states .* copy the dataset"
    with pytest.raises(tf.errors.OpError, match=f"{message} again"):
        list(tensors)


_READ_A_PART = """
import sys
import shardwright as sw
options = dict(global_batch_size=2, shuffle=True, image=sw.TrainImage(64))
plain, other = [sw.Reader(sys.argv[1], "all", **options).tf_data() for _ in range(2)]
mapped = other.map(lambda batch: batch["image"], num_parallel_calls=3)
iterators = [iter(plain.prefetch(4)), iter(mapped.prefetch(2))]
for _ in range(3):
    for iterator in iterators:
        next(iterator)
print("all read")
"""


@pytest.mark.long
def test_a_process_ends_in_the_middle_of_a_reading(datasets: Datasets) -> None:
    """Also while threads of tf.data are in Python, or on their way there."""
    command = [sys.executable, "-c", _READ_A_PART, datasets["mixed"]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert (done.returncode, done.stdout) == (0, "all read\n"), done.stderr
