"""Values of float32 pixels, and the way back."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from keras.applications.imagenet_utils import preprocess_input

from shardwright.format.tensors import to_tensor_proto
from shardwright.images.decode import StoredImage
from shardwright.images.normalization import Normalization
from shardwright.images.specs import DecodedImage, TrainImage

PIXELS = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3)
TORCH = "0.485,0.456,0.406/0.229,0.224,0.225"
TEXTS = ["", "0..1", "-1..1", TORCH]


def test_values_are_those_of_tensorflow_and_keras() -> None:
    def values(text: str) -> np.ndarray:
        return Normalization.parse(text).to_values(PIXELS)

    assert (values("") == values("0..1")).all()
    np.testing.assert_allclose(values(""), tf.image.convert_image_dtype(PIXELS, tf.float32), 1e-6)
    for text, mode in (("-1..1", "tf"), (TORCH, "torch")):
        theirs = preprocess_input(PIXELS.astype(np.float32), mode=mode)
        np.testing.assert_allclose(values(text), theirs, atol=1e-6)
        assert values(text).dtype == np.float32


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("encoding", ["raw", "tensor"])
def test_the_reader_gives_stored_floats_or_the_pixels_back(text: str, encoding: str) -> None:
    normalization = Normalization.parse(text)
    values = normalization.to_values(PIXELS)
    assert (normalization.to_pixels(values) == PIXELS).all()
    stored = StoredImage(encoding, PIXELS.shape, "float32", normalization)
    data = values.tobytes() if encoding == "raw" else to_tensor_proto(values)
    floats, pixels = (
        DecodedImage(dtype=dtype).apply(data, stored, 0, None) for dtype in ("float32", "uint8")
    )
    assert (floats == values).all()
    assert (pixels == PIXELS).all()
    crop = TrainImage(4, dtype="float32").apply(data, stored, 1, None)
    assert normalization.to_pixels(crop).dtype == np.uint8
    assert values.min() <= crop.min() < crop.max() <= values.max()
