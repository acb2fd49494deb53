"""Damaged, cut and hostile files: each is a fault that says what is wrong, at once, and none is a gray picture or a crash."""

from __future__ import annotations

import pickle
import struct
import time
import zlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardwright.errors import ImageFault
from shardwright.images import (
    DecodedImage,
    EvalImage,
    ImageTransform,
    StoredImage,
    TrainImage,
    headers,
)
from tests.image_corpus import BMP, GIF, JPEG, PNG, PROGRESSIVE, SCAN, WEBP
from tests.image_makers import bmp, chunk, png
from tests.odd_images import gif_with_codes, lzw_codes
from transforms.images import kinds as image_kinds

FILES = StoredImage()


@pytest.mark.parametrize(("data", "said"), [
    (b"", "it has no bytes"),
    (b"hello world", r"not a JPEG, PNG, GIF, BMP or WebP image: it starts with b'hello wo'"),
    (b"BMW is a maker of cars", "not a bmp image"),
    (JPEG[:-2], "Premature end"),
    (JPEG[: SCAN + 100], "Premature end"),
    (JPEG[: SCAN + 100] + b"\xff\xd9", "the jpeg image is damaged or cut short"),
    (JPEG[:SCAN], "damaged, cut short"),
    (JPEG[:30], "it has no frame header"),
    (JPEG[:20] + b"abc" + JPEG[20:-40], "Premature end"),
    (JPEG[:20] + b"abc" + JPEG[20:-600] + JPEG[-2:], "damaged or cut short"),
    (PROGRESSIVE[:-2], "Premature end"),
    (PROGRESSIVE[: len(PROGRESSIVE) // 2], "Premature end"),
    (PNG[:-12], "the png image is cut short"),
    (PNG[: len(PNG) // 2], "the png image is cut short"),
    (PNG[:20], "the png image ends in its header, after 20 bytes"),
    (PNG[:-30] + b"\0" + PNG[-29:], "the png image is damaged"),
    (GIF[: len(GIF) // 2], "the gif image is cut short"),
    (GIF[: len(GIF) // 2] + b"\0;", "the gif image is"),
    (GIF[:13], "the gif image is cut short, after 13 bytes"),
    (gif_with_codes((9, 9), lzw_codes(bytes(60), 8), 8), "ends before its last pixel"),
    (gif_with_codes((9, 9), lzw_codes(bytes(60), 8, end=False), 8), "ends before its last pixel"),
    (gif_with_codes((9, 9), b"", 8), "ends before its last pixel"),
    (gif_with_codes((9, 9), lzw_codes(bytes(81), 8), 9), "code size"),
    (gif_with_codes((9, 8), lzw_codes(bytes([200]) * 81, 8), 8, num_colours=128), "colour 200 of 128"),
    (WEBP[:-1], "the webp image is damaged or cut short"),
    (WEBP[:20], "the webp image ends in its header"),
    (BMP[:-4], "the bmp image is damaged or cut short"),
    (BMP[:22], "the bmp image ends in its header, after 22 bytes"),
    (bmp(32, bytes(160), compression=3, tail=struct.pack("<III", 0xFF00, 0xFF0000, 0xFF)), "unusual colour masks"),
])  # fmt: skip
def test_a_fault_says_what_is_wrong(data: bytes, said: str) -> None:
    for spec in (DecodedImage(), TrainImage(16), EvalImage(16)):
        with pytest.raises(ImageFault, match=said):
            spec.apply(data, FILES, 3, None)


@pytest.mark.parametrize(
    "data",
    [JPEG, PROGRESSIVE, PNG, GIF, BMP, WEBP],
    ids=["jpeg", "progressive", "png", "gif", "bmp", "webp"],
)
def test_no_cut_passes(data: bytes) -> None:
    """Wherever a file is cut it is a fault, whatever is to become of it; but for the trailer of a GIF, which no decoder misses."""
    needed = len(data) - 1 if data is GIF else len(data)
    for length in [*range(0, needed, 37), *range(max(0, needed - 40), needed)]:
        for spec in (DecodedImage(), TrainImage(8)):
            with pytest.raises(ImageFault):
                spec.apply(data[:length], FILES, length, None)
    assert DecodedImage().apply(data[:needed], FILES, 0, None).any()


FRAME = JPEG.index(b"\xff\xc0")
SCANS_LIKE_SAND = (
    PROGRESSIVE[:-2] + PROGRESSIVE[PROGRESSIVE.rindex(b"\xff\xda") : -2] * 600 + b"\xff\xd9"
)


def enlarged(data: bytes, sides: bytes) -> bytes:
    """A progressive JPEG that says it has other sides."""
    at = data.index(b"\xff\xc2") + 5
    return data[:at] + sides + data[at + 4 :]


@pytest.mark.parametrize(("data", "said"), [
    (JPEG[: FRAME + 5] + b"\xff\x00\xff\x00" + JPEG[FRAME + 9 :], "65,280 x 65,280 pixels; up to 178,956,970 are decoded"),
    (png((60_000, 60_000), rows=b""), "60,000 x 60,000 pixels"),
    (BMP[:18] + struct.pack("<ii", 60_000, -60_000) + BMP[26:], "60,000 x 60,000 pixels"),
    (b"RIFF\0\0\0\0WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + b"\xff\xff\0\xff\xff\0", "65,536 x 65,536 pixels"),
    (b"RIFF\0\0\0\0WEBPVP8L" + struct.pack("<IBI", 10, 0x2F, 0x3FFF | 0x3FFF << 14), "16,384 x 16,384 pixels"),
    (gif_with_codes((60_000, 60_000), b"", 8), "60,000 x 60,000 pixels"),
    (enlarged(SCANS_LIKE_SAND, b"\x10\0\x10\0"), "scans; up to 500 are decoded"),
    # A chunk that says it has 4 GB: OpenCV would set aside 2 of them before it looks.
    (PNG[:33] + b"\xff\xff\xff\xf0" + PNG[37:], "a length in it is damaged"),
])  # fmt: skip
def test_bombs_are_refused_at_once(data: bytes, said: str) -> None:
    start = time.process_time()
    with pytest.raises(ImageFault, match=said):
        TrainImage(8).apply(data, FILES, 0, None)
    assert time.process_time() - start < 1


def test_the_limit_is_that_of_the_build() -> None:
    assert headers.MAX_PIXELS == image_kinds.MAX_PIXELS


def test_ancillary_chunks_of_a_png_make_no_noise(capfd: pytest.CaptureFixture[str]) -> None:
    """libpng prints a warning for each image with a profile that it does not like: in each epoch again."""
    profile = chunk(b"iCCP", b"sRGB\0\0" + zlib.compress(bytes(128)))
    found = DecodedImage().apply(
        png((7, 5), before=profile + chunk(b"tEXt", b"a\0b", damage=1)), FILES, 0, None
    )
    assert capfd.readouterr() == ("", "")
    assert (found == 0x5A).all()


@pytest.mark.parametrize("where", ["before", "after"])
def test_what_unpacks_to_much_is_not_unpacked(where: str) -> None:
    text = chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(1 << 26)))
    start = time.process_time()
    assert (DecodedImage().apply(png((7, 5), **{where: text}), FILES, 0, None) == 0x5A).all()
    assert time.process_time() - start < 0.05


def shape_or_fault(spec: ImageTransform, data: bytes, draw: int) -> tuple[int, ...] | str:
    try:
        return spec.apply(data, FILES, draw, None).shape
    except ImageFault as fault:
        return fault.what


@st.composite
def damaged_files(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from([JPEG, PROGRESSIVE, PNG, GIF, BMP, WEBP])))
    for _ in range(draw(st.integers(1, 5))):
        where = draw(st.integers(0, len(data) - 1))
        data[where : where + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    return bytes(data)


@settings(max_examples=300, deadline=None)
@given(damaged_files(), st.integers(0, 2**64 - 1))
@example(b"GIF89a" + bytes(7), 0)
@example(b"\xff\xd8\xff", 0)
@example(b"RIFF\0\0\0\0WEBP", 0)
@example(b"BM", 0)
def test_damage_gives_a_picture_or_a_fault(data: bytes, draw: int) -> None:
    for spec in (DecodedImage(16), TrainImage(16), EvalImage(16, fast=True)):
        made = shape_or_fault(spec, data, draw)
        assert made == (16, 16, 3) or (isinstance(made, str) and made)


def test_faults_travel_between_processes() -> None:
    fault = pickle.loads(pickle.dumps(ImageFault("what is wrong")))
    assert (type(fault), fault.what, str(fault)) == (ImageFault, "what is wrong", "what is wrong")
