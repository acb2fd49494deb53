"""Pixels are those of `tf.io.decode_image`, bit for bit, and resized as by `tf.image.resize`."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from shardwright.errors import ImageFault
from shardwright.images import DecodedImage, EvalImage, StoredImage
from shardwright.images.crops import evaluation_crop
from tests.image_corpus import BMP, GIF, JPEG, PNG, PROGRESSIVE, WEBP, Sample, all_samples
from tests.image_makers import GRAY_PALETTE, bmp, chunk, picture, png, saved
from tests.odd_images import gif, gif_with_codes, jpeg_of_gray_blocks, lzw_codes

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

FILES = StoredImage()
KILLS_TENSORFLOW = {"webp-animated"}  # see test_image_tensorflow.py

# Where TensorFlow shows what is plainly wrong.
SHOWN_OTHERWISE = {
    "bmp-palette": "TensorFlow shows the palette's indices as gray",
    "bmp-strange-masks": "TensorFlow ignores the masks and shows wrong colours: a fault here",
    "jpeg-xl": "not read here",
}
# What TensorFlow refuses, and is shown as Pillow shows it. Alpha is dropped, for which Pillow is asked below.
READ_BEYOND_TENSORFLOW = {
    "webp-alpha", "webp-lossless-alpha", "webp-hidden-alpha", "webp-animated", "webp-animated-alpha",
    "bmp-1bit", "bmp-16bits", "bmp-run-lengths", "bmp-os2", "bmp-trailing-bytes", "bmp-palette",
}  # fmt: skip


def ours(data: bytes) -> NDArray[np.uint8] | None:
    try:
        return DecodedImage().apply(data, FILES, 0, None)
    except ImageFault:
        return None


def theirs(data: bytes) -> NDArray[np.uint8] | None:
    try:
        return np.asarray(tf.io.decode_image(data, channels=3, expand_animations=False))
    except tf.errors.InvalidArgumentError:
        return None


def same(one: NDArray[np.uint8] | None, other: NDArray[np.uint8] | None) -> bool:
    return (
        one is not None
        and other is not None
        and one.shape == other.shape
        and bool((one == other).all())
    )


def random_bytes(num_bytes: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(num_bytes)


BY_NAME = {sample.name: sample for sample in all_samples()}
NOT_ALIKE = KILLS_TENSORFLOW | SHOWN_OTHERWISE.keys() | READ_BEYOND_TENSORFLOW
SAMPLES = [sample for name, sample in BY_NAME.items() if name not in NOT_ALIKE]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_every_odd_image_is_as_in_tensorflow(sample: Sample) -> None:
    """The same pixels where it decodes them, a fault where it refuses them."""
    expected = theirs(sample.data)
    assert (ours(sample.data) is None) == (expected is None)
    assert expected is None or same(ours(sample.data), expected)


@pytest.mark.parametrize("name", sorted(READ_BEYOND_TENSORFLOW))
def test_more_is_read_than_tensorflow_reads(name: str) -> None:
    expected = np.asarray(Image.open(io.BytesIO(BY_NAME[name].data)).convert("RGB"))
    found = ours(BY_NAME[name].data)
    assert found is not None
    assert found.shape == expected.shape
    # Of 16 bits, the low bits of 5 are left open.
    assert np.abs(found.astype(int) - expected).max() <= (7 if name == "bmp-16bits" else 0)


def odd_pngs() -> Iterator[tuple[str, bytes]]:
    for color, samples in ((0, 1), (2, 3), (4, 2), (6, 4)):
        for depth in (8, 16):
            rows = b"".join(b"\0" + random_bytes(7 * samples * depth // 8, row) for row in range(5))
            for name, before in (
                ("plain", b""),
                ("gamma", chunk(b"gAMA", struct.pack(">I", 45_455))),
                ("significant-bits", chunk(b"sBIT", b"\5" * samples)),
                ("background", chunk(b"bKGD", bytes(2 * (1 + 2 * (color in (2, 6)))))),
            ):
                yield (
                    f"color{color}-{depth}bits-{name}",
                    png((7, 5), depth=depth, color=color, rows=rows, before=before),
                )
    for depth in (1, 2, 4, 8):
        rows = b"".join(b"\0" + random_bytes((7 * depth + 7) // 8, row) for row in range(5))
        palette = chunk(b"PLTE", random_bytes(3 << depth))
        clear = chunk(b"tRNS", random_bytes(1 << depth))
        yield f"palette-{depth}bits", png((7, 5), depth=depth, color=3, rows=rows, before=palette)
        yield (
            f"palette-{depth}bits-transparent",
            png((7, 5), depth=depth, color=3, rows=rows, before=palette + clear),
        )
        yield (
            f"gray-{depth}bits-transparent",
            png((7, 5), depth=depth, rows=rows, before=chunk(b"tRNS", b"\0\0")),
        )
    yield (
        "short-palette",
        png(
            (7, 5),
            color=3,
            rows=(b"\0" + bytes(range(7))) * 5,
            before=chunk(b"PLTE", bytes(range(9))),
        ),
    )
    yield "rgb-transparent", saved(picture(), "PNG", transparency=(0, 0, 0))


def odd_gifs() -> Iterator[tuple[str, bytes]]:
    whole, small = picture("P"), picture("P", (30, 20))
    yield "transparent", gif([(whole, (0, 0), 7)], background=3)
    yield "transparent-background", gif([(whole, (0, 0), 7)], background=7)
    yield "smaller-than-the-canvas", gif([(small, (0, 0), None)])
    yield "beside-the-corner", gif([(small, (10, 5), None)], background=5)
    yield "beyond-the-canvas", gif([(whole, (10, 5), None)])
    yield "larger-later", gif([(small, (10, 5), 7), (whole, (0, 0), None)])
    yield "smaller-later", gif([(whole, (0, 0), None), (small, (10, 5), 3)])
    indices = random_bytes(150 * 140)
    for bits in range(1, 9):
        values = bytes(value % (1 << bits) for value in indices)
        yield f"{bits}-bits", gif_with_codes((150, 140), lzw_codes(values, bits), bits)
        yield (
            f"{bits}-bits-table-kept",
            gif_with_codes((150, 140), lzw_codes(values, bits, keep_full_table=True), bits),
        )
    codes = lzw_codes(indices, 8)
    yield "small-blocks", gif_with_codes((150, 140), codes, 8, block_bytes=7)
    yield "no-first-clear", gif_with_codes((150, 140), lzw_codes(indices, 8, clear_first=False), 8)
    yield "no-end-code", gif_with_codes((150, 140), lzw_codes(indices, 8, end=False), 8)
    # OpenCV refuses these, and they are decoded here.
    yield "pixels-behind-the-last", gif_with_codes((150, 138), codes, 8)
    yield "pixels-behind-the-last-interlaced", gif_with_codes((150, 138), codes, 8, interlaced=True)
    yield "bytes-behind-the-end", gif_with_codes((150, 140), codes + b"abc", 8)


def odd_bmps() -> Iterator[tuple[str, bytes]]:
    yield "24-bits", bmp(24, random_bytes(120))
    yield "24-bits-upside-down", bmp(24, random_bytes(120), height=-5)
    yield "32-bits", bmp(32, random_bytes(160))
    yield "gray", bmp(8, random_bytes(40), tail=GRAY_PALETTE)


def odd_jpegs() -> Iterator[tuple[str, bytes]]:
    inks = Image.frombytes("CMYK", (61, 47), random_bytes(61 * 47 * 4))
    adobe = saved(inks, "JPEG", quality=95)
    mark = adobe.index(b"\xff\xee")
    yield "cmyk-adobe", adobe
    yield "cmyk-plain", adobe[:mark] + adobe[mark + 16 :]
    yield "ycck", adobe[: mark + 15] + b"\2" + adobe[mark + 16 :]
    yield (
        "noise",
        saved(
            Image.frombytes("RGB", (61, 47), random_bytes(61 * 47 * 3)),
            "JPEG",
            quality=100,
            subsampling=0,
        ),
    )
    for quality in (5, 50, 95):
        for subsampling in (0, 1, 2):
            yield (
                f"quality-{quality}-{subsampling}",
                saved(picture(), "JPEG", quality=quality, subsampling=subsampling),
            )
    revision = JPEG.index(b"JFIF") + 5
    yield "jfif-0", JPEG[:revision] + b"\0" + JPEG[revision + 1 :]
    yield "jfif-3", JPEG[:revision] + b"\3" + JPEG[revision + 1 :]
    yield "stray-bytes-at-the-end", JPEG[:-2] + bytes(range(1, 200)) + JPEG[-2:]
    yield (
        "stray-bytes-in-the-header-and-at-the-end",
        JPEG[:20] + b"abc" + JPEG[20:-2] + bytes(range(1, 99)) + JPEG[-2:],
    )
    later = PROGRESSIVE.index(b"\xff\xc4", PROGRESSIVE.index(b"\xff\xda"))
    yield "stray-bytes-between-scans", PROGRESSIVE[:later] + b"abcdefgh" + PROGRESSIVE[later:]
    yield "3-to-1-sampling", jpeg_of_gray_blocks((24, 8), (3, 1))
    yield "1-to-3-sampling", jpeg_of_gray_blocks((8, 24), (1, 3))


ODD = [(f"{kind}-{name}", data) for kind, made in (
    ("png", odd_pngs()), ("gif", odd_gifs()), ("bmp", odd_bmps()), ("jpeg", odd_jpegs()),
) for name, data in made]  # fmt: skip


@pytest.mark.parametrize("data", [data for _, data in ODD], ids=[name for name, _ in ODD])
def test_pixels_are_tensorflows(data: bytes) -> None:
    assert theirs(data) is not None
    assert same(ours(data), theirs(data))


def test_the_odd_sampling_is_one_that_simplejpeg_refuses() -> None:
    import simplejpeg

    with pytest.raises(ValueError, match="subsampling"):
        simplejpeg.decode_jpeg(jpeg_of_gray_blocks((24, 8), (3, 1)))


LARGE_JPEG = saved(picture(size=(500, 375)), "JPEG", quality=90)


@pytest.mark.parametrize(("spec", "data", "most"), [
    (EvalImage(224), LARGE_JPEG, 1),
    (EvalImage((100, 300), resize=330), LARGE_JPEG, 1),
    (EvalImage(300), LARGE_JPEG, 1),
    (EvalImage(40), PNG, 1),
    (EvalImage(100), GIF, 1),
])  # fmt: skip
def test_evaluation_is_tensorflows_crop_and_resize(spec: EvalImage, data: bytes, most: int) -> None:
    """To the rounding of OpenCV's bilinear weights, where it is reduced by less than 2."""
    decoded = theirs(data)
    assert decoded is not None
    crop = evaluation_crop(*decoded.shape[:2], size=spec.shape[:2], resize=spec.resize or 0)
    part = decoded[crop.top : crop.top + crop.height, crop.left : crop.left + crop.width]
    expected = np.rint(tf.image.resize(part, spec.shape[:2]))
    assert np.abs(spec.apply(data, FILES, 0, None) - expected).max() <= most


@pytest.mark.parametrize("size", [(375, 500), (200, 300), (600, 700)])
def test_decoding_to_a_size_is_tensorflows_resize(size: tuple[int, int]) -> None:
    expected = np.rint(tf.image.resize(theirs(LARGE_JPEG), size))
    assert np.abs(DecodedImage(size).apply(LARGE_JPEG, FILES, 0, None) - expected).max() <= 1


def test_fast_differs_by_colour_at_edges_alone() -> None:
    """Of an image without colour nothing differs; of one with the colour at full resolution neither."""
    for data in (saved(picture("L"), "JPEG"), saved(picture(), "JPEG", subsampling=0)):
        assert same(
            EvalImage(32).apply(data, FILES, 0, None),
            EvalImage(32, fast=True).apply(data, FILES, 0, None),
        )
    differences = EvalImage(32).apply(JPEG, FILES, 0, None).astype(int) - EvalImage(
        32, fast=True
    ).apply(JPEG, FILES, 0, None)
    assert 0 < np.abs(differences).mean() < 3


def test_memoryviews_are_taken() -> None:
    for data in (JPEG, PNG, GIF, BMP, WEBP, JPEG[:20] + b"abc" + JPEG[20:]):
        assert same(DecodedImage().apply(memoryview(data), FILES, 0, None), ours(data))
