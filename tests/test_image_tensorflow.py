"""What check='decode' passes, TensorFlow decodes to the same pixels; what TensorFlow decodes, it passes."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.image_corpus import Sample, all_samples
from transforms.images import EncodeOptions, ImageFault, ImageInfo, check_image, encode_image

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

# TensorFlow 2.21 frees memory twice when it decodes an animation without alpha and drops all frames but the first:
# the process dies. So these are refused when they are to be stored, and never shown to it here.
KILLS_TENSORFLOW = {"webp-animated"}

# TensorFlow decodes these, and they are refused all the same.
REFUSED_ALL_THE_SAME = {
    "bmp-palette": "TensorFlow ignores the palette and shows the indices as gray",
    "bmp-strange-masks": "TensorFlow ignores the masks and shows wrong colours",
    "gif-animated-cut-in-a-later-frame": "the file is cut short, only its first frame is whole",
    "gif-bomb": "the canvas is too large; TensorFlow ignores it and decodes the frame",
    "gif-half-bomb": "the canvas is too large; TensorFlow ignores it and decodes the frame",
    "jpeg-xl": "Pillow cannot read it",
}

# TensorFlow gives the first frame of a GIF, not the canvas around it.
OTHER_SHAPE = {"gif-frame-offset": (20, 30, 3)}

SAMPLES = [sample for sample in all_samples() if sample.name not in KILLS_TENSORFLOW]


def info_of(sample: Sample) -> ImageInfo | None:
    try:
        return check_image(sample.data, "decode")
    except ImageFault:
        return None


def decoded(data: bytes, channels: int) -> tf.Tensor | None:
    try:
        return tf.io.decode_image(data, channels=channels, expand_animations=False)
    except tf.errors.InvalidArgumentError:
        return None


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_tensorflow_agrees(sample: Sample) -> None:
    info, image = info_of(sample), decoded(sample.data, 3)
    if sample.name in REFUSED_ALL_THE_SAME:
        assert info is None
        assert image is not None, "no exception any more: TensorFlow refuses it as well"
        return
    assert (image is not None) == (info is not None)
    if image is None or info is None:
        return
    assert tuple(image.shape) == OTHER_SHAPE.get(sample.name, (info.height, info.width, 3))
    as_stored = decoded(sample.data, 0)
    assert as_stored is not None
    assert as_stored.shape[-1] == info.channels


# TensorFlow drops transparency where encode_image shows it on white, and does not turn by EXIF.
OWN_WAY = (
    "transparent",
    "color4",
    "color6",
    "png-LA",
    "png-RGBA",
    "jpeg-turned",
    "gif-frame-offset",
)
ALIKE = [
    sample for sample in SAMPLES if sample.info and not any(part in sample.name for part in OWN_WAY)
]


@pytest.mark.parametrize("sample", ALIKE, ids=lambda sample: sample.name)
def test_pixels_are_those_of_tensorflow(sample: Sample) -> None:
    assert sample.info is not None
    size = (sample.info.width, sample.info.height)
    raw, _ = encode_image(sample.data, EncodeOptions(encode="raw", resize=size))
    ours = np.frombuffer(raw, np.uint8).reshape(size[1], size[0], 3).astype(int)
    theirs = np.asarray(decoded(sample.data, 3)).astype(int)
    # Decoders of lossy formats may round and smooth in their own way.
    assert np.abs(ours - theirs).mean() <= (2 if sample.info.format in ("jpeg", "webp") else 0)
