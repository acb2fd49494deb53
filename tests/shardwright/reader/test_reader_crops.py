"""`sw.MultiCrop`: several crops of each image, in batches, examples and every framework."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tensorflow as tf

import shardwright as sw
from shardwright.errors import UsageError
from shardwright.reader.examples import ExampleSource
from tests.support.trainer_datasets import pictures_fixture, read, scenes_fixture  # noqa: F401

VIEWS = sw.MultiCrop(sw.TrainImage(12), sw.TrainImage(12), sw.TrainImage((6, 8), dtype="float32"))
NAMES = ["image_0", "image_1", "image_2"]
OPTIONS: dict[str, Any] = {
    "features": ["id", "image", "label"], "shuffle": True, "image": VIEWS, "remainder": "pad",
    "epochs": 1,
}  # fmt: skip


def check_equal(batch: Any, other: Any) -> None:
    assert batch.keys() == other.keys()
    for name in NAMES:
        np.testing.assert_array_equal(batch[name], other[name])


@pytest.mark.long
def test_a_batch_has_each_crop_in_the_place_of_the_image(pictures: str) -> None:
    reader, alone = read(pictures, **OPTIONS), read(pictures, **OPTIONS | {"image": VIEWS.crops[0]})
    rows = reader.options.global_batch_size
    assert list(reader.element_spec) == ["id", *NAMES, "label", "mask"]
    assert reader.element_spec["image_2"] == ((rows, 6, 8, 3), np.float32)
    for batch, other in zip(reader, alone, strict=True):
        assert list(batch) == ["id", *NAMES, "label", "mask"]
        assert all(batch[name].ctypes.data % 64 == 0 for name in NAMES)
        np.testing.assert_array_equal(batch["image_0"], other["image"])
        assert not np.array_equal(batch["image_0"], batch["image_1"])
        for name in NAMES:
            assert not batch[name][~batch["mask"]].any()
            assert batch[name][batch["mask"]].any(axis=(1, 2, 3)).all()


def test_states_epochs_and_examples(pictures: str) -> None:
    reader = read(pictures, **OPTIONS)
    batches = list(reader)
    reader.go_to(0)
    next(iter(reader))
    check_equal(next(iter(read(pictures, **OPTIONS, state=reader.state()))), batches[1])
    later = list(read(pictures, **OPTIONS | {"epochs": 2}))[len(batches) :]
    assert not np.array_equal(later[0]["image_1"], batches[0]["image_1"])
    in_order = OPTIONS | {"shuffle": False, "remainder": "keep"}
    source, (batch, *_) = ExampleSource(reader.options), list(read(pictures, **in_order))
    for number in range(4):
        for name in NAMES:
            np.testing.assert_array_equal(source.examples([number])[0][name], batch[name][number])


def test_a_split_in_memory(pictures: str) -> None:
    dataset = sw.open(pictures)
    arrays = dataset.to_numpy("train", image=VIEWS, max_bytes="8MB")
    num_bytes = sum(arrays[name].nbytes for name in NAMES)
    with pytest.raises(UsageError, match=r"take .* in memory, more than max_bytes"):
        dataset.to_numpy("train", image=VIEWS, max_bytes=num_bytes - 1)
    assert dataset.to_numpy("train", image=VIEWS, max_bytes=num_bytes).keys() == arrays.keys()


@pytest.mark.long
def test_frameworks_get_all_crops(pictures: str) -> None:
    expected = list(read(pictures, **OPTIONS))

    def reader(**options: Any) -> sw.Reader:
        return read(pictures, **OPTIONS | options)

    dataset = reader().tf_data()
    assert dataset.element_spec["image_2"].shape[1:] == (6, 8, 3)
    for made in (dataset, reader().jax(), reader().grain()):
        for batch, wanted in zip(made, expected, strict=True):
            check_equal(batch, wanted)
    assert isinstance(next(iter(reader().jax()))["image_1"], jax.Array)
    supervised = reader().tf_data(as_supervised=True)
    for made in (supervised, reader().keras()):
        for (images, labels, _), wanted in zip(made, expected, strict=True):
            assert list(images) == NAMES
            np.testing.assert_array_equal(images["image_1"], wanted["image_1"])
            np.testing.assert_array_equal(labels, wanted["label"])
    ragged = reader(image=sw.MultiCrop(sw.TrainImage(4), sw.DecodedImage())).tf_data()
    assert isinstance(ragged.element_spec["image_1"], tf.RaggedTensorSpec)
    assert next(iter(ragged))["image_1"][0].to_tensor().shape[2] == 3


def test_names_and_features_that_do_not_fit(pictures: str, scenes: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"sw\.MultiCrop\(\.\.\.\), or None for bytes"):
        read(pictures, image=224)
    with pytest.raises(UsageError, match="needs the image: add 'image' to features="):
        read(pictures, image=VIEWS, features=["label"])
    stay = "MultiCrop crops the image, but objects/bbox would stay as stored: leave it out"
    with pytest.raises(UsageError, match=stay):
        read(scenes, image=VIEWS, features=None)
    pixels = np.zeros((8, 8, 3), np.uint8)
    sw.write([{"image": pixels, "image_1": 3}] * 4, tmp_path / "named")
    with pytest.raises(UsageError, match="MultiCrop names a crop 'image_1', and so is a feature"):
        read(str(tmp_path / "named"), image=VIEWS, features=None)
    only = read(str(tmp_path / "named"), image=VIEWS, features=["image"], epochs=1)
    assert list(next(iter(only))) == NAMES
