"""Masks that are cropped, resized by the nearest pixel and flipped with their image."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from shardwright.errors import ImageFault
from shardwright.format.schema import Feature, FeatureKind
from shardwright.format.tensors import to_tensor_proto as tensor
from shardwright.images.crops import Crop, View, draw_crop
from shardwright.images.masks import show_mask
from tests.support.image_makers import saved

MASK = Feature("mask", FeatureKind.MASK, encoding="png")
TENSOR = Feature("mask", FeatureKind.MASK, encoding="tensor")
WIDE = Feature("mask", FeatureKind.MASK, encoding="png", dtype="uint16")


def numbers(height: int, width: int) -> NDArray[np.uint8]:
    return np.random.default_rng(height).integers(0, 256, (height, width), np.uint8)


def png(pixels: NDArray[np.uint8] | NDArray[np.uint16]) -> bytes:
    return cv2.imencode(".png", pixels)[1].tobytes()


def whole(height: int, width: int, *, flip: bool = False) -> View:
    return View((height, width), Crop(0, 0, height, width), (height, width), flip)


@given(st.tuples(*[st.integers(1, 60)] * 4), st.integers(0, 2**64 - 1), st.booleans())
def test_a_mask_shows_the_nearest_pixels(
    sides: tuple[int, int, int, int], draw: int, flip: bool
) -> None:
    """As Pillow resizes the crop, but for centers on an edge, which Pillow rounds either way."""
    height, width, *size = sides
    given_numbers = numbers(height, width)
    crop = draw_crop(draw, height, width, scale=(0.08, 1), ratio=(0.5, 2))
    view = View((height, width), crop, (size[0], size[1]), flip)
    part = Image.fromarray(given_numbers).crop(
        (crop.left, crop.top, crop.left + crop.width, crop.top + crop.height)
    )
    wanted = np.asarray(part.resize((size[1], size[0]), Image.Resampling.NEAREST))
    found = show_mask(MASK, png(given_numbers), view)
    assert (found.shape, found.dtype) == ((*size, 1), np.uint8)
    down, across = (
        (2 * np.arange(side) + 1) * length % (2 * side) > 0
        for side, length in ((size[0], crop.height), (size[1], crop.width))
    )
    upright = found[:, ::-1, 0] if flip else found[..., 0]
    np.testing.assert_array_equal(upright[down][:, across], wanted[down][:, across])


def test_a_mask_between_bars() -> None:
    pixels = numbers(5, 7)
    for flip in (False, True):
        view = View((5, 7), Crop(0, 0, 5, 7), (9, 8), flip, Crop(2, 1, 5, 7))
        wanted = np.zeros((9, 8), np.uint8)
        wanted[2:7, 1:] = pixels[:, ::-1] if flip else pixels
        np.testing.assert_array_equal(show_mask(MASK, png(pixels), view)[..., 0], wanted)


def test_every_form_of_a_mask() -> None:
    pixels = numbers(5, 7)
    raw = Feature("mask", FeatureKind.MASK, encoding="raw", shape=(5, 7, 1))
    for feature, data in ((MASK, png(pixels)), (raw, pixels.tobytes())):
        np.testing.assert_array_equal(show_mask(feature, data, whole(5, 7))[..., 0], pixels)
    large = pixels.astype(np.uint16) * 200
    shown = show_mask(WIDE, png(large), whole(5, 7, flip=True))
    assert shown.dtype == np.uint16
    np.testing.assert_array_equal(shown[:, ::-1, 0], large)
    np.testing.assert_array_equal(show_mask(MASK, png(large // 200), whole(5, 7))[..., 0], pixels)


def test_masks_that_cannot_be_shown() -> None:
    pixels = numbers(5, 7)
    for feature, data, message in [
        (MASK, png(pixels)[:60], "'mask' is damaged or cut short"),
        (MASK, b"no image", "'mask' is damaged"),
        (MASK, b"", "'mask' cannot be decoded"),
        (MASK, png(pixels.astype(np.uint16) * 257), "which does not fit uint8: .*dtype 'uint16'"),
        (MASK, saved(Image.fromarray(pixels.T), "PNG"),
         "'mask' has 5 x 7 pixels, but its image has 7 x 5"),
        (Feature("mask", FeatureKind.MASK, encoding="raw", shape=(5, 7, 1)), b"123",
         "'mask' cannot be decoded"),
        (MASK, saved(Image.fromarray(pixels).convert("P"), "PNG"), "cannot be decoded: a PNG "),
        (MASK, png(pixels)[:20], "'mask' is damaged or cut short"),
        (TENSOR, tensor(np.uint8(3)), r"cannot be decoded: a tensor of uint8 with shape \(\)"),
        (TENSOR, tensor(pixels[..., None] / 2), "cannot be decoded: a tensor of float64"),
        (TENSOR, tensor(pixels), r"cannot be decoded: .* with shape \(5, 7\)"),
        (TENSOR, tensor(pixels[..., None] - np.int64(256)), "'mask' holds -.*, which does not fit"),
    ]:  # fmt: skip
        with pytest.raises(ImageFault, match=message):
            show_mask(feature, data, whole(5, 7))
