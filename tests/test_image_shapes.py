"""Sizes, tensors and channels: what is in the bytes that are stored, pixel by pixel."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.image_corpus import JPEG
from tests.image_makers import exif_block, picture, png, saved
from tests.test_image_encode import opened
from transforms.images import EncodeOptions, ImageInfo, check_image, encode_image

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

RED, BLUE, BLACK = (255, 0, 0), (0, 0, 255), (0, 0, 0)


def pixels(data: bytes, options: EncodeOptions) -> Any:
    stored, info = encode_image(data, options)
    assert (info.format, opened(stored).size) == ("png", (info.width, info.height))
    return np.asarray(opened(stored).convert("RGB"))


def halves(size: tuple[int, int]) -> Image.Image:
    """Red on the left, blue on the right."""
    image = Image.new("RGB", size, RED)
    image.paste(Image.new("RGB", (size[0] // 2, size[1]), BLUE), (size[0] // 2, 0))
    return image


def test_cover_crops_the_middle() -> None:
    image = Image.new("RGB", (80, 20), RED)
    image.paste(Image.new("RGB", (20, 20), BLUE), (30, 0))
    shown = pixels(saved(image, "PNG"), EncodeOptions("png", (10, 10), fit="cover"))
    assert (shown[:, 1:-1] == BLUE).all()  # at the edges, what is behind them is mixed in
    assert (shown.argmax(axis=2) == 2).all()


def test_contain_fills_with_black() -> None:
    shown = pixels(
        saved(Image.new("RGB", (80, 20), RED), "PNG"), EncodeOptions("png", (40, 40), fit="contain")
    )
    assert (shown[15:25] == RED).all()
    assert (shown[:15] == BLACK).all()
    assert (shown[25:] == BLACK).all()


def test_contain_is_where_tensorflow_pads_to_a_pixel() -> None:
    for size in ((80, 20), (20, 80), (33, 20), (21, 80)):
        shown = pixels(
            saved(Image.new("RGB", size, RED), "PNG"), EncodeOptions("png", (41, 40), fit="contain")
        )
        theirs = tf.image.resize_with_pad(np.full((size[1], size[0], 3), 255.0), 40, 41)
        assert (
            np.abs((shown[:, :, 0] > 0).astype(int) - (np.asarray(theirs)[:, :, 0] > 0)).sum()
            <= 2 * 41
        )


def test_stretch_takes_all_of_it() -> None:
    shown = pixels(saved(halves((80, 20)), "PNG"), EncodeOptions("png", (10, 10)))
    assert (shown[:, 0] == RED).all()
    assert (shown[:, -1] == BLUE).all()


@pytest.mark.parametrize("fit", ["cover", "contain", "stretch"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_sizes_are_those_of_the_upright_image(fit: Any, orientation: int) -> None:
    """The same as turning first, whatever is done first inside."""
    data = saved(picture(size=(90, 40)), "PNG", exif=exif_block(orientation))
    turned = encode_image(data, EncodeOptions("png"))[0]
    options = EncodeOptions("png", (30, 24), fit=fit)
    difference = pixels(data, options).astype(int) - pixels(turned, options).astype(int)
    assert np.abs(difference).max() <= 1


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("fit", ["cover", "contain", "stretch"])
def test_a_reduced_jpeg_shows_the_same_part(fit: Any, orientation: int) -> None:
    """libjpeg decodes at a fraction of the size, of which the same rectangle must be taken."""
    large = picture(size=(160, 120)).resize((1600, 1200))
    data = saved(large, "JPEG", quality=95, exif=exif_block(orientation))
    whole = encode_image(data, EncodeOptions("png"))[0]
    options = EncodeOptions("png", (50, 60), fit=fit)
    difference = pixels(data, options).astype(int) - pixels(whole, options).astype(int)
    assert np.abs(difference).mean() < 3


@pytest.mark.parametrize("mode", ["1", "L", "I;16", "LA", "P", "RGB", "RGBA"])
@pytest.mark.parametrize(
    "values",
    [
        {"resize": (20, 30), "fit": "contain"},
        {"resize": (20, 30), "fit": "cover"},
        {"max_side": 20},
    ],
)
def test_every_mode_in_every_fit(mode: str, values: Any) -> None:
    stored, info = encode_image(saved(picture(mode), "PNG"), EncodeOptions("png", **values))
    assert (info.width, info.height) == values.get("resize", (20, 15))
    assert check_image(stored, "decode") == info
    assert opened(stored).mode == {"1": "L", "P": "RGB"}.get(mode, mode)


@pytest.mark.parametrize(
    ("size", "expected"),
    [((200, 100), (64, 32)), ((100, 200), (32, 64)), ((64, 64), (64, 64)), ((10, 20), (10, 20))],
)
def test_max_side_only_shrinks(size: tuple[int, int], expected: tuple[int, int]) -> None:
    _, info = encode_image(saved(picture(size=size), "JPEG"), EncodeOptions("jpeg", max_side=64))
    assert (info.width, info.height) == expected


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("encode", ["jpeg", "png", "raw", "tensor"])
def test_grayscale_is_one_channel(mode: str, encode: Any) -> None:
    data = saved(picture(mode), "JPEG" if mode == "CMYK" else "PNG")
    options = EncodeOptions(encode, (8, 6), grayscale=True)
    stored, info = encode_image(data, options)
    assert info == ImageInfo(encode, 8, 6, 1)
    assert encode != "raw" or len(stored) == 48


def test_gray_of_a_jpeg_is_its_brightness() -> None:
    """libjpeg gives it without decoding the colours."""
    data = saved(picture(), "JPEG", quality=95)
    gray = np.asarray(opened(encode_image(data, EncodeOptions("png", grayscale=True))[0])).astype(
        int
    )
    assert np.abs(gray - np.asarray(opened(data).convert("L")).astype(int)).max() <= 3


@pytest.mark.parametrize("grayscale", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_tensors_are_what_tensorflow_would_write(dtype: Any, grayscale: bool) -> None:
    options = EncodeOptions("tensor", tensor_dtype=dtype, grayscale=grayscale)
    stored, info = encode_image(saved(picture(), "PNG"), options)
    expected = np.asarray(picture().convert("L" if grayscale else "RGB")).reshape(47, 61, -1)
    tensor = tf.convert_to_tensor(expected)
    tensor = tf.image.convert_image_dtype(tensor, tf.float32) if dtype == "float32" else tensor
    assert np.allclose(tf.io.parse_tensor(stored, tensor.dtype), tensor, atol=1e-7, rtol=0)
    assert len(stored) == len(tf.io.serialize_tensor(tensor).numpy())
    assert info == ImageInfo("tensor", 61, 47, 1 if grayscale else 3)
    assert dtype == "float32" or stored == tf.io.serialize_tensor(tensor).numpy()


def test_tensors_need_no_size() -> None:
    shapes = [
        tuple(tf.io.parse_tensor(encode_image(data, EncodeOptions("tensor"))[0], tf.uint8).shape)
        for data in (JPEG, png((7, 5)), saved(picture("RGBA", (9, 4)), "PNG"))
    ]
    assert shapes == [(47, 61, 3), (5, 7, 3), (4, 9, 3)]
