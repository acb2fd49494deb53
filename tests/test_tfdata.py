"""`shardwright.load`: what it gives equals the source, in shapes, types and order."""

from __future__ import annotations

import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import shardwright as sw
from tests import small_datasets as small
from tests.small_datasets import NUM_IMAGES, Datasets


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Datasets:
    return Datasets(tmp_path_factory)


def ids_of(dataset: tf.data.Dataset) -> list[str]:
    return [example["id"].decode() for example in dataset.as_numpy_iterator()]


def test_gives_every_source_image_once_with_its_pixels_and_label(datasets: Datasets) -> None:
    examples = list(sw.load(datasets["mixed"], "all").as_numpy_iterator())

    assert sorted(example["id"].decode() for example in examples) == sorted(
        path.relative_to(datasets.folders).as_posix() for path in datasets.folders.rglob("*.*")
    )
    names = sw.open(datasets["mixed"]).schema.class_names
    for example in examples:
        path = datasets.folders / example["id"].decode()
        np.testing.assert_array_equal(example["image"], small.pixels_of(path), str(path))
        assert names[example["label"]] == path.parent.name


def test_splits_are_apart_and_add_up(datasets: Datasets) -> None:
    splits = {
        split: ids_of(sw.load(datasets["mixed"], split))
        for split in ("train", "validation", "test")
    }

    assert {split: len(ids) for split, ids in splits.items()} == {
        split.name: split.num_records for split in sw.open(datasets["mixed"]).splits.values()
    }
    assert len(set().union(*splits.values())) == NUM_IMAGES
    assert ids_of(sw.load(datasets["mixed"], "test + train")) == splits["test"] + splits["train"]


def test_element_spec_follows_tfds(datasets: Datasets) -> None:
    assert sw.load(datasets["mixed"]).element_spec == {
        "image": tf.TensorSpec((None, None, 3), tf.uint8),
        "id": tf.TensorSpec((), tf.string),
        "label": tf.TensorSpec((), tf.int64),
    }
    assert sw.load(datasets["mixed"], as_supervised=True).element_spec == (
        tf.TensorSpec((None, None, 3), tf.uint8),
        tf.TensorSpec((), tf.int64),
    )


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"image_size": (16, 20)}, (16, 20, 3)),
        ({"image_size": [16, 20], "batch_size": 4}, (None, 16, 20, 3)),
        ({"image_size": (16, 20), "batch_size": 4, "drop_remainder": True}, (4, 16, 20, 3)),
        ({"image_size": (16, 20), "batch_size": 4, "repeat": True}, (4, 16, 20, 3)),
        (
            {"image_size": (16, 20), "batch_size": 4, "shuffle": True, "drop_remainder": True},
            (4, 16, 20, 3),
        ),
    ],
    ids=str,
)
def test_shapes_are_static_where_a_size_is_given(
    datasets: Datasets, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    ds = sw.load(datasets["mixed"], "all", as_supervised=True, **options)

    images, labels = next(iter(ds))

    assert ds.element_spec == (tf.TensorSpec(shape, tf.uint8), tf.TensorSpec(shape[:-3], tf.int64))
    assert tuple(images.shape) == (shape if len(shape) == 3 else (4, *shape[1:]))
    assert labels.shape == images.shape[:-3]


@pytest.mark.parametrize("name", ["raw", "jpeg"])
def test_images_stored_in_one_size_batch_without_an_image_size(
    datasets: Datasets, name: str
) -> None:
    ds = sw.load(datasets[name], batch_size=NUM_IMAGES, drop_remainder=True)

    assert ds.element_spec["image"].shape == (NUM_IMAGES, small.RAW_HEIGHT, small.RAW_WIDTH, 3)
    assert len(list(ds)) == 1


def test_images_that_happen_to_be_of_one_size_batch_too(datasets: Datasets) -> None:
    assert sw.load(datasets["unlabeled"], batch_size=2).element_spec["image"].shape == (
        None,
        6,
        10,
        3,
    )


def test_raw_pixels_are_those_of_a_stored_png_of_the_same_size(datasets: Datasets) -> None:
    raw = {
        example["id"]: example["image"] for example in sw.load(datasets["raw"]).as_numpy_iterator()
    }
    png = {
        example["id"]: example["image"]
        for example in sw.load(datasets["lossless"]).as_numpy_iterator()
    }

    assert raw.keys() == png.keys()
    for name in raw:
        np.testing.assert_array_equal(raw[name], png[name], name.decode())


def test_resizing_is_antialiased_and_rounded(tmp_path: Path) -> None:
    small.write_image(tmp_path / "in" / "a" / "0.png", 1, width=40, height=24)
    dataset = small.build(tmp_path / "in", tmp_path / "out")
    source = small.pixels_of(tmp_path / "in" / "a" / "0.png")

    image = next(iter(sw.load(dataset, image_size=(6, 10))))["image"].numpy()

    expected = tf.image.resize(source, (6, 10), antialias=True).numpy()
    assert np.abs(image - expected).max() <= 0.5
    unchanged = next(iter(sw.load(dataset, image_size=(24, 40))))["image"].numpy()
    np.testing.assert_array_equal(unchanged, source)


def test_table_columns_come_with_their_types(datasets: Datasets) -> None:
    ds = sw.load(datasets["tabled"], "all")

    assert {
        name: (spec.dtype, tuple(spec.shape))
        for name, spec in ds.element_spec.items()
        if name != "image"
    } == {
        "id": (tf.string, ()),
        "label": (tf.int64, ()),
        "count": (tf.int64, ()),
        "good": (tf.int64, ()),
        "ratio": (tf.float32, ()),
        "caption": (tf.string, ()),
        "boxes": (tf.int64, (None,)),
        "scores": (tf.float32, (None,)),
        "tags": (tf.string, (None,)),
    }
    found = {example["id"].decode(): example for example in ds.as_numpy_iterator()}
    for row in small.ROWS:
        example = found[row["path"]]
        for name in ("count", "good", "ratio"):
            assert example[name] == row[name]
        assert example["caption"].decode() == row["caption"]
        assert example["boxes"].tolist() == row["boxes"]
        assert example["scores"].tolist() == row["scores"]
        assert [tag.decode() for tag in example["tags"]] == row["tags"]


def test_lists_batch_as_ragged_and_all_else_stays_dense(datasets: Datasets) -> None:
    ds = sw.load(datasets["tabled"], "train", batch_size=5, image_size=(4, 4), drop_remainder=True)

    batch = next(iter(ds))

    assert ds.element_spec["image"] == tf.TensorSpec((5, 4, 4, 3), tf.uint8)
    assert ds.element_spec["count"] == tf.TensorSpec((5,), tf.int64)
    for name in ("boxes", "scores", "tags"):
        assert isinstance(batch[name], tf.RaggedTensor), name
    rows = {str(row["path"]): row for row in small.ROWS}
    assert batch["boxes"].to_list() == [
        rows[path.decode()]["boxes"] for path in batch["id"].numpy()
    ]


def test_model_garden_names_stay_flat(datasets: Datasets) -> None:
    names = ["image/encoded", "image/filename", "image/format", "image/height", "image/width"]
    example = next(iter(sw.load(datasets["garden"])))

    assert sorted(example) == sorted([*names, "image/class/label", "image/class/text"])
    assert example["image/format"] in (b"jpeg", b"png", b"bmp")
    assert example["image/encoded"].shape == (example["image/height"], example["image/width"], 3)
    names_in_order = sw.open(datasets["garden"]).schema.class_names
    assert (
        names_in_order[example["image/class/label"]] == example["image/class/text"].numpy().decode()
    )
    image, label = next(iter(sw.load(datasets["garden"], as_supervised=True)))
    assert (image.dtype, label.dtype) == (tf.uint8, tf.int64)


def test_features_picks_and_orders(datasets: Datasets) -> None:
    assert list(sw.load(datasets["mixed"], features=["label", "id"]).element_spec) == [
        "label",
        "id",
    ]
    assert sw.load(datasets["mixed"], features=["label"], batch_size=4).element_spec == {
        "label": tf.TensorSpec((None,), tf.int64)
    }


def test_decode_false_gives_the_stored_bytes(datasets: Datasets) -> None:
    for example in (
        sw.load(datasets["mixed"], "all", decode=False, batch_size=8).unbatch().as_numpy_iterator()
    ):
        assert example["image"] == (datasets.folders / example["id"].decode()).read_bytes()


def test_knows_its_length(datasets: Datasets) -> None:
    assert sw.load(datasets["mixed"], "all").cardinality() == NUM_IMAGES
    assert (
        sw.load(
            datasets["mixed"], "all", batch_size=4, image_size=(4, 4), shuffle=True
        ).cardinality()
        == 6
    )
    assert (
        sw.load(
            datasets["mixed"], "all", batch_size=4, image_size=(4, 4), drop_remainder=True
        ).cardinality()
        == 5
    )
    assert (
        sw.load(datasets["mixed"], "all", repeat=True).cardinality() == tf.data.INFINITE_CARDINALITY
    )


def test_without_shuffle_records_come_as_stored(datasets: Datasets) -> None:
    shards = sorted(Path(datasets["mixed"]).glob("*-train.tfrecord-*"))
    stored = [
        tf.train.Example.FromString(record.numpy())
        for record in tf.data.TFRecordDataset([str(path) for path in shards])
    ]

    ids = [example.features.feature["id"].bytes_list.value[0].decode() for example in stored]

    assert ids_of(sw.load(datasets["mixed"])) == ids
    assert ids_of(sw.load(datasets["mixed"])) == ids


def test_shuffle_is_a_function_of_seed_and_epoch(datasets: Datasets) -> None:
    def epochs(seed: int | None) -> list[list[str]]:
        ds = sw.load(datasets["raw"], shuffle=True, seed=seed)
        return [ids_of(ds) for _ in range(3)]

    first, again, other = epochs(7), epochs(7), epochs(8)

    assert first == again
    assert first[0] != first[1] != first[2] != first[0]
    assert first != other
    assert all(sorted(epoch) == sorted(first[0]) for epoch in (*first, *other, *epochs(None)))
    assert first[0] != ids_of(sw.load(datasets["raw"]))


def test_repeat_goes_through_every_record_each_epoch_in_a_new_order(datasets: Datasets) -> None:
    ds = sw.load(datasets["raw"], shuffle=True, repeat=True, batch_size=NUM_IMAGES // 3)

    batches = [batch["id"].numpy().tolist() for batch in ds.take(6)]

    first, second = list(chain(*batches[:3])), list(chain(*batches[3:]))
    assert len(set(first)) == NUM_IMAGES
    assert sorted(first) == sorted(second)
    assert first != second


def test_keras_learns_from_it(datasets: Datasets) -> None:
    ds = sw.load(datasets["raw"], batch_size=7, shuffle=True, as_supervised=True)
    model = tf.keras.Sequential(
        [tf.keras.layers.Rescaling(1 / 255), tf.keras.layers.Flatten(), tf.keras.layers.Dense(3)]
    )
    model.compile(loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    losses = model.fit(ds, epochs=2, shuffle=False, verbose=0).history["loss"]

    assert np.isfinite(losses).all()


READ_ALL = """
import sys
import shardwright as sw
list(sw.load(sys.argv[1], batch_size=4, shuffle=True))  # TensorFlow warns once a process of how errors are made (tf_errors)
print("READ", file=sys.stderr, flush=True)
list(sw.load(sys.argv[1], batch_size=4, shuffle=True))
"""


def test_prints_nothing(datasets: Datasets) -> None:
    """In a process of its own: what other pipelines have done in this one, TensorFlow may log at any time."""
    done = subprocess.run(
        [sys.executable, "-c", READ_ALL, datasets["raw"]],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == ""
    assert done.stderr.partition("READ\n")[1:] == ("READ\n", "")
