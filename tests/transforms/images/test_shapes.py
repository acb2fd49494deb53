"""Sizes, tensors and channels: the stored bytes, pixel by pixel."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from shardwright.images.kinds import ImageInfo
from shardwright.transforms.images.checks import check_image
from shardwright.transforms.images.options import EncodeOptions
from tests.support.encoded_images import encode_image
from tests.support.image_makers import drawn, exif_block, opened, picture, saved

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

RED, BLUE, BLACK = (255, 0, 0), (0, 0, 255), (0, 0, 0)
FITS = ["cover", "contain", "stretch"]


def pixels(data: bytes, size: tuple[int, int] | None, fit: Any = "stretch") -> NDArray[Any]:
    """Re-encode as PNG, and decode that."""
    stored, info = encode_image(data, EncodeOptions("png", size, fit=fit))
    assert (info.format, opened(stored).size) == ("png", (info.width, info.height))
    return np.asarray(opened(stored).convert("RGB")).astype(int)


def red_png(size: tuple[int, int], *blue: int) -> bytes:
    """Return a red image with a blue rectangle: left, top, right, bottom."""
    image = Image.new("RGB", size, RED)
    if blue:
        image.paste(BLUE, blue)
    return saved(image, "PNG")


def test_cover_crops_the_middle_stretch_takes_all_and_contain_fills_with_black() -> None:
    shown = pixels(red_png((80, 20), 30, 0, 50, 20), (10, 10), "cover")
    assert (shown[:, 1:-1] == BLUE).all()  # at the edges, their neighbors are mixed in
    assert (shown.argmax(axis=2) == 2).all()
    shown = pixels(red_png((80, 20), 40, 0, 80, 20), (10, 10), "stretch")
    assert (shown[:, 0] == RED).all()
    assert (shown[:, -1] == BLUE).all()
    shown = pixels(red_png((80, 20)), (40, 40), "contain")
    assert (shown[15:25] == RED).all()
    assert (shown[:15] == BLACK).all()
    assert (shown[25:] == BLACK).all()


@pytest.mark.parametrize("size", [(80, 20), (20, 80), (33, 20), (21, 80)])
def test_contain_is_where_tensorflow_pads_to_a_pixel(size: tuple[int, int]) -> None:
    ours = pixels(red_png(size), (41, 40), "contain")[:, :, 0] > 0
    padded = tf.image.resize_with_pad(np.full((size[1], size[0], 3), 255.0), 40, 41)
    assert (ours != (np.asarray(padded)[:, :, 0] > 0)).sum() <= 2 * 41


@pytest.mark.parametrize("orientation", range(1, 9))
def test_resizing_a_turned_image_is_turning_it_first(orientation: int) -> None:
    data = saved(picture(size=(90, 40)), "PNG", exif=exif_block(orientation))
    turned = encode_image(data, EncodeOptions("png"))[0]
    for fit in FITS:
        assert np.abs(pixels(data, (30, 24), fit) - pixels(turned, (30, 24), fit)).max() <= 1


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_jpeg_decoded_at_a_quarter_shows_the_same_part(orientation: int) -> None:
    large = picture(size=(80, 60)).resize((800, 600))
    data = saved(large, "JPEG", quality=95, exif=exif_block(orientation))
    whole = encode_image(data, EncodeOptions("png"))[0]
    for fit in FITS:
        assert np.abs(pixels(data, (50, 60), fit) - pixels(whole, (50, 60), fit)).mean() < 3


@pytest.mark.parametrize("mode", ["1", "L", "I;16", "LA", "P", "RGB", "RGBA"])
@pytest.mark.parametrize("values", [
    {"resize": (20, 30), "fit": "contain"}, {"resize": (20, 30), "fit": "cover"}, {"max_side": 20},
])  # fmt: skip
def test_every_mode_in_every_fit(mode: str, values: Any) -> None:
    stored, info = encode_image(drawn("PNG", mode), EncodeOptions("png", **values))
    assert (info.width, info.height) == values.get("resize", (20, 15))
    assert check_image(stored, "decode") == info
    assert opened(stored).mode == {"1": "L", "P": "RGB"}.get(mode, mode)


def test_max_side_only_shrinks() -> None:
    sizes = {(200, 100): (64, 32), (100, 200): (32, 64), (64, 64): (64, 64), (10, 20): (10, 20)}
    for size, expected in sizes.items():
        data = saved(picture(size=size), "JPEG")
        _, info = encode_image(data, EncodeOptions("jpeg", max_side=64))
        assert (info.width, info.height) == expected


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("encode", ["jpeg", "png", "raw"])
def test_grayscale_is_one_channel(mode: str, encode: Any) -> None:
    data = drawn("JPEG" if mode == "CMYK" else "PNG", mode)
    stored, info = encode_image(data, EncodeOptions(encode, (8, 6), grayscale=True))
    assert info == ImageInfo(encode, 8, 6, 1)
    assert encode != "raw" or len(stored) == 48


def test_gray_of_a_jpeg_is_its_brightness() -> None:
    """Libjpeg gives it without decoding the colors."""
    data = drawn("JPEG", quality=95)
    gray = opened(encode_image(data, EncodeOptions("png", grayscale=True))[0])
    difference = np.asarray(gray).astype(int) - np.asarray(opened(data).convert("L"))
    assert np.abs(difference).max() <= 3
