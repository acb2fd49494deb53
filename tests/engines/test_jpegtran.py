"""JPEGs that jpegtran divides into tiles: the pixels of the file, and of any crop of it."""

from __future__ import annotations

import os
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import shardwright as sw
from shardwright.images.crops import Crop
from shardwright.images.tiles import cut_tiles, has_tiles
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.policy import PolicyFault
from tests.shardwright.images.test_tiles import cropped, photograph
from tests.support.build_helpers import build
from tests.support.encoded_images import encode_image
from tests.support.image_makers import exif_block, patched, saved
from tests.support.policy_images import policy_of

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

SIZES = [(500, 375), (333, 251), (257, 190), (160, 401)]


@cache
def camera(size: tuple[int, int] = SIZES[0], mode: str = "RGB", **options: Any) -> bytes:
    return saved(photograph(*size, mode), "JPEG", **{"quality": 90, **options})


def divided(data: bytes) -> bytes:
    return encode_image(data, EncodeOptions(crop_tiles=True))[0]


@cache
def tiles_of(*args: Any) -> bytes:
    size, mode, sampling = args
    return divided(camera(size, mode, subsampling=sampling))


@given(data=st.data(), size=st.sampled_from(SIZES), fast=st.booleans())
def test_a_crop_has_the_pixels_of_the_file(
    data: st.DataObject, size: tuple[int, int], fast: bool
) -> None:
    mode = data.draw(st.sampled_from(["RGB", "L"]))
    sampling = data.draw(st.sampled_from(["4:4:4", "4:2:2", "4:2:0"]))
    whole, tiles = camera(size, mode, subsampling=sampling), tiles_of(size, mode, sampling)
    height, width = data.draw(st.integers(1, size[1])), data.draw(st.integers(1, size[0]))
    top = data.draw(st.integers(0, size[1] - height))
    left = data.draw(st.integers(0, size[0] - width))
    crop, reduction = Crop(top, left, height, width), data.draw(st.sampled_from([1, 2, 4, 8]))
    found, expected = (cropped(each, crop, reduction, fast=fast) for each in (tiles, whole))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("mode", "options"), [
    ("L", {}), ("RGB", {"subsampling": "4:4:4"}), ("RGB", {"subsampling": "4:2:2"}),
    ("RGB", {"subsampling": "4:2:0"}), ("RGB", {"keep_rgb": True}),
])  # fmt: skip
def test_a_file_keeps_its_pixels_and_metadata(mode: str, options: dict[str, Any]) -> None:
    block = exif_block(6, thumbnail=camera((61, 47)))
    source = camera(SIZES[0], mode, exif=block, comment=b"told", **options)
    tiles = divided(source)
    assert has_tiles(tiles)
    assert len(tiles) < 1.02 * len(source)
    assert cut_tiles(tiles, 375, 500, Crop(100, 90, 64, 80), 1)[2] < 500
    np.testing.assert_array_equal(tf.io.decode_jpeg(tiles), tf.io.decode_jpeg(source))
    before, after = (Image.open(BytesIO(each)) for each in (source, tiles))
    np.testing.assert_array_equal(np.asarray(before), np.asarray(after))
    assert after.info["exif"] == before.info["exif"] == block
    assert after.info["comment"] == b"told"


@pytest.mark.parametrize("source", [
    camera(progressive=True), camera(restart_marker_blocks=4), camera((496, 375)), camera((1, 1)),
    camera()[:9000], camera() + b"a phone's video",
    camera()[:20] + b"\xff\xe2\0\6MPF\0" + camera()[20:],
    saved(photograph().convert("CMYK"), "JPEG"), saved(photograph(64, 64), "PNG"),
    # Gray with an MCU of 16 pixels in its header: decoders take blocks of 8 all the same.
    camera(mode="L").replace(b"\1\1\x11\0\xff", b"\1\1\x22\0\xff", 1),
    b"\xff\xd8",
], ids=[
    "progressive", "restarts", "no-divisor", "small", "cut", "video", "pictures", "cmyk", "png",
    "odd-gray", "start",
])  # fmt: skip
def test_other_files_stay_as_they_are(source: bytes) -> None:
    assert divided(source) == source


@given(at=st.integers(2, 15_000), new=st.binary(min_size=1, max_size=4))
def test_a_damaged_file_stays_or_keeps_its_pixels(at: int, new: bytes) -> None:
    source = patched(camera(), at, new)
    made = divided(source)
    if made != source:
        np.testing.assert_array_equal(tf.io.decode_jpeg(made, 3), tf.io.decode_jpeg(source, 3))


def test_a_fixed_image_is_divided_too() -> None:
    turned = camera((384, 320), exif=exif_block(6))
    plain, tiles = (
        encode_image(
            turned, EncodeOptions(policy=policy_of("fix", PolicyFault.EXIF), crop_tiles=on)
        )[0]
        for on in (False, True)
    )
    crop = Crop(100, 90, 64, 80)
    assert cut_tiles(plain, 384, 320, crop, 1)[1:3] == (384, 320)
    assert cut_tiles(tiles, 384, 320, crop, 1)[2] < 320
    np.testing.assert_array_equal(cropped(tiles, crop), cropped(plain, crop))


def test_a_build_keeps_pixels_and_divides_files(tmp_path: Path) -> None:
    folder = tmp_path / "in" / "a"
    folder.mkdir(parents=True)
    for number in range(6):
        (folder / f"{number}.jpg").write_bytes(camera((256 + 64 * number, 190)))
    (folder / "6.png").write_bytes(saved(photograph(64, 64), "PNG"))
    batches = []
    for name, options in (("tiles", ["--crop-tiles"]), ("whole", [])):
        assert build(folder.parent, tmp_path / name, *options) == 0
        spec, records = sw.TrainImage(32), sw.load(str(tmp_path / name), decode=False)
        stored = [has_tiles(each["image"].numpy()) for each in records]
        assert sum(stored) == (6 if options else 0)
        batches.append(next(iter(sw.Reader(str(tmp_path / name), batch_size=7, image=spec))))
    np.testing.assert_array_equal(batches[0]["image"], batches[1]["image"])
