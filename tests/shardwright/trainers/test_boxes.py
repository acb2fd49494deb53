"""Boxes that move with the image, in each framework: the batches are those of the reader."""

from __future__ import annotations

from typing import Any

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf

import shardwright as sw
from shardwright.errors import UsageError
from tests.support.trainer_datasets import NUM_SCENES, scenes_fixture  # noqa: F401

BOX, LABEL, BOX_MASK = "objects/bbox", "objects/label", "objects/bbox_mask"
CROP = sw.TrainImage(32, boxes=BOX)
PADDED = sw.TrainImage(32, boxes=sw.Boxes(BOX, max_boxes=2))


def read(dataset: str, image: Any = PADDED, **options: Any) -> sw.Reader:
    defaults = {"batch_size": 8, "epochs": 1, "shuffle": True, "seed": 5, "image": image}
    return sw.Reader(dataset, **{**defaults, **options})


def test_padded_boxes_in_jax(scenes: str) -> None:
    for found, wanted in zip(read(scenes).jax(), read(scenes), strict=True):
        for name in (BOX, LABEL, BOX_MASK):
            assert isinstance(found[name], jax.Array)
            np.testing.assert_array_equal(found[name], wanted[name])


def test_lists_of_boxes_stay_in_numpy_in_jax(scenes: str) -> None:
    for found, wanted in zip(read(scenes, CROP).jax(), read(scenes, CROP), strict=True):
        for one, other in zip(found[BOX], wanted[BOX], strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.long
def test_lists_of_boxes_in_tf_data(scenes: str) -> None:
    dataset = read(scenes, CROP).tf_data()
    assert dataset.element_spec[BOX] == tf.RaggedTensorSpec([8, None, 4], tf.float32, 1)
    for found, wanted in zip(dataset, read(scenes, CROP), strict=True):
        assert found[LABEL].to_list() == [labels.tolist() for labels in wanted[LABEL]]
        for one, other in zip(found[BOX], wanted[BOX], strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.long_but_first
@pytest.mark.parametrize("remainder", ["drop", "pad"])
def test_padded_boxes_in_tf_data_and_keras(scenes: str, remainder: str) -> None:
    """Their labels are a dict of the boxes, the lists and the mask."""
    reader = read(scenes, remainder=remainder, batch_size=12)
    dataset, data = reader.tf_data(), read(scenes, remainder=remainder, batch_size=12).keras()
    assert dataset.element_spec[BOX] == tf.TensorSpec([12, 2, 4], tf.float32)
    assert dataset.element_spec[BOX_MASK] == tf.TensorSpec([12, 2], tf.bool)
    pairs = read(scenes, remainder=remainder, batch_size=12).tf_data(as_supervised=True)
    if remainder == "drop":  # `load` reads the boxes of such pairs, too
        options: dict[str, Any] = {
            "image": PADDED,
            "shuffle": True,
            "seed": 5,
            "as_supervised": True,
        }
        pairs = sw.load(scenes, batch_size=12, drop_remainder=True, **options)
    batches = read(scenes, remainder=remainder, batch_size=12)
    for wanted, whole, pair, given in zip(batches, dataset, pairs, data, strict=True):
        assert len(pair) == len(given) == (3 if remainder == "pad" else 2)
        assert set(pair[1]) == set(given[1]) == {BOX, LABEL, BOX_MASK}
        for name, column in given[1].items():
            np.testing.assert_array_equal(column, wanted[name])
            np.testing.assert_array_equal(pair[1][name], wanted[name])
            np.testing.assert_array_equal(whole[name], wanted[name])


def test_lists_of_boxes_are_refused_by_keras(scenes: str) -> None:
    with pytest.raises(UsageError, match=r"'objects/bbox' has a list of boxes per image.*max_box"):
        read(scenes, CROP).keras()
    assert isinstance(read(scenes, CROP).tf_data(as_supervised=True).element_spec[1], dict)


@pytest.mark.long
def test_keras_fits_boxes(scenes: str) -> None:
    """A model whose outputs have the names of the targets."""
    image = keras.Input((32, 32, 3))
    features = keras.layers.Flatten()(image)
    boxes = keras.layers.Reshape((2, 4))(keras.layers.Dense(8)(features))
    scores = keras.layers.Dense(2, activation="sigmoid")(features)
    model = keras.Model(image, {BOX: boxes, BOX_MASK: scores})
    model.compile(loss={BOX: "mse", BOX_MASK: "binary_crossentropy"})
    data = read(scenes, features=["image", BOX], batch_size=20).keras()
    assert len(model.fit(data, epochs=2, verbose=0).epoch) == 2


def test_padded_boxes_in_grain(scenes: str) -> None:
    wanted = [batch[BOX] for batch in read(scenes)]
    for found, boxes in zip(read(scenes).grain(), wanted, strict=True):
        np.testing.assert_array_equal(found[BOX], boxes)
    examples = read(scenes).grain_source()
    (batch,) = examples.batch(NUM_SCENES)
    (rows,) = read(scenes, batch_size=NUM_SCENES, shuffle=False)
    for name in (BOX, LABEL, BOX_MASK):
        np.testing.assert_array_equal(batch[name], rows[name])
