"""Damaged, cut and hostile files: each is a fault that says what is wrong, never a gray picture."""

from __future__ import annotations

import pickle
import struct
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.errors import ImageFault
from shardwright.images import kinds as image_kinds
from shardwright.images.decode import StoredImage
from shardwright.images.kinds import MAX_PIXELS
from shardwright.images.png import essential_png
from shardwright.images.specs import DecodedImage, EvalImage, TrainImage
from tests.support.image_corpus import (
    BMP,
    FRAME,
    GIF,
    JPEG,
    PNG,
    PROGRESSIVE,
    SCAN,
    STRANGE_MASKS,
    WEBP,
)
from tests.support.image_makers import (
    chunk,
    gif_with_codes,
    inserted,
    lzw_codes,
    patched,
    picture,
    png,
    saved,
)

FILES = StoredImage()
STRAY = inserted(JPEG, 20, b"abc")
BY_FORMAT = {
    "jpeg": JPEG, "progressive": PROGRESSIVE, "png": PNG, "gif": GIF, "bmp": BMP, "webp": WEBP,
}  # fmt: skip


@pytest.mark.parametrize(("data", "message"), [
    (b"", "ends after 0 bytes"), (b"BMW is a maker of cars", "not a known image format"),
    (b"hello world", "the file starts with b'hello world': not a known image format"),
    (JPEG[:-2], "Premature end"), (JPEG[: SCAN + 100], "Premature end"),
    (JPEG[: SCAN + 100] + b"\xff\xd9", "the jpeg image is damaged or cut short"),
    (JPEG[:SCAN], "cut short, in its header"), (JPEG[:30], "cut short, in its header"),
    (STRAY[:-40], "Premature end"), (STRAY[:-600] + JPEG[-2:], "damaged or cut short"),
    (PROGRESSIVE[:-2], "Premature end"), (PROGRESSIVE[: len(PROGRESSIVE) // 2], "Premature end"),
    (PNG[:-12], "the png image is cut short"), (PNG[: len(PNG) // 2], "the png image is cut short"),
    (PNG[:20], "the png file ends early, after 20 bytes"),
    (PNG[:-30] + b"\0" + PNG[-29:], "the png image is damaged"),
    (GIF[: len(GIF) // 2], "the gif image is cut short"),
    (GIF[: len(GIF) // 2] + b"\0;", "the gif image is"),
    (GIF[:13], "the gif image is cut short, after 13 bytes"),
    (gif_with_codes((9, 9), lzw_codes(bytes(60), 8), 8), "ends before its last pixel"),
    (gif_with_codes((9, 9), lzw_codes(bytes(60), 8, end=False), 8), "ends before its last pixel"),
    (gif_with_codes((9, 9), b"", 8), "ends before its last pixel"),
    (gif_with_codes((9, 9), lzw_codes(bytes(81), 8), 9), "code size"),
    (gif_with_codes((9, 8), lzw_codes(b"\xc8" * 81, 8), 8, colors=128), "color 200, but only 128"),
    (WEBP[:-1], "the webp image is damaged or cut short"),
    (WEBP[:20], "the webp file ends early"), (STRANGE_MASKS, "unusual color masks"),
    (BMP[:-4], "the bmp image is damaged or cut short"),
    (BMP[:22], "the bmp file ends early, after 22 bytes"),
])  # fmt: skip
def test_a_fault_says_what_is_wrong(data: bytes, message: str) -> None:
    for spec in (DecodedImage(), TrainImage(16), EvalImage(16)):
        with pytest.raises(ImageFault, match=message):
            spec.apply(data, FILES, 3, None)


@pytest.mark.parametrize("name", BY_FORMAT)
def test_every_cut_is_a_fault(name: str) -> None:
    """A GIF may lack its last byte, the trailer: no decoder misses it."""
    data = BY_FORMAT[name]
    needed = len(data) - (name == "gif")
    for length in [*range(0, needed, 37), *range(max(0, needed - 40), needed)]:
        for spec in (DecodedImage(), TrainImage(8)):
            with pytest.raises(ImageFault):
                spec.apply(data[:length], FILES, length, None)
    assert DecodedImage().apply(data[:needed], FILES, 0, None).any()


LAST_SCAN = PROGRESSIVE[PROGRESSIVE.rindex(b"\xff\xda") : -2]
MANY_SCANS = PROGRESSIVE[:-2] + LAST_SCAN * 600 + b"\xff\xd9"
MANY_SCANS = patched(MANY_SCANS, MANY_SCANS.index(b"\xff\xc2") + 5, b"\x10\0\x10\0")
WEBP_START = b"RIFF\0\0\0\0WEBP"
VP8X = WEBP_START + b"VP8X" + struct.pack("<I", 10) + bytes(4) + b"\xff\xff\0\xff\xff\0"
VP8L = WEBP_START + b"VP8L" + struct.pack("<IBI", 10, 0x2F, 0x3FFF | 0x3FFF << 14)
JPEG_BOMB = patched(JPEG, FRAME + 5, b"\xff\x00\xff\x00")


@pytest.mark.parametrize(("data", "message"), [
    (JPEG_BOMB, "65,280 x 65,280 pixels, more than the maximum of 178,956,970"),
    (png((60_000, 60_000), rows=b""), "60,000 x 60,000 pixels"),
    (patched(BMP, 18, struct.pack("<ii", 60_000, -60_000)), "60,000 x 60,000 pixels"),
    (VP8X, "65,536 x 65,536 pixels"),
    (VP8L, "16,384 x 16,384 pixels"),
    (gif_with_codes((60_000, 60_000), b"", 8), "60,000 x 60,000 pixels"),
    (MANY_SCANS, "scans, more than the maximum of 500"),
    # A chunk with a length of 4 GB, of which OpenCV would allocate 2 before it looks.
    (patched(PNG, 33, b"\xff\xff\xff\xf0"), "has a damaged length"),
])  # fmt: skip
def test_bombs_are_refused_by_their_headers(data: bytes, message: str) -> None:
    assert MAX_PIXELS == image_kinds.MAX_PIXELS, "the limit is that of the build"
    with pytest.raises(ImageFault, match=message):
        TrainImage(8).apply(data, FILES, 0, None)


def test_damage_between_restart_markers_is_a_fault() -> None:
    """Libjpeg reports it as bytes before a marker, which do no harm elsewhere."""
    camera = saved(picture(size=(320, 240)), "JPEG", restart_marker_blocks=4)
    for at in range(len(camera) // 3, len(camera) - 500, 97):
        with pytest.raises(ImageFault, match="damaged or cut short"):
            DecodedImage().apply(patched(camera, at, bytes(300)), FILES, 0, None)


def test_libjpeg_refuses_scans_after_one_of_all_components() -> None:
    """So they need not be counted."""
    whole = saved(picture(size=(1100, 1000)), "JPEG")
    scan = whole[whole.rindex(b"\xff\xda") : -2]
    for stray in (b"", b"stray"):
        data = memoryview(inserted(whole, 20, stray))
        assert DecodedImage().apply(data, FILES, 0, None).any()
    with pytest.raises(ImageFault, match="damaged or cut short"):
        DecodedImage().apply(whole[:-2] + scan * 600 + b"\xff\xd9", FILES, 0, None)


def test_ancillary_chunks_of_a_png_are_dropped(capfd: pytest.CaptureFixture[str]) -> None:
    """Libpng prints a warning for each odd profile, in each epoch again, and unpacks all texts."""
    profile = chunk(b"iCCP", b"sRGB\0\0" + zlib.compress(bytes(128)))
    text = chunk(b"tEXt", b"a\0b", damage=1)
    bomb = chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(1 << 20)))
    data = png((7, 5), before=profile + text + bomb, after=bomb)
    assert (DecodedImage().apply(data, FILES, 0, None) == 0x5A).all()
    assert capfd.readouterr() == ("", "")
    assert essential_png(data) == png((7, 5))


@st.composite
def damaged_files(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(list(BY_FORMAT.values()))))
    for _ in range(draw(st.integers(1, 5))):
        where = draw(st.integers(0, len(data) - 1))
        data[where : where + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    return bytes(data)


@given(damaged_files(), st.integers(0, 2**64 - 1))
@example(b"GIF89a" + bytes(7), 0)
@example(b"\xff\xd8\xff", 0)
@example(b"RIFF\0\0\0\0WEBP", 0)
@example(b"BM", 0)
def test_damage_gives_a_picture_or_a_fault(data: bytes, draw: int) -> None:
    for spec in (DecodedImage(16), TrainImage(16), EvalImage(16, fast=True)):
        try:
            shape = spec.apply(data, FILES, draw, None).shape
        except ImageFault as fault:
            shape = fault.what and (16, 16, 3)
        assert shape == (16, 16, 3)


def test_faults_can_be_pickled() -> None:
    fault = pickle.loads(pickle.dumps(ImageFault("what is wrong")))
    assert (type(fault), fault.what, str(fault)) == (ImageFault, "what is wrong", "what is wrong")
