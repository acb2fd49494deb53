"""The perceptual hash: equal to ImageHash's, and hardly changed by copies of a picture."""

from __future__ import annotations

import io

import imagehash
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from benchmarks.photos import render_photo
from shardwright.images.perceptual_hash import hash_image
from tests.support.random_tests import examples


def _photo(number: int) -> Image.Image:
    return Image.open(io.BytesIO(render_photo(number))).convert("RGB")


@pytest.mark.long_but_first
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
def test_hashes_equal_imagehash(mode: str) -> None:
    for number in range(16):
        photo = _photo(number).convert(mode)
        assert f"{hash_image(photo).value:016x}" == str(imagehash.phash(photo))


@examples(20)
@given(st.integers(0, 255), st.integers(1, 300), st.integers(1, 300))
def test_flat_pictures_have_no_detail(level: int, height: int, width: int) -> None:
    assert hash_image(Image.new("RGB", (width, height), (level,) * 3)).detail == 0


def test_detail_separates_photographs_from_nearly_flat_pictures() -> None:
    rng = np.random.default_rng(0)
    noise = (128 + 10 * rng.standard_normal((375, 500))).astype(np.uint8)
    gradient = np.repeat(np.linspace(0, 255, 300)[:, None], 200, axis=1).astype(np.uint8)
    assert hash_image(Image.fromarray(noise)).detail < 10
    assert hash_image(Image.fromarray(gradient)).detail < 10
    assert min(hash_image(_photo(number)).detail for number in range(16)) > 50


def test_a_smaller_worse_copy_has_nearly_the_same_hash() -> None:
    for number in range(8):
        photo, copy = _photo(number), io.BytesIO()
        photo.resize((250, 188)).save(copy, "JPEG", quality=50)
        distance = hash_image(photo).value ^ hash_image(Image.open(copy)).value
        assert distance.bit_count() <= 3
