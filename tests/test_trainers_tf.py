"""`Reader.tf_data()`: the plain reader's batches as tensors, of known shapes, from any position, saved and restored."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import shardwright as sw
from shardwright.errors import UsageError
from shardwright.index import read_index
from shardwright.naming import ShardName
from shardwright.reader.values import SparseColumn
from tests.damage import first_shard
from tests.readers import ids_of, take
from tests.small_datasets import ROWS, Datasets

SHUFFLED: dict[str, Any] = {"global_batch_size": 4, "shuffle": True, "seed": 3, "features": ["image", "id"]}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Datasets:
    return Datasets(tmp_path_factory)


def tensor_ids(batches: tf.data.Dataset) -> list[str]:
    return [name.decode() for batch in batches.as_numpy_iterator() for name in batch["id"]]


def as_lists(column: Any) -> Any:
    """A column's values as Python lists, whatever holds them; texts as their bytes."""
    if isinstance(column, (SparseColumn, tf.SparseTensor)):
        return [as_lists(part) for part in (column.indices, column.values, column.dense_shape)]
    if isinstance(column, (tf.Tensor, tf.RaggedTensor)):
        column = column.numpy()
    if isinstance(column, np.ndarray):
        column = column.tolist()
    if isinstance(column, (list, tuple)):
        return [as_lists(value) for value in column]
    return column.encode("utf-8", "surrogateescape") if isinstance(column, str) else column


FEATURES: dict[str, dict[str, Any] | None] = {
    "as stored": None,
    "encoded": {
        "id": None,
        "label": sw.OneHot(),
        "boxes": sw.Dense(3, fill=-1),
        "scores": sw.Sparse(),
        "tags": sw.Sparse(),
        "caption": None,
    },
    "texts at fixed places": {"tags": sw.Dense(4, fill=b"-"), "boxes": sw.MultiHot(num_classes=9)},
}


@pytest.mark.parametrize("remainder", ["drop", "keep", "pad", "carry"])
@pytest.mark.parametrize("features", FEATURES.values(), ids=FEATURES)
def test_batches_are_the_readers_own(datasets: Datasets, features: dict[str, Any] | None, remainder: str) -> None:
    reader = sw.Reader(datasets["tabled"], "all", global_batch_size=3, epochs=2, features=features, remainder=remainder)
    dataset = reader.tf_data()
    made = list(dataset)

    assert len(dataset) == len(reader) == len(made)
    for ours, theirs in zip(reader, made, strict=True):
        assert list(theirs) == list(ours)
        assert {name: as_lists(column) for name, column in theirs.items()} == {name: as_lists(column) for name, column in ours.items()}
    rows = 3 if remainder in ("drop", "pad") else None
    assert {name: spec.shape[0] for name, spec in dataset.element_spec.items()} == dict.fromkeys(made[0], rows)


def test_types_and_static_shapes(datasets: Datasets) -> None:
    features = dict.fromkeys(["image", "id", "label", "count", "ratio", "boxes", "tags"]) | {"scores": sw.Sparse(), "caption": None}
    reader = sw.Reader(
        datasets["tabled"], "all", global_batch_size=4, epochs=1, features=features, remainder="pad", image=sw.EvalImage((6, 8))
    )
    spec = reader.tf_data().element_spec

    assert spec == {
        "image": tf.TensorSpec((4, 6, 8, 3), tf.uint8),
        "id": tf.TensorSpec((4,), tf.string),
        "label": tf.TensorSpec((4,), tf.int64),
        "count": tf.TensorSpec((4,), tf.int64),
        "ratio": tf.TensorSpec((4,), tf.float32),
        "boxes": tf.RaggedTensorSpec((4, None), tf.int64, ragged_rank=1),
        "tags": tf.RaggedTensorSpec((4, None), tf.string, ragged_rank=1),
        "scores": tf.SparseTensorSpec((4, None), tf.float32),
        "caption": tf.TensorSpec((4,), tf.string),
        "mask": tf.TensorSpec((4,), tf.bool),
    }


def test_texts_are_utf8(datasets: Datasets) -> None:
    batch = next(iter(sw.Reader(datasets["tabled"], "all", global_batch_size=7, features=["caption"]).tf_data()))
    assert sorted(batch["caption"].numpy().tolist()) == sorted(row["caption"].encode() for row in ROWS)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "bfloat16"])
def test_images_keep_their_type(datasets: Datasets, dtype: str) -> None:
    reader = sw.Reader(datasets["mixed"], global_batch_size=4, image=sw.TrainImage(8, dtype=dtype), features=["image"])
    image = next(iter(reader.tf_data()))["image"]

    assert image.dtype == dtype
    assert image.shape == (4, 8, 8, 3)
    expected = next(iter(reader))["image"]
    assert expected.dtype == (ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    np.testing.assert_array_equal(image.numpy(), expected)


def test_images_of_different_sizes_are_ragged(datasets: Datasets) -> None:
    reader = sw.Reader(datasets["mixed"], global_batch_size=5, image=sw.DecodedImage(), features=["image"])
    theirs, ours = next(iter(reader.tf_data()))["image"], next(iter(reader))["image"]

    assert len({image.shape for image in ours}) > 1
    assert theirs.shape.as_list() == [5, None, None, 3]
    for row, image in enumerate(ours):
        np.testing.assert_array_equal(theirs[row].to_tensor().numpy(), image)


def test_supervised_pairs(datasets: Datasets) -> None:
    reader = sw.Reader(datasets["mixed"], "all", global_batch_size=4, epochs=1, image=sw.EvalImage(8))
    for batch, pair in zip(reader, reader.tf_data(as_supervised=True), strict=True):
        assert len(pair) == 2
        np.testing.assert_array_equal(pair[0], batch["image"])
        np.testing.assert_array_equal(pair[1], batch["label"])


def test_supervised_pairs_of_padded_batches_have_weights(datasets: Datasets) -> None:
    reader = sw.Reader(datasets["mixed"], "all", global_batch_size=4, epochs=1, image=sw.EvalImage(8), remainder="pad")
    weights = [weight for _, _, weight in reader.tf_data(as_supervised=True)]

    assert {weight.dtype for weight in weights} == {tf.float32}
    assert [weight.numpy().tolist() for weight in weights] == [[1, 1, 1, 1]] * 5 + [[1, 0, 0, 0]]


@pytest.mark.parametrize(
    ("name", "features", "message"),
    [
        ("mixed", ["image"], r"this Reader gives image: add them to features="),
        ("mixed", ["label", "id"], r"this Reader gives label, id: add them to features="),
        ("unlabeled", None, r"this Reader gives image, id: this dataset has no labels, so take batches as dicts"),
    ],
)
def test_pairs_without_image_or_label_are_refused(datasets: Datasets, name: str, features: list[str] | None, message: str) -> None:
    reader = sw.Reader(datasets[name], "all", global_batch_size=2, features=features)
    with pytest.raises(UsageError, match=message):
        reader.tf_data(as_supervised=True)


def test_an_endless_reader_begins_where_it_is(datasets: Datasets) -> None:
    """Through all epochs in their own orders, also where the dataset was made earlier; iterating leaves the reader alone."""
    reader = sw.Reader(datasets["mixed"], "all", **SHUFFLED)
    dataset = reader.tf_data()
    ids = ids_of(take(sw.Reader(datasets["mixed"], "all", **SHUFFLED), 17))

    assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY
    assert tensor_ids(dataset.take(17)) == ids
    assert tensor_ids(dataset.take(2)) == ids[:8]
    assert reader.position == 0
    take(reader, 9)
    assert tensor_ids(dataset.take(8)) == ids[36:]


def test_a_reader_with_an_end_begins_where_it_was(datasets: Datasets) -> None:
    """So that the length holds."""
    reader = sw.Reader(datasets["mixed"], "all", epochs=2, **SHUFFLED)
    ids = ids_of(reader)
    reader.go_to(8)
    dataset = reader.tf_data()
    reader.go_to(0)

    assert len(dataset) == len(reader) - 2
    assert tensor_ids(dataset) == tensor_ids(dataset) == ids[8:]
    reader.go_to(reader.steps.end)
    assert tensor_ids(reader.tf_data()) == ids, "from its end a reader starts anew"


def test_each_host_has_its_part(datasets: Datasets) -> None:
    whole = sw.Reader(datasets["mixed"], "all", **SHUFFLED)
    parts = [sw.Reader(datasets["mixed"], "all", host_index=host, host_count=2, **SHUFFLED).tf_data().take(7) for host in range(2)]
    for batch, *of_hosts in zip(whole, *parts, strict=False):
        assert [name for part in of_hosts for name in part["id"].numpy().tolist()] == [name.encode() for name in batch["id"]]


def test_iterators_of_one_dataset_do_not_disturb_each_other(datasets: Datasets) -> None:
    dataset = sw.Reader(datasets["mixed"], "all", **SHUFFLED).tf_data()
    expected = [batch["id"] for batch in dataset.take(6).as_numpy_iterator()]
    first, second = iter(dataset), iter(dataset)
    found = [(next(first)["id"].numpy(), next(second)["id"].numpy()) for _ in range(6)]
    np.testing.assert_array_equal(found, [(ids, ids) for ids in expected])


@pytest.mark.parametrize("epochs", [None, 4])
def test_an_iterator_is_saved_and_restored_in_mid_epoch(datasets: Datasets, tmp_path: Path, epochs: int | None) -> None:
    options = SHUFFLED | {"epochs": epochs, "image": sw.TrainImage(32)}
    iterator = iter(sw.Reader(datasets["mixed"], "all", **options).tf_data())
    for _ in range(7):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
    following = [next(iterator) for _ in range(6)]

    other = sw.Reader(datasets["mixed"], "all", **options)
    restored = iter(other.tf_data())
    next(restored)  # it has begun elsewhere already
    tf.train.Checkpoint(iterator=restored).restore(saved)

    assert sum(path.stat().st_size for path in tmp_path.glob("saved*")) < 2000, "no batch is in it"
    for batch in following:
        found = next(restored)
        assert found["id"].numpy().tolist() == batch["id"].numpy().tolist()
        np.testing.assert_array_equal(found["image"], batch["image"])


def test_batches_are_made_ahead_by_the_readers_threads(datasets: Datasets) -> None:
    reader = sw.Reader(datasets["mixed"], "all", global_batch_size=4, shuffle=True, prefetch=3, features=["label"])
    begun, begin = [], reader.engine.begin

    def remember(step: Any) -> Any:
        begun.append(step.position)
        return begin(step)

    reader.engine.begin = remember  # type: ignore[method-assign]
    iterator = iter(reader.tf_data())
    assert begun == []
    next(iterator)
    assert begun == [0, 4, 8, 12, 16], "the one that was given, and those the plain reader would have begun"
    next(iterator)
    assert begun == [0, 4, 8, 12, 16, 21]


def test_images_reach_tensorflow_without_a_copy(datasets: Datasets) -> None:
    made: list[int] = []
    reader = sw.Reader(datasets["mixed"], global_batch_size=4, image=sw.EvalImage(64), features=["image"])
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
    reader = sw.Reader(datasets["mixed"], global_batch_size=2, prefetch=8, threads=1, features=["label"])
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
        return tf.map_fn(lambda value: tf.numpy_function(lambda number: number + 1, [value], tf.int64), values, parallel_iterations=4)

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
    assert ids_of([next(iterator), next(iterator)]) == [name.encode() for name in ids_of(take(reader, 2))]
    with pytest.raises(
        tf.errors.OpError, match=rf"BadRecordError: .*{name.shard}: record 4 at byte .*; max_bad_records=0: copy that shard"
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
        tf.errors.OpError, match=rf"MissingError: .*{name.shard} is missing, and the manifest states .* copy the dataset again"
    ):
        list(tensors)


@pytest.mark.parametrize("after", ["", ".prefetch(4)", ".map(lambda batch: batch['image'], num_parallel_calls=3).prefetch(2)"])
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
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "all read\n"), done.stderr
    assert after or "Traceback" not in done.stderr
