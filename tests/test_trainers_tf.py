"""`Reader.tf_data()`: the plain reader's batches as tensors, of known shapes, from any position, saved and restored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import shardwright as sw
from shardwright.errors import UsageError
from shardwright.reader.values import SparseColumn
from tests.readers import ids_of, take
from tests.small_datasets import ROWS, Datasets

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
def test_batches_are_the_readers_own(
    datasets: Datasets, features: dict[str, Any] | None, remainder: str
) -> None:
    reader = sw.Reader(
        datasets["tabled"],
        "all",
        global_batch_size=3,
        epochs=2,
        features=features,
        remainder=remainder,
    )
    dataset = reader.tf_data()
    made = list(dataset)

    assert len(dataset) == len(reader) == len(made)
    for ours, theirs in zip(reader, made, strict=True):
        assert list(theirs) == list(ours)
        assert {name: as_lists(column) for name, column in theirs.items()} == {
            name: as_lists(column) for name, column in ours.items()
        }
    rows = 3 if remainder in ("drop", "pad") else None
    assert {name: spec.shape[0] for name, spec in dataset.element_spec.items()} == dict.fromkeys(
        made[0], rows
    )


def test_types_and_static_shapes(datasets: Datasets) -> None:
    features = dict.fromkeys(["image", "id", "label", "count", "ratio", "boxes", "tags"]) | {
        "scores": sw.Sparse(),
        "caption": None,
    }
    reader = sw.Reader(
        datasets["tabled"],
        "all",
        global_batch_size=4,
        epochs=1,
        features=features,
        remainder="pad",
        image=sw.EvalImage((6, 8)),
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
    batch = next(
        iter(
            sw.Reader(
                datasets["tabled"], "all", global_batch_size=7, features=["caption"]
            ).tf_data()
        )
    )
    assert sorted(batch["caption"].numpy().tolist()) == sorted(
        row["caption"].encode() for row in ROWS
    )


@pytest.mark.parametrize("dtype", ["uint8", "float32", "bfloat16"])
def test_images_keep_their_type(datasets: Datasets, dtype: str) -> None:
    reader = sw.Reader(
        datasets["mixed"],
        global_batch_size=4,
        image=sw.TrainImage(8, dtype=dtype),
        features=["image"],
    )
    image = next(iter(reader.tf_data()))["image"]

    assert image.dtype == dtype
    assert image.shape == (4, 8, 8, 3)
    expected = next(iter(reader))["image"]
    assert expected.dtype == (ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    np.testing.assert_array_equal(image.numpy(), expected)


def test_images_of_different_sizes_are_ragged(datasets: Datasets) -> None:
    reader = sw.Reader(
        datasets["mixed"], global_batch_size=5, image=sw.DecodedImage(), features=["image"]
    )
    theirs, ours = next(iter(reader.tf_data()))["image"], next(iter(reader))["image"]

    assert len({image.shape for image in ours}) > 1
    assert theirs.shape.as_list() == [5, None, None, 3]
    for row, image in enumerate(ours):
        np.testing.assert_array_equal(theirs[row].to_tensor().numpy(), image)


def test_supervised_pairs(datasets: Datasets) -> None:
    reader = sw.Reader(
        datasets["mixed"], "all", global_batch_size=4, epochs=1, image=sw.EvalImage(8)
    )
    for batch, pair in zip(reader, reader.tf_data(as_supervised=True), strict=True):
        assert len(pair) == 2
        np.testing.assert_array_equal(pair[0], batch["image"])
        np.testing.assert_array_equal(pair[1], batch["label"])


def test_supervised_pairs_of_padded_batches_have_weights(datasets: Datasets) -> None:
    reader = sw.Reader(
        datasets["mixed"],
        "all",
        global_batch_size=4,
        epochs=1,
        image=sw.EvalImage(8),
        remainder="pad",
    )
    weights = [weight for _, _, weight in reader.tf_data(as_supervised=True)]

    assert {weight.dtype for weight in weights} == {tf.float32}
    assert [weight.numpy().tolist() for weight in weights] == [[1, 1, 1, 1]] * 5 + [[1, 0, 0, 0]]


@pytest.mark.parametrize(
    ("name", "features", "message"),
    [
        ("mixed", ["image"], r"this Reader gives image: add them to features="),
        ("mixed", ["label", "id"], r"this Reader gives label, id: add them to features="),
        (
            "unlabeled",
            None,
            r"this Reader gives image, id: this dataset has no labels, so take batches as dicts",
        ),
    ],
)
def test_pairs_without_image_or_label_are_refused(
    datasets: Datasets, name: str, features: list[str] | None, message: str
) -> None:
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
    parts = [
        sw.Reader(datasets["mixed"], "all", host_index=host, host_count=2, **SHUFFLED)
        .tf_data()
        .take(7)
        for host in range(2)
    ]
    for batch, *of_hosts in zip(whole, *parts, strict=False):
        assert [name for part in of_hosts for name in part["id"].numpy().tolist()] == [
            name.encode() for name in batch["id"]
        ]


def test_iterators_of_one_dataset_do_not_disturb_each_other(datasets: Datasets) -> None:
    dataset = sw.Reader(datasets["mixed"], "all", **SHUFFLED).tf_data()
    expected = [batch["id"] for batch in dataset.take(6).as_numpy_iterator()]
    first, second = iter(dataset), iter(dataset)
    found = [(next(first)["id"].numpy(), next(second)["id"].numpy()) for _ in range(6)]
    np.testing.assert_array_equal(found, [(ids, ids) for ids in expected])


@pytest.mark.parametrize("epochs", [None, 4])
def test_an_iterator_is_saved_and_restored_in_mid_epoch(
    datasets: Datasets, tmp_path: Path, epochs: int | None
) -> None:
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
