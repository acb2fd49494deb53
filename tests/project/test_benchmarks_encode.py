"""The encoding benchmark: both ways do the same work, and a target that is missed is told."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from shardwright.transforms.images.options import EncodeOptions
from tests.support.benchmark_scripts import load
from tests.support.image_makers import picture, saved

encode = load("encode")


@pytest.mark.parametrize("size", [(20, 30), None])
def test_both_ways_make_the_same_images(size: tuple[int, int] | None) -> None:
    data = saved(picture(), "JPEG", quality=95)
    made = encode.by_pillow(size, data), encode.by_us(EncodeOptions("jpeg", size), data)
    theirs, ours = (Image.open(io.BytesIO(image)) for image in made)
    assert theirs.size == ours.size == (size or (61, 47))
    assert theirs.mode == ours.mode == "RGB"
    assert theirs.quantization == ours.quantization
    assert encode.in_threads(len, [b"a", b"bc"] * 20) == [1, 2] * 20


def test_targets() -> None:
    rates = {
        "Pillow, one core": [10.0],
        "shardwright, one core": [9.5],
        "Pillow, all cores": [20.0],
        "shardwright, all cores": [17.0],
    }
    found = {"rates": {"work": rates}, "peak_bytes": 2 * 10**9, "large": 5, "photos": 100}
    assert [check.passed for check in encode.targets(found)] == [True, False, False]
    text = encode.render(found, ["- line"])
    assert "| Pillow, one core | 10 |" in text
    assert "a build of 100 photographs and 5 JPEGs" in text


def test_larger_images_are_fewer(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.jpg" for number in range(400)]
    for file in files:
        file.write_bytes(saved(picture(size=(8, 6)), "JPEG"))
    work = encode.Work("large", (4, 4), 8)
    images = encode.images_of(work, files)
    assert len(images) == 2 * encode.BLOCK * encode.CORES
    assert Image.open(io.BytesIO(images[0])).size == (64, 48)
