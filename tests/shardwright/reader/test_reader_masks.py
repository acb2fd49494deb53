"""`sw.Reader` with `masks=`: masks are decoded, and follow the crop of the image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import shardwright as sw
from shardwright.errors import UsageError
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.reader.examples import ExampleSource

MASK, BOX = "segmentation_mask", "objects/bbox"
SCHEMA = ExampleSchema((
    Feature("image", FeatureKind.IMAGE, Source.IMAGE),
    Feature("id", FeatureKind.TEXT, Source.ID),
    Feature(MASK, FeatureKind.MASK),
    Feature("depth", FeatureKind.MASK, dtype="uint16", default=""),
    Feature(BOX, FeatureKind.BOX, shape=(None, 4), sequence="objects"),
))  # fmt: skip
BOTH = [MASK, "depth"]


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 images of a bright rectangle, whose pixels have the number 7 in the mask."""
    rng = np.random.default_rng(0)
    records = []
    for number in range(12):
        height, width = (int(side) for side in rng.integers(40, 80, 2))
        (top, left), (bottom, right) = rng.integers(0, 20, 2), rng.integers(30, 40, 2)
        mask = np.zeros((height, width), np.uint8)
        mask[top:bottom, left:right] = 7
        image = np.repeat((mask > 0)[..., None], 3, axis=2).astype(np.uint8) * 255
        box = [top / height, left / width, bottom / height, right / width]
        depth = mask.astype(np.uint16) * 1000 if number else ""
        record = {"id": f"{number:02d}", "image": image, MASK: mask, "depth": depth, BOX: [box]}
        records.append(record)
    root = tmp_path_factory.mktemp("masked") / "out"
    sw.write(records, root, schema=SCHEMA)
    return root


def read(dataset: Path, image: Any, **options: Any) -> sw.Reader:
    return sw.Reader(dataset, **{"batch_size": 4, "epochs": 1, "image": image, **options})


@pytest.mark.parametrize("image", [
    sw.TrainImage(32, masks=BOTH, boxes=BOX), sw.EvalImage((24, 40), masks=BOTH, boxes=BOX),
    sw.DecodedImage(64, masks=BOTH, boxes=BOX), sw.DecodedImage(masks=BOTH, boxes=BOX),
], ids=str)  # fmt: skip
def test_masks_are_those_that_the_image_shows(masked: Path, image: Any) -> None:
    reader = read(masked, image, shuffle=True, epochs=3)
    for batch in reader:
        for row, pixels in enumerate(batch["image"]):
            mask, depth = batch[MASK][row], batch["depth"][row]
            assert (mask.shape, mask.dtype) == ((*pixels.shape[:2], 1), np.uint8)
            assert set(np.unique(mask)) <= {0, 7}
            bright = pixels[..., :1] > 127
            assert ((mask > 0) == bright).mean() > 0.9
            assert depth.dtype == np.uint16
            if batch["id"][row] == "00":  # a mask that the record lacks
                assert not depth.any()
                assert len(depth) == (0 if image.shape[0] is None else len(pixels))
            else:
                np.testing.assert_array_equal(depth, mask.astype(np.uint16) * 1000)
            for box in batch[BOX][row].round().astype(int):
                inside = mask[box[1] : box[3], box[0] : box[2]]
                assert inside.size == 0 or (inside > 0).mean() > 0.8


@pytest.mark.long
def test_specs_examples_and_states(masked: Path) -> None:
    image = sw.TrainImage(32, masks=MASK)
    options: dict[str, Any] = {"features": ["image", MASK]}
    reader = read(masked, image, **options)
    assert reader.element_spec[MASK] == ((4, 32, 32, 1), np.uint8)
    assert read(masked, sw.DecodedImage(masks=MASK), **options).element_spec[MASK] == ((4,), object)
    batches = list(read(masked, image, **options))
    source = ExampleSource(reader.options)
    for number in range(12):
        wanted = batches[number // 4][MASK][number % 4]
        np.testing.assert_array_equal(source.examples([number])[0][MASK], wanted)
    next(iter(reader))
    resumed = read(masked, image, state=reader.state(), processes=1, **options)
    for found, wanted in zip(resumed, batches[1:], strict=True):
        np.testing.assert_array_equal(found[MASK], wanted[MASK])
    with read(masked, image, processes=2, **options) as processes:
        for found, wanted in zip(processes, batches, strict=True):
            np.testing.assert_array_equal(found[MASK], wanted[MASK])
    (padded,) = read(masked, image, batch_size=16, remainder="pad", **options)
    assert padded[MASK].shape == (16, 32, 32, 1)
    assert not padded[MASK][12:].any()


def test_masks_in_tf_data_and_keras(masked: Path) -> None:
    options: dict[str, Any] = {"features": ["image", MASK]}
    image = sw.TrainImage(32, masks=MASK)
    pairs = read(masked, image, **options).tf_data(as_supervised=True)
    assert pairs.element_spec[1] == tf.TensorSpec([4, 32, 32, 1], tf.uint8)
    data = read(masked, image, **options).keras()
    for wanted, (_, mask), (_, given) in zip(
        read(masked, image, **options), pairs, data, strict=True
    ):
        np.testing.assert_array_equal(mask, wanted[MASK])
        np.testing.assert_array_equal(given, wanted[MASK])
    whole = sw.DecodedImage(masks=MASK)
    for found, wanted in zip(
        read(masked, whole, **options).tf_data(), read(masked, whole, **options), strict=True
    ):
        for row, mask in enumerate(wanted[MASK]):
            np.testing.assert_array_equal(found[MASK][row].to_tensor(), mask)


@pytest.mark.parametrize(("image", "message"), [
    (sw.TrainImage(8), "but .*segmentation_mask, depth.* would stay as stored: name lists"),
    (sw.TrainImage(8, boxes=BOX, masks="depth"), "but segmentation_mask would stay as stored: "),
    (sw.TrainImage(8, masks="mask"), r"masks='mask' is not a mask that is read; those are seg"),
    (sw.DecodedImage(masks=BOX), "masks='objects/bbox' is not a mask"),
], ids=str)  # fmt: skip
def test_invalid_masks(masked: Path, image: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(masked, image)


def test_masks_need_names() -> None:
    with pytest.raises(UsageError, match=r"masks=3 must be the name of a feature, or a list of"):
        sw.TrainImage(8, masks=3)  # type: ignore[arg-type]
