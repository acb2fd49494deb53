"""`shardwright.load`: it equals the source, and a saved and restored iterator goes on exactly."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import shardwright as sw
from tests.support import small_datasets as small
from tests.support.small_datasets import ROWS_BY_ID, Datasets, datasets_fixture, tensor_ids  # noqa: F401

SIZE: dict[str, Any] = {"image_size": (16, 20)}
STORED_SIZE = (small.RAW_HEIGHT, small.RAW_WIDTH, 3)


@pytest.mark.long
def test_every_source_image_comes_once_with_its_pixels_and_label(datasets: Datasets) -> None:
    ds = sw.load(datasets["mixed"], "all")
    names = sw.open(datasets["mixed"]).schema.class_names
    paths = {
        path.relative_to(datasets.folders).as_posix() for path in datasets.folders.rglob("*.*")
    }

    assert sorted(tensor_ids(ds)) == sorted(paths)
    for example in ds.as_numpy_iterator():
        path = datasets.folders / example["id"].decode()
        np.testing.assert_array_equal(example["image"], small.pixels_of(path), str(path))
        assert names[example["label"]] == path.parent.name


@pytest.mark.long
def test_splits_are_apart_and_add_up(datasets: Datasets) -> None:
    found = sw.open(datasets["mixed"]).splits
    splits = {name: tensor_ids(sw.load(datasets["mixed"], name)) for name in found}

    assert {name: len(ids) for name, ids in splits.items()} == {
        name: split.num_records for name, split in found.items()
    }
    assert found.keys() == {"train", "validation", "test"}
    assert len(set().union(*splits.values())) == small.NUM_IMAGES
    assert (
        tensor_ids(sw.load(datasets["mixed"], "test + train")) == splits["test"] + splits["train"]
    )


def test_element_spec_follows_tfds(datasets: Datasets) -> None:
    image, label = tf.TensorSpec((None, None, 3), tf.uint8), tf.TensorSpec((), tf.int64)
    wanted = {"image": image, "id": tf.TensorSpec((), tf.string), "label": label}
    assert sw.load(datasets["mixed"]).element_spec == wanted
    assert sw.load(datasets["mixed"], as_supervised=True).element_spec == (image, label)


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("name", "options", "shape"),
    [
        ("mixed", SIZE, (16, 20, 3)),
        ("mixed", {"image_size": [16, 20], "batch_size": 4}, (None, 16, 20, 3)),
        ("mixed", {**SIZE, "batch_size": 4, "drop_remainder": True}, (4, 16, 20, 3)),
        ("mixed", {**SIZE, "batch_size": 4, "repeat": True}, (4, 16, 20, 3)),
        ("mixed", {**SIZE, "batch_size": 4, "shuffle": True}, (None, 16, 20, 3)),
        ("raw", {"batch_size": 4, "drop_remainder": True}, (4, *STORED_SIZE)),
        ("jpeg", {"batch_size": 4}, (None, *STORED_SIZE)),
        ("stills", {}, (None, None, 3)),
        ("tabled", {"batch_size": 4}, (None, 6, 10, 3)),  # they happen to be of one size
    ],
    ids=str,
)
def test_shapes_are_static_where_the_size_is_known(
    datasets: Datasets, name: str, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    ds = sw.load(datasets[name], "all", as_supervised=True, **options)
    images, labels = next(iter(ds))
    assert ds.element_spec == (tf.TensorSpec(shape, tf.uint8), tf.TensorSpec(shape[:-3], tf.int64))
    assert images.shape == labels.shape + images.shape[-3:]
    assert ds.element_spec[0].is_compatible_with(images)
    assert labels.shape == ((4,) if "batch_size" in options else ())


@pytest.mark.long
def test_resizing_is_antialiased_and_rounded(datasets: Datasets) -> None:
    def first_image(**options: Any) -> np.ndarray:
        return next(sw.load(datasets["unlabeled"], **options).as_numpy_iterator())["image"]

    source = first_image()
    expected = tf.image.resize(source, (3, 5), antialias=True).numpy()
    assert np.abs(first_image(image_size=(3, 5)) - expected).max() <= 0.5
    np.testing.assert_array_equal(first_image(image_size=(6, 10)), source)


def plain(value: Any) -> Any:
    """Return NumPy values as Python's, texts as str."""
    value = np.asarray(value).tolist()
    if isinstance(value, list):
        return [plain(part) for part in value]
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.long
def test_table_columns_come_with_their_types(datasets: Datasets) -> None:
    ds = sw.load(datasets["tabled"], "all")

    assert {name: (spec.dtype, tuple(spec.shape)) for name, spec in ds.element_spec.items()} == {
        "image": (tf.uint8, (6, 10, 3)),
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
    names = sw.open(datasets["tabled"]).schema.class_names
    examples = {example["id"].decode(): example for example in ds.as_numpy_iterator()}
    assert examples.keys() == ROWS_BY_ID.keys()
    for path, row in ROWS_BY_ID.items():
        found = {name: plain(value) for name, value in examples[path].items() if name != "image"}
        wanted = {**row, "id": path, "label": names.index(str(row["label"]))}
        assert found == {name: wanted[name] for name in wanted if name not in ("path", "split")}


def test_lists_batch_as_ragged_and_other_columns_stay_dense(datasets: Datasets) -> None:
    ds = sw.load(datasets["tabled"], "train", batch_size=5, image_size=(4, 4), drop_remainder=True)
    batch = next(iter(ds))
    assert ds.element_spec["image"] == tf.TensorSpec((5, 4, 4, 3), tf.uint8)
    assert ds.element_spec["count"] == tf.TensorSpec((5,), tf.int64)
    for name in ("boxes", "scores", "tags"):
        assert isinstance(batch[name], tf.RaggedTensor), name
    rows = [ROWS_BY_ID[path.decode()] for path in batch["id"].numpy()]
    assert batch["boxes"].to_list() == [row["boxes"] for row in rows]


@pytest.mark.long
def test_model_garden_names_stay_flat(datasets: Datasets) -> None:
    classes = sw.open(datasets["garden"]).schema.class_names
    for example in sw.load(datasets["garden"]).as_numpy_iterator():
        path = datasets.stills / example.pop("image/filename").decode()
        pixels = example.pop("image/encoded")
        np.testing.assert_array_equal(pixels, small.pixels_of(path))
        label, kind = example.pop("image/class/label"), example.pop("image/format").decode()
        assert kind == path.suffix[1:] or (path.suffix, kind) == (".jpg", "png")
        assert classes[label] == path.parent.name
        assert example == {
            "image/height": pixels.shape[0],
            "image/width": pixels.shape[1],
            "image/class/text": path.parent.name.encode(),
        }
    image, label = next(iter(sw.load(datasets["garden"], as_supervised=True)))
    assert (image.dtype, label.dtype) == (tf.uint8, tf.int64)


def test_features_picks_and_orders(datasets: Datasets) -> None:
    picked = sw.load(datasets["mixed"], features=["label", "id"])
    assert list(picked.element_spec) == ["label", "id"]
    labels = sw.load(datasets["mixed"], features=["label"], batch_size=4)
    assert labels.element_spec == {"label": tf.TensorSpec((None,), tf.int64)}


def test_decode_false_gives_the_stored_bytes(datasets: Datasets) -> None:
    batches = sw.load(datasets["mixed"], "all", decode=False, batch_size=8)
    for example in batches.unbatch().as_numpy_iterator():
        assert example["image"] == (datasets.folders / example["id"].decode()).read_bytes()


def test_without_shuffle_records_come_as_stored(datasets: Datasets) -> None:
    records = tf.data.TFRecordDataset(datasets.shards("mixed", "train")).as_numpy_iterator()
    stored = [tf.train.Example.FromString(record).features.feature["id"] for record in records]
    ids = [feature.bytes_list.value[0].decode() for feature in stored]
    assert tensor_ids(sw.load(datasets["mixed"])) == tensor_ids(sw.load(datasets["mixed"])) == ids


@pytest.mark.long
def test_keras_learns_from_it(datasets: Datasets) -> None:
    ds = sw.load(datasets["raw"], batch_size=7, shuffle=True, as_supervised=True)
    layers = tf.keras.layers
    model = tf.keras.Sequential([layers.Flatten(), layers.Dense(3, activation="softmax")])
    model.compile(loss="sparse_categorical_crossentropy")
    fitted = model.fit(ds, epochs=2, shuffle=False, verbose=0)
    assert np.isfinite(fitted.history["loss"]).all()


READ_ALL = """
import sys
import shardwright as sw
# TensorFlow warns once a process of how errors are made (tf_errors).
list(sw.load(sys.argv[1], batch_size=4, shuffle=True))
print("READ", file=sys.stderr, flush=True)
list(sw.load(sys.argv[1], batch_size=4, shuffle=True))
next(iter(sw.Reader(sys.argv[1], global_batch_size=2, shuffle=True).tf_data()))
"""


@pytest.mark.long
def test_prints_nothing(datasets: Datasets) -> None:
    """In a process of its own, which ends in the middle of a reading: TensorFlow may log others."""
    command = [sys.executable, "-c", READ_ALL, datasets["raw"]]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=280)
    assert done.stdout == ""
    assert done.stderr.partition("READ\n")[1:] == ("READ\n", "")


BATCHED = {"shuffle": True, "image_size": (64, 64)}


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("checkpoint")
    images = small.write_flat_folder(folder / "in", 90)
    return small.build(images, folder / "out", "--shard-count", "4")


def ids_of(elements: Iterable[dict[str, tf.Tensor]]) -> list[list[bytes]]:
    return [np.atleast_1d(element["id"].numpy()).tolist() for element in elements]


@pytest.mark.long
@pytest.mark.parametrize(
    ("taken", "following", "arguments"),
    [
        (60, 30, {}),
        (60, 10, {"split": "train[10:80]"}),
        (15, 20, {"repeat": True, "batch_size": 7}),
        (5, 6, {**BATCHED, "window": 2, "batch_size": 8}),
        (15, 20, {"shuffle": True, "seed": 5, "decode": False, "batch_size": 7, "repeat": True}),
        (60, 30, {"max_bad_records": 3}),
        (60, 30, {**BATCHED, "keep": "images", "repeat": True}),
    ],
    ids=str,
)
def test_goes_on_exactly_and_the_checkpoint_is_small(
    flat: str, tmp_path: Path, taken: int, following: int, arguments: dict[str, Any]
) -> None:
    iterator = iter(sw.load(flat, **arguments))
    before = ids_of(islice(iterator, taken))
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
    expected = ids_of(islice(iterator, following))

    again = iter(sw.load(flat, **arguments))
    tf.train.Checkpoint(iterator=again).restore(path).assert_consumed()

    assert ids_of(islice(again, following)) == expected
    assert (len(before), len(expected)) == (taken, following)
    assert expected != before[:following]
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 20_000


@pytest.mark.long
def test_epochs_after_a_restored_one_are_the_next_ones(flat: str, tmp_path: Path) -> None:
    ds = sw.load(flat, shuffle=True, features=["id"])
    ids_of(ds)
    iterator = iter(ds)
    ids_of(islice(iterator, 40))
    path = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
    rest, third = ids_of(iterator), ids_of(ds)

    fresh = sw.load(flat, shuffle=True, features=["id"])
    restored = iter(fresh)
    tf.train.Checkpoint(iterator=restored).restore(path)

    assert ids_of(restored) == rest
    assert ids_of(fresh) == third


@pytest.mark.long
def test_saving_warns_of_nothing(flat: str, tmp_path: Path, capfd: Any) -> None:
    """TensorFlow warns of operations whose state a checkpoint lacks."""
    capfd.readouterr()
    for number, arguments in enumerate([{}, {"max_bad_records": 1}, {"keep": "images"}]):
        iterator = iter(sw.load(flat, **BATCHED, batch_size=4, **arguments))
        next(iterator)
        tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / f"saved-{number}"))

    out, err = capfd.readouterr()
    assert out == ""
    # It always logs that it saves, and sometimes its own graph rewriting.
    usual = ("Saving symbolic checkpoint", "node_def_util.cc")
    assert [line for line in err.splitlines() if not any(text in line for text in usual)] == []
