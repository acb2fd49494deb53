"""The reader decodes as `tf.io.decode_image`, and a build stores what that decodes."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from shardwright.errors import ImageFault
from shardwright.images.crops import evaluation_crop
from shardwright.images.decode import StoredImage
from shardwright.images.specs import CropImage, DecodedImage, EvalImage
from shardwright.transforms.images.checks import check_image
from shardwright.transforms.images.options import EncodeOptions
from tests.support import image_makers as make
from tests.support.encoded_images import encode_image
from tests.support.image_corpus import BMP, GIF, JPEG, PNG, PROGRESSIVE, WEBP, all_samples

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

# TensorFlow 2.21 frees memory twice when it decodes an animation without alpha and drops all frames
# but the first: the process dies.
KILLS_TENSORFLOW = {"webp-animated"}
# TensorFlow decodes these. The reader does not, or otherwise, and no build stores them.
DECODED_OTHERWISE = {
    "bmp-palette": "TensorFlow ignores the palette and shows the indices as gray",
    "bmp-strange-masks": "TensorFlow ignores the masks and shows wrong colors",
    "jpeg-xl": "neither Pillow nor the reader reads it",
}
# No build stores these either.
REJECTED = DECODED_OTHERWISE | {
    "gif-animated-cut-in-a-later-frame": "the file is cut short, only its first frame is whole",
    "gif-no-trailer": "the file is cut short by its last byte",
    "gif-animated-no-trailer": "the file is cut short by its last byte",
    "gif-bomb": "the canvas is too large; TensorFlow ignores it and decodes the frame",
    "gif-half-bomb": "the canvas is too large; TensorFlow ignores it and decodes the frame",
}
# TensorFlow drops transparency, which encode_image shows on white, does not turn by EXIF, and gives
# the first frame of a GIF, not the canvas around it.
ENCODED_OTHERWISE = (
    "transparent", "color4", "color6", "png-LA", "png-RGBA", "jpeg-turned", "gif-frame-offset",
)  # fmt: skip
# TensorFlow refuses these, and they are decoded as by Pillow. Alpha is dropped.
READ_BEYOND_TENSORFLOW = {
    "webp-alpha", "webp-lossless-alpha", "webp-hidden-alpha", "webp-animated",
    "webp-animated-alpha", "bmp-1bit", "bmp-16bits", "bmp-run-lengths", "bmp-os2",
    "bmp-trailing-bytes", "bmp-palette",
}  # fmt: skip
NOT_ALIKE = KILLS_TENSORFLOW | DECODED_OTHERWISE.keys() | READ_BEYOND_TENSORFLOW
SAMPLES = {sample.name: sample for sample in all_samples()}


def applied(spec: CropImage, data: bytes | memoryview) -> NDArray[np.uint8]:
    return spec.apply(data, StoredImage(), 0, None)


def ours(data: bytes) -> NDArray[np.uint8] | None:
    try:
        return applied(DecodedImage(), data)
    except ImageFault:
        return None


def theirs(data: bytes, channels: int = 3) -> NDArray[np.uint8] | None:
    try:
        return np.asarray(tf.io.decode_image(data, channels, expand_animations=False))
    except tf.errors.InvalidArgumentError:
        return None


def noise(num_bytes: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(num_bytes)


@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - NOT_ALIKE))
def test_the_reader_decodes_or_faults_as_tensorflow(name: str) -> None:
    found, expected = ours(SAMPLES[name].data), theirs(SAMPLES[name].data)
    assert found is expected is None or np.array_equal(found, expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - KILLS_TENSORFLOW))
def test_a_build_stores_exactly_what_tensorflow_decodes(name: str) -> None:
    data = SAMPLES[name].data
    try:
        info = check_image(data, "decode")
    except ImageFault:
        assert (theirs(data) is not None) == (name in REJECTED)
        return
    assert name not in REJECTED
    shown, as_stored = theirs(data), theirs(data, channels=0)
    assert shown is not None
    assert as_stored is not None
    assert as_stored.shape[-1] == info.channels
    is_cropped = name == "gif-frame-offset"
    assert shown.shape == ((20, 30, 3) if is_cropped else (info.height, info.width, 3))
    if not any(part in name for part in ENCODED_OTHERWISE):
        raw, _ = encode_image(data, EncodeOptions("raw", (info.width, info.height)))
        difference = np.frombuffer(raw, np.uint8).reshape(shown.shape) - shown.astype(int)
        # Decoders of lossy formats may round and smooth in their own way.
        assert np.abs(difference).mean() <= (2 if info.format in ("jpeg", "webp") else 0)


@pytest.mark.parametrize("name", sorted(READ_BEYOND_TENSORFLOW))
def test_some_images_that_tensorflow_refuses_are_read(name: str) -> None:
    expected = np.asarray(make.opened(SAMPLES[name].data).convert("RGB")).astype(int)
    found = ours(SAMPLES[name].data)
    assert found is not None
    assert found.shape == expected.shape
    # Of 16 bits, the low bits of 5 are left open.
    assert np.abs(expected - found).max() <= (7 if name == "bmp-16bits" else 0)


def odd_pngs() -> Iterator[tuple[str, bytes]]:
    for color, samples in ((0, 1), (2, 3), (4, 2), (6, 4)):
        chunks = {
            "plain": b"",
            "gamma": make.chunk(b"gAMA", struct.pack(">I", 45_455)),
            "significant-bits": make.chunk(b"sBIT", b"\5" * samples),
            "background": make.chunk(b"bKGD", bytes(2 * (1 + 2 * (color in (2, 6))))),
        }
        for depth in (8, 16):
            rows = b"".join(b"\0" + noise(7 * samples * depth // 8, row) for row in range(5))
            for name, before in chunks.items():
                data = make.png((7, 5), depth=depth, color=color, rows=rows, before=before)
                yield f"color{color}-{depth}bits-{name}", data
    for depth in (1, 2, 4, 8):
        rows = b"".join(b"\0" + noise((7 * depth + 7) // 8, row) for row in range(5))
        palette, gray = make.chunk(b"PLTE", noise(3 << depth)), make.chunk(b"tRNS", b"\0\0")
        clear = palette + make.chunk(b"tRNS", noise(1 << depth))
        for name, color, before in (
            (f"palette-{depth}bits", 3, palette),
            (f"palette-{depth}bits-transparent", 3, clear),
            (f"gray-{depth}bits-transparent", 0, gray),
        ):
            yield name, make.png((7, 5), depth=depth, color=color, rows=rows, before=before)
    rows, palette = (b"\0" + bytes(range(7))) * 5, make.chunk(b"PLTE", bytes(range(9)))
    yield "short-palette", make.png((7, 5), color=3, rows=rows, before=palette)
    yield "rgb-transparent", make.drawn("PNG", transparency=(0, 0, 0))


def odd_gifs() -> Iterator[tuple[str, bytes]]:
    whole, small = make.picture("P"), make.picture("P", (30, 20))
    yield "transparent", make.gif([(whole, (0, 0), 7)], background=3)
    yield "transparent-background", make.gif([(whole, (0, 0), 7)], background=7)
    yield "smaller-than-the-canvas", make.gif([(small, (0, 0), None)])
    yield "beside-the-corner", make.gif([(small, (10, 5), None)], background=5)
    yield "beyond-the-canvas", make.gif([(whole, (10, 5), None)])
    yield "larger-later", make.gif([(small, (10, 5), 7), (whole, (0, 0), None)])
    yield "smaller-later", make.gif([(whole, (0, 0), None), (small, (10, 5), 3)])
    size, indices = (150, 140), noise(150 * 140)
    for bits in range(1, 9):
        values = bytes(value % (1 << bits) for value in indices)
        kept = make.lzw_codes(values, bits, keep_full=True)
        yield f"{bits}-bits", make.gif_with_codes(size, make.lzw_codes(values, bits), bits)
        yield f"{bits}-bits-table-kept", make.gif_with_codes(size, kept, bits)
    codes = make.lzw_codes(indices, 8)
    yield "small-blocks", make.gif_with_codes(size, codes, 8, block=7)
    yield (
        "no-first-clear",
        make.gif_with_codes(size, make.lzw_codes(indices, 8, clear_first=False), 8),
    )
    yield "no-end-code", make.gif_with_codes(size, make.lzw_codes(indices, 8, end=False), 8)
    # OpenCV refuses these, and they are decoded here.
    yield "pixels-behind-the-last", make.gif_with_codes((150, 138), codes, 8)
    yield (
        "pixels-behind-the-last-interlaced",
        make.gif_with_codes((150, 138), codes, 8, flags=make.INTERLACED),
    )
    yield "bytes-behind-the-end", make.gif_with_codes(size, codes + b"abc", 8)


def odd_jpegs() -> Iterator[tuple[str, bytes]]:
    inks, colors = (
        Image.frombytes(mode, (61, 47), noise(61 * 47 * len(mode))) for mode in ("CMYK", "RGB")
    )
    adobe = make.saved(inks, "JPEG", quality=95)
    mark = adobe.index(b"\xff\xee")
    yield "cmyk-adobe", adobe
    yield "cmyk-plain", adobe[:mark] + adobe[mark + 16 :]
    yield "ycck", make.patched(adobe, mark + 15, b"\2")
    yield "noise", make.saved(colors, "JPEG", quality=100, subsampling=0)
    for quality in (5, 50, 95):
        for subsampling in (0, 1, 2):
            data = make.drawn("JPEG", quality=quality, subsampling=subsampling)
            yield f"quality-{quality}-{subsampling}", data
    revision = JPEG.index(b"JFIF") + 5
    yield "jfif-0", make.patched(JPEG, revision, b"\0")
    yield "jfif-3", make.patched(JPEG, revision, b"\3")
    stray = make.inserted(JPEG, len(JPEG) - 2, bytes(range(1, 200)))
    yield "stray-bytes-at-the-end", stray
    yield "stray-bytes-in-the-header-and-at-the-end", make.inserted(stray, 20, b"abc")
    later = PROGRESSIVE.index(b"\xff\xc4", PROGRESSIVE.index(b"\xff\xda"))
    yield "stray-bytes-between-scans", make.inserted(PROGRESSIVE, later, b"abcdefgh")
    # simplejpeg refuses these.
    yield "3-to-1-sampling", make.jpeg_of_gray_blocks((24, 8), (3, 1))
    yield "1-to-3-sampling", make.jpeg_of_gray_blocks((8, 24), (1, 3))
    yield "1-to-4-sampling", make.jpeg_of_gray_blocks((8, 32), (1, 4))


BMPS = {
    "24-bits": make.bmp(24, noise(120)),
    "24-bits-upside-down": make.bmp(24, noise(120), height=-5),
    "32-bits": make.bmp(32, noise(160)),
    "gray": make.bmp(8, noise(40), tail=make.GRAY_PALETTE),
}
ODD = {"png": odd_pngs(), "gif": odd_gifs(), "bmp": BMPS.items(), "jpeg": odd_jpegs()}


@pytest.mark.parametrize(
    "data", [pytest.param(data, id=f"{kind}-{name}") for kind in ODD for name, data in ODD[kind]]
)
def test_pixels_are_those_of_tensorflow(data: bytes) -> None:
    expected = theirs(data)
    assert expected is not None
    assert np.array_equal(ours(data), expected)


LARGE_JPEG = make.saved(make.picture(size=(500, 375)), "JPEG", quality=90)


@pytest.mark.parametrize(("spec", "data"), [
    (EvalImage(224), LARGE_JPEG), (EvalImage((100, 300), resize=330), LARGE_JPEG),
    (EvalImage(300), LARGE_JPEG), (EvalImage(40), PNG), (EvalImage(100), GIF),
])  # fmt: skip
def test_evaluation_is_tensorflows_crop_and_resize(spec: EvalImage, data: bytes) -> None:
    """To the rounding of OpenCV's bilinear weights, at reductions below 2."""
    decoded = theirs(data)
    assert decoded is not None
    crop = evaluation_crop(*decoded.shape[:2], size=spec.shape[:2], resize=spec.resize or 0)
    part = decoded[crop.top : crop.top + crop.height, crop.left : crop.left + crop.width]
    expected = np.rint(tf.image.resize(part, spec.shape[:2]))
    assert np.abs(applied(spec, data) - expected).max() <= 1


@pytest.mark.parametrize("size", [(375, 500), (200, 300), (600, 700)])
def test_decoding_to_a_size_is_tensorflows_resize(size: tuple[int, int]) -> None:
    expected = np.rint(tf.image.resize(theirs(LARGE_JPEG), size))
    assert np.abs(applied(DecodedImage(size), LARGE_JPEG) - expected).max() <= 1


def test_fast_differs_at_color_edges_alone() -> None:
    def difference(data: bytes) -> float:
        exact, fast = applied(EvalImage(32), data), applied(EvalImage(32, fast=True), data)
        return float(np.abs(exact.astype(int) - fast).mean())

    assert difference(make.drawn("JPEG", "L")) == 0
    assert difference(make.drawn("JPEG", subsampling=0)) == 0
    assert 0 < difference(JPEG) < 3


@pytest.mark.parametrize("data", [JPEG, PNG, GIF, BMP, WEBP, make.inserted(JPEG, 20, b"abc")])
def test_memoryviews_are_accepted(data: bytes) -> None:
    assert np.array_equal(applied(DecodedImage(), memoryview(data)), applied(DecodedImage(), data))
