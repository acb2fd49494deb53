"""JPEGs of tiles: a crop has the pixels of the whole image, from the tiles under it alone."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from typing import Any

import cv2
import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from shardwright.errors import ImageFault
from shardwright.images.crops import Crop
from shardwright.images.decode import Part, StoredImage, fill_slots, open_image
from shardwright.images.specs import CropImage, EvalImage, MultiCrop, TrainImage
from shardwright.images.tiles import cut_tiles, tile_interval, with_tile_table
from shardwright.transforms.images.options import EncodeOptions
from tests.support.encoded_images import encode_image
from tests.support.image_makers import inserted, opened, patched, saved

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

WIDTH, HEIGHT = 500, 375
PLAIN, TILED = False, True
SMALL = Crop(100, 90, 64, 80)


@cache
def photograph(width: int = WIDTH, height: int = HEIGHT, mode: str = "RGB") -> Image.Image:
    rng = np.random.default_rng(width)
    colors = Image.fromarray(rng.integers(0, 255, (9, 12, 3), np.uint8)).convert(mode)
    smooth = np.asarray(colors.resize((width, height), Image.Resampling.BICUBIC), np.int16)
    noise = rng.normal(0, 9, (height, width, *smooth.shape[2:]))
    return Image.fromarray((smooth + noise).clip(0, 255).astype(np.uint8))


@cache
def encoded(crop_tiles: bool, *size: Any) -> bytes:
    png = saved(photograph(*size), "PNG", compress_level=1)
    return encode_image(png, EncodeOptions("jpeg", crop_tiles=crop_tiles))[0]


def cropped(data: bytes, crop: Crop, reduction: int = 1, *, fast: bool = False) -> NDArray[Any]:
    """Return a crop, reduced while it is decoded."""
    slot = np.zeros((max(1, crop.height // reduction), max(1, crop.width // reduction), 3), "u1")
    fill_slots(open_image(data, StoredImage(), fast=fast), [Part(crop, slot)])
    return slot


def decoded_size(data: bytes, crop: Crop) -> tuple[int, int]:
    return cut_tiles(data, HEIGHT, WIDTH, crop, 1)[1:3]


@settings(max_examples=60)
@given(st.data())
def test_a_crop_has_the_pixels_of_the_whole_image(data: st.DataObject) -> None:
    """Of odd sizes, gray or not, at the borders, exact or fast, reduced or not."""
    size = data.draw(st.sampled_from([(500, 375), (333, 251), (257, 190), (129, 64), (160, 401)]))
    mode, fast = data.draw(st.sampled_from(["RGB", "L"])), data.draw(st.booleans())
    height, width = data.draw(st.integers(1, size[1])), data.draw(st.integers(1, size[0]))
    top = data.draw(st.integers(0, size[1] - height))
    left = data.draw(st.integers(0, size[0] - width))
    reduction = data.draw(st.sampled_from([1, 2, 4, 8]))
    whole, tiles = (encoded(tiled, *size, mode) for tiled in (PLAIN, TILED))
    crop = Crop(top, left, height, width)
    found, expected = (cropped(each, crop, reduction, fast=fast) for each in (tiles, whole))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("spec", [
    TrainImage(64), TrainImage(96, fast=False, scale=(0.1, 0.3)), EvalImage(32, resize=64),
    EvalImage((100, 20), fast=True),
])  # fmt: skip
@pytest.mark.parametrize("buffer", [bytes, memoryview])
def test_transforms_give_the_same_images(spec: CropImage, buffer: Any) -> None:
    for draw in range(8):
        whole, tiles = (
            spec.apply(buffer(encoded(tiled)), StoredImage(), draw, None)
            for tiled in (PLAIN, TILED)
        )
        np.testing.assert_array_equal(tiles, whole)


def test_several_crops_are_cut_out_together() -> None:
    spec = MultiCrop(TrainImage(64, scale=(0.05, 0.1)), TrainImage(32, scale=(0.02, 0.1)))
    for draw in range(8):
        whole, tiles = (
            spec.apply(encoded(tiled), StoredImage(), draw, [None, None])
            for tiled in (PLAIN, TILED)
        )
        for found, expected in zip(tiles, whole, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_other_readers_read_the_same_pixels() -> None:
    for size in ((WIDTH, HEIGHT), (160, 401, "L")):
        tiles, whole = encoded(TILED, *size), encoded(PLAIN, *size)
        assert len(whole) < len(tiles) < 1.2 * len(whole)
        for read in (
            lambda data: tf.io.decode_image(data, 3),
            opened,
            lambda data: cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR),
            simplejpeg.decode_jpeg,
        ):
            np.testing.assert_array_equal(np.asarray(read(tiles)), np.asarray(read(whole)))


def test_only_the_tiles_under_a_crop_are_decoded() -> None:
    tiles = encoded(TILED)
    assert decoded_size(tiles, SMALL) == (80, 128)  # rows 96 to 176, columns 64 to 192
    assert decoded_size(tiles, Crop(0, 0, HEIGHT, WIDTH)) == (HEIGHT, WIDTH)
    assert decoded_size(encoded(PLAIN), SMALL) == (HEIGHT, WIDTH)
    at = len(tiles) - 2000  # a tile at the bottom
    damaged = patched(tiles, at, bytes(500))
    np.testing.assert_array_equal(cropped(damaged, SMALL), cropped(tiles, SMALL))
    with pytest.raises(ImageFault, match="damaged or cut short"):
        cropped(damaged, Crop(0, 0, HEIGHT, WIDTH))


def test_files_with_restart_markers_of_their_own_are_decoded_whole() -> None:
    """Nobody has checked their other tiles."""
    camera = saved(photograph(), "JPEG", restart_marker_blocks=4)
    assert decoded_size(camera, SMALL) == (HEIGHT, WIDTH)


def test_a_table_that_an_editor_left_behind_is_not_used() -> None:
    tiles = encoded(TILED)
    comment = b"\xff\xfe\0\5abc"
    for edited in (
        inserted(tiles, 2, comment),
        inserted(tiles, tiles.index(b"\xff\xdb"), comment),
        inserted(tiles, tiles.index(b"\xff\xda"), comment),
        tiles + b"more",
        tiles[:20] + tiles[20:66] + saved(photograph(), "JPEG", quality=50)[20:],
    ):
        assert decoded_size(edited, SMALL) == (HEIGHT, WIDTH)


@given(at=st.integers(20, 900), new=st.binary(min_size=1, max_size=8))
def test_a_damaged_table_gives_pixels_or_a_fault(at: int, new: bytes) -> None:
    damaged = patched(encoded(TILED), at, new)
    with suppress(ImageFault):
        assert cropped(damaged, SMALL, fast=True).shape == (64, 80, 3)


@pytest.mark.parametrize(("width", "mcu_width", "interval"), [
    (500, 16, 4), (375, 16, 3), (1600, 16, 10), (4000, 16, 25), (500, 8, 9), (128, 16, 2),
    (496, 16, 0), (64, 16, 0), (1, 16, 0),
])  # fmt: skip
def test_tiles_divide_a_row(width: int, mcu_width: int, interval: int) -> None:
    assert tile_interval(width, mcu_width) == interval
    if not interval:
        size = (width, 40, "RGB")
        assert encoded(TILED, *size) == encoded(PLAIN, *size)


def test_tiles_of_more_than_a_table_holds() -> None:
    noise = np.random.default_rng(0).integers(0, 255, (16, 4096, 3), np.uint8)
    data = saved(Image.fromarray(noise), "JPEG", quality=100, restart_marker_blocks=256)
    assert with_tile_table(data) == data
