"""Values of float32 pixels."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from keras.applications.imagenet_utils import preprocess_input

from shardwright.images.normalization import Normalization

PIXELS = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3)
TORCH = "0.485,0.456,0.406/0.229,0.224,0.225"


def test_values_are_those_of_tensorflow_and_keras() -> None:
    def values(text: str) -> np.ndarray:
        return Normalization.parse(text).to_values(PIXELS)

    assert (values("") == values("0..1")).all()
    np.testing.assert_allclose(values(""), tf.image.convert_image_dtype(PIXELS, tf.float32), 1e-6)
    for text, mode in (("-1..1", "tf"), (TORCH, "torch")):
        theirs = preprocess_input(PIXELS.astype(np.float32), mode=mode)
        np.testing.assert_allclose(values(text), theirs, atol=1e-6)
        assert values(text).dtype == np.float32
