"""`Reader.tf_data()`: the reader's batches as tensors of known shapes, from any position."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.data.experimental.ops.distribute import _AutoShardDataset

import shardwright as sw
from shardwright.errors import UsageError
from shardwright.trainers.tf_data import SparseTensorColumn
from tests.support.readers import ids_of, take
from tests.support.small_datasets import Datasets, datasets_fixture, tensor_ids  # noqa: F401


def shuffled(datasets: Datasets, **options: Any) -> sw.Reader:
    return datasets.read(**{"shuffle": True, "seed": 3, "features": ["image", "id"], **options})


def as_lists(column: Any) -> Any:
    """Return a column's values as Python lists, texts as their bytes."""
    if isinstance(column, (tf.Tensor, tf.RaggedTensor)):
        column = column.numpy()
    if isinstance(column, np.ndarray):
        column = column.tolist()
    if isinstance(column, (list, tuple)):
        return [as_lists(value) for value in column]
    return column.encode("utf-8", "surrogateescape") if isinstance(column, str) else column


@pytest.mark.long_but_first
@pytest.mark.parametrize("host_count", [1, 2])
def test_workers_of_a_strategy_share_the_batches_unless_each_is_a_host(
    datasets: Datasets, host_count: int
) -> None:
    """TensorFlow shards the dataset of a worker by its policy, as it does for a strategy's."""
    options = {"epochs": 1, "global_batch_size": 4, "host_count": host_count}
    readers = [shuffled(datasets, host_index=index % host_count, **options) for index in range(2)]
    parts = [
        tensor_ids(_AutoShardDataset(reader.tf_data(), 2, index))
        for index, reader in enumerate(readers)
    ]
    whole = ids_of(shuffled(datasets, **{**options, "host_count": 1}))
    assert sorted(parts[0] + parts[1]) == sorted(whole)
    assert len(parts[0]) < len(whole)


LISTS = {"boxes": sw.Dense(3, fill=-1), "scores": sw.Dense(2)}
ENCODED = {"id": None, "label": sw.OneHot(), "caption": None, **LISTS}
TEXTS = {"tags": sw.Dense(4, fill=b"-"), "boxes": sw.MultiHot(num_classes=9)}
REMAINDERS = [("drop", ENCODED), ("keep", ENCODED), ("pad", TEXTS), ("carry", TEXTS)]


@pytest.mark.long_but_first
@pytest.mark.parametrize(("remainder", "encodings"), REMAINDERS)
@pytest.mark.parametrize("is_encoded", [False, True])
def test_batches_are_the_readers_own(
    datasets: Datasets, remainder: str, encodings: Any, is_encoded: bool
) -> None:
    options = {"features": encodings if is_encoded else None, "remainder": remainder, "epochs": 2}
    reader = datasets.read("tabled", global_batch_size=3, **options)
    dataset = reader.tf_data()
    made = list(dataset)

    assert len(dataset) == len(reader) == len(made)
    for ours, theirs in zip(reader, made, strict=True):
        assert list(theirs) == list(ours)
        for name, column in ours.items():
            assert as_lists(theirs[name]) == as_lists(column), name
    rows = 3 if remainder in ("drop", "pad") else None
    assert {spec.shape[0] for spec in dataset.element_spec.values()} == {rows}


def test_types_and_static_shapes(datasets: Datasets) -> None:
    names = ["image", "id", "label", "count", "ratio", "boxes", "tags", "caption"]
    features = dict.fromkeys(names) | {"scores": sw.Dense(2)}
    options = {"epochs": 1, "remainder": "pad", "image": sw.EvalImage((6, 8))}
    reader = datasets.read("tabled", features=features, **options)

    assert reader.tf_data().element_spec == {
        "image": tf.TensorSpec((4, 6, 8, 3), tf.uint8),
        "id": tf.TensorSpec((4,), tf.string),
        "label": tf.TensorSpec((4,), tf.int64),
        "count": tf.TensorSpec((4,), tf.int64),
        "ratio": tf.TensorSpec((4,), tf.float32),
        "boxes": tf.RaggedTensorSpec((4, None), tf.int64, ragged_rank=1),
        "tags": tf.RaggedTensorSpec((4, None), tf.string, ragged_rank=1),
        "scores": tf.TensorSpec((4, 2), tf.float32),
        "caption": tf.TensorSpec((4,), tf.string),
        "mask": tf.TensorSpec((4,), tf.bool),
    }


@pytest.mark.parametrize("shape", [(4, 12), (None, 12)])
def test_sparse_columns_have_the_static_sizes_that_are_known(shape: tuple[int | None, ...]) -> None:
    column = SparseTensorColumn(shape, np.dtype(np.float32))

    @tf.function
    def static_shape_of(*parts: tf.Tensor) -> None:
        assert column.to_tensor(parts).shape.as_list() == list(shape)

    empty = np.empty((0, 2), np.int64), np.empty(0, np.float32), np.array([4, 12])
    static_shape_of.get_concrete_function(*[tf.TensorSpec(None, a.dtype) for a in empty])


@pytest.mark.long_but_first
@pytest.mark.parametrize("dtype", ["uint8", "float32", "bfloat16"])
def test_images_keep_their_type(datasets: Datasets, dtype: str) -> None:
    first, second = (shuffled(datasets, image=sw.TrainImage(8, dtype=dtype)) for _ in range(2))
    theirs, ours = next(iter(first.tf_data()))["image"], next(iter(second))["image"]
    assert (theirs.dtype, ours.dtype) == (dtype, np.dtype(dtype))
    np.testing.assert_array_equal(theirs.numpy(), ours, strict=True)
    assert ours.shape == (4, 8, 8, 3)


def test_images_of_different_sizes_are_ragged(datasets: Datasets) -> None:
    first, second = (shuffled(datasets, image=sw.DecodedImage()) for _ in range(2))
    theirs, ours = next(iter(first.tf_data()))["image"], next(iter(second))["image"]
    assert len({image.shape for image in ours}) > 1
    assert theirs.shape.as_list() == [4, None, None, 3]
    for row, image in enumerate(ours):
        np.testing.assert_array_equal(theirs[row].to_tensor().numpy(), image)


@pytest.mark.parametrize("remainder", ["keep", "pad"])
def test_supervised_pairs(datasets: Datasets, remainder: str) -> None:
    """Padded batches have weights."""
    reader = datasets.read(epochs=1, image=sw.EvalImage(8), remainder=remainder)
    pairs = list(reader.tf_data(as_supervised=True))
    for batch, (image, label, *_) in zip(reader, pairs, strict=True):
        np.testing.assert_array_equal(image, batch["image"])
        np.testing.assert_array_equal(label, batch["label"])
    weights = [[1, 1, 1, 1]] * 5 + [[1, 0, 0, 0]] if remainder == "pad" else []
    found = [weight for _, _, *given in pairs for weight in given]
    assert [weight.numpy().tolist() for weight in found] == weights
    assert all(weight.dtype == tf.float32 for weight in found)


@pytest.mark.parametrize(
    ("name", "features", "message"),
    [
        ("mixed", ["image"], "image: add them to features="),
        ("mixed", ["label", "id"], "label, id: add them to features="),
        ("unlabeled", None, "image, id: this dataset has no labels, so take batches as dicts"),
    ],
)
def test_pairs_need_image_and_label(datasets: Any, name: str, features: Any, message: str) -> None:
    reader = datasets.read(name, features=features)
    with pytest.raises(UsageError, match=f"this Reader gives {message}"):
        reader.tf_data(as_supervised=True)


def test_an_endless_reader_has_an_infinite_dataset(datasets: Datasets) -> None:
    dataset = shuffled(datasets).tf_data()
    assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY
    assert tensor_ids(dataset.take(17)) == ids_of(take(shuffled(datasets), 17))


@pytest.mark.long_but_first
@pytest.mark.parametrize("epochs", [1, 2])
def test_iterating_again_reads_the_next_pass(datasets: Datasets, epochs: int) -> None:
    reader = shuffled(datasets, epochs=epochs)
    dataset, twin = reader.tf_data(), shuffled(datasets, epochs=epochs)
    for _ in range(3):
        assert len(dataset) == len(reader)
        assert tensor_ids(dataset) == ids_of(twin)
        assert reader.state_after() == twin.state()
    assert tensor_ids(reader.tf_data()) == ids_of(twin), "a new dataset goes on, too"
    once, twice = shuffled(datasets, epochs=1).tf_data(), shuffled(datasets, epochs=2).tf_data()
    assert tensor_ids(once.repeat(2)) == tensor_ids(twice)


def test_a_state_counts_what_a_loop_took_whatever_tf_data_takes_ahead(datasets: Datasets) -> None:
    reader = shuffled(datasets, epochs=1)
    whole = ids_of(take(shuffled(datasets, epochs=2), 5))
    assert tensor_ids(reader.tf_data().prefetch(10).take(3)) == whole[:12]
    resumed = shuffled(datasets, epochs=2, state=reader.state_after(3))
    assert ids_of(take(resumed, 2)) == whole[12:]


def test_a_reader_that_was_moved_needs_a_new_dataset(datasets: Datasets) -> None:
    """The length was stated when the dataset was made."""
    reader = shuffled(datasets, epochs=1)
    dataset = reader.tf_data()
    reader.go_to(8)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"call tf_data\(\) again"):
        next(iter(dataset))


def test_a_reader_inside_a_pass_ends_it_first(datasets: Datasets) -> None:
    reader = shuffled(datasets, epochs=2)
    ids = ids_of(reader) + ids_of(reader)
    reader.go_to(8)
    dataset = reader.tf_data()

    assert dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY
    half = len(ids) // 2
    assert tensor_ids(dataset) == ids[8:half]
    assert tensor_ids(dataset) == ids[half:]


def test_evaluations_read_the_same_batches_each_time(datasets: Datasets) -> None:
    """Of a part, too, as with `validation_steps`."""
    dataset = shuffled(datasets, shuffle=False, epochs=1).tf_data()
    whole = ids_of(shuffled(datasets, shuffle=False, epochs=1))
    assert [tensor_ids(dataset) for _ in range(3)] == [whole] * 3
    assert [tensor_ids(dataset.take(3)) for _ in range(3)] == [whole[:12]] * 3


@pytest.mark.long_but_first
@pytest.mark.parametrize("num_taken", [3, 5, 10])
def test_repeat_goes_on_after_a_restore(datasets: Datasets, tmp_path: Path, num_taken: int) -> None:
    """Also between two passes, where the most checkpoints are: five batches are a pass."""

    def make() -> Any:
        return iter(shuffled(datasets, epochs=1).tf_data().repeat())

    iterator = make()
    for _ in range(num_taken):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
    following = [next(iterator)["id"].numpy().tolist() for _ in range(12)]
    restored = make()
    tf.train.Checkpoint(iterator=restored).restore(saved)
    assert [next(restored)["id"].numpy().tolist() for _ in range(12)] == following


def test_each_host_has_its_part(datasets: Datasets) -> None:
    parts = [shuffled(datasets, host_index=host, host_count=2).tf_data() for host in range(2)]
    halves = zip(*(part.take(7) for part in parts), strict=True)
    whole = [as_lists(batch["id"]) for batch in take(shuffled(datasets), 7)]
    assert [as_lists(first["id"]) + as_lists(second["id"]) for first, second in halves] == whole


def test_iterators_of_one_dataset_do_not_disturb_each_other(datasets: Datasets) -> None:
    dataset, passes = shuffled(datasets, epochs=1).tf_data(), shuffled(datasets, epochs=1)
    expected = [[list(batch["id"]) for batch in passes] for _ in range(2)]
    first, second = iter(dataset), iter(dataset)
    found = [[as_lists(next(first)["id"])], []]
    found[0].append(as_lists(next(first)["id"]))
    for _ in range(3):
        found[1].append(as_lists(next(second)["id"]))
        found[0].append(as_lists(next(first)["id"]))
    assert found[0] == [[as_lists(name) for name in ids] for ids in expected[0][:5]]
    assert found[1] == [[as_lists(name) for name in ids] for ids in expected[1][:3]]


@pytest.mark.long_but_first
@pytest.mark.parametrize("epochs", [None, 4])
def test_an_iterator_is_restored(datasets: Datasets, tmp_path: Path, epochs: int | None) -> None:
    def make() -> Any:
        return iter(shuffled(datasets, epochs=epochs, image=sw.TrainImage(32)).tf_data())

    iterator = make()
    for _ in range(7):
        next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
    following = [next(iterator) for _ in range(6)]

    restored = make()
    next(restored)  # it has begun elsewhere already
    tf.train.Checkpoint(iterator=restored).restore(saved)

    assert sum(path.stat().st_size for path in tmp_path.glob("saved*")) < 4000, "no batch is in it"
    for batch in following:
        found = next(restored)
        assert found["id"].numpy().tolist() == batch["id"].numpy().tolist()
        np.testing.assert_array_equal(found["image"], batch["image"])
