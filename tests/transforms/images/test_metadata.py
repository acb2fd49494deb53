"""Metadata is cut out without touching a pixel, and nothing of it is left in the bytes."""

from __future__ import annotations

import os
import struct
import zlib
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shardwright.errors import ImageFault
from shardwright.transforms.images.checks import check_image
from shardwright.transforms.images.metadata import strip
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.policy import PolicyFault
from shardwright.transforms.images.storing import store_image
from tests.support import image_corpus as corpus
from tests.support import image_makers as make
from tests.support.encoded_images import rejected
from tests.support.policy_images import policy_of
from tests.support.random_tests import examples

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

SECRET = b"GPS 52.5200 13.4050 of someone's home"
XMP = b"http://ns.adobe.com/xap/1.0/\0<x:xmpmeta>" + SECRET + b"</x:xmpmeta>"
PROFILE = bytes(16) + b"RGB XYZ " + bytes(12) + b"acsp" + bytes(88)
STRIP = EncodeOptions(strip_metadata=True)
TRACES = (
    SECRET, b"Exif", b"EXIF", b"eXIf", b"xmpmeta", b"XMP ", b"MakerNote", b"tEXt", b"zTXt",
    b"iTXt", b"tIME", b"JFXX",
)  # fmt: skip


def segment(marker: int, body: bytes) -> bytes:
    return bytes((0xFF, marker)) + struct.pack(">H", len(body) + 2) + body


def laden_jpeg(base: bytes) -> bytes:
    before = (
        segment(0xE0, b"JFXX\0\x10" + corpus.THUMBNAIL)
        + segment(0xE1, make.exif_block(1, thumbnail=corpus.THUMBNAIL) + SECRET)
        + segment(0xE1, XMP)
        + segment(0xE2, b"FPXR\0" + SECRET)
        + segment(0xE2, b"ICC_PROFILE\0\1\1" + PROFILE)
        + segment(0xED, b"Photoshop 3.0\0" + SECRET)
        + segment(0xEE, b"Ducky" + SECRET)
        + segment(0xFE, SECRET)
    )
    assert base[2:6] == b"\xff\xe0\0\x10"
    jfif = segment(0xE0, base[6:18] + b"\1\2" + SECRET[:6])  # with a thumbnail of 1 x 2 pixels
    scan = base.rindex(b"\xff\xda")
    whole = base[:2] + jfif + before + base[20:scan] + segment(0xFE, SECRET) + base[scan:]
    return whole + b"trailer " + SECRET + corpus.THUMBNAIL


def laden_png(base: bytes) -> bytes:
    before = (
        make.chunk(b"iCCP", b"name\0\0" + zlib.compress(PROFILE))
        + make.chunk(b"gAMA", struct.pack(">I", 45_455))
        + make.chunk(b"tEXt", b"Comment\0" + SECRET)
        + make.chunk(b"zTXt", b"k\0\0" + zlib.compress(SECRET))
        + make.chunk(b"iTXt", b"k\0\0\0\0\0" + SECRET)
        + make.chunk(b"tIME", bytes(7))
        + make.chunk(b"pHYs", bytes(9))
        + make.chunk(b"eXIf", make.exif_block(1)[6:] + SECRET)
    )
    after = make.chunk(b"tEXt", b"After\0" + SECRET)
    return base[:33] + before + base[33:-12] + after + base[-12:] + SECRET


def laden_webp(kind: bytes, base: bytes) -> bytes:
    pixels, exif = (kind, make.webp_chunk(base, kind)), (b"EXIF", make.exif_block(1) + SECRET)
    parts = (b"ICCP", PROFILE), pixels, exif, (b"XMP ", XMP), (b"MINE", SECRET)
    return make.riff(make.vp8x(0x2C), *parts) + SECRET


def gif_extension(label: int, *blocks: bytes) -> bytes:
    body = b"".join(bytes((len(block),)) + block for block in blocks)
    return bytes((0x21, label)) + body + b"\0"


def laden_gif(base: bytes) -> bytes:
    first = 13 + 3 * 2 ** ((base[10] & 7) + 1)
    comment, text = gif_extension(0xFE, SECRET), gif_extension(0x01, bytes(12), SECRET)
    added = comment + gif_extension(0xFF, b"XMP DataXMP", SECRET) + text
    return base[:first] + added + base[first:-1] + comment + b";" + SECRET


LADEN = {
    "jpeg": laden_jpeg(corpus.JPEG),
    "progressive": laden_jpeg(corpus.PROGRESSIVE),
    "gray": laden_jpeg(make.drawn("JPEG", "L")),
    "png": laden_png(corpus.PNG),
    **{f"png-{m}": laden_png(make.drawn("PNG", m)) for m in ("L", "P", "RGBA", "I;16")},
    "png-transparent": laden_png(make.drawn("PNG", "P", transparency=3)),
    "apng": laden_png(corpus.ANIMATED_PNG),
    "webp": laden_webp(b"VP8 ", corpus.WEBP),
    "webp-lossless": laden_webp(b"VP8L", make.drawn("WEBP", lossless=True)),
    "gif": laden_gif(corpus.GIF),
    "gif-animated": laden_gif(make.saved(corpus.FRAMES[0], "GIF", **corpus.ANIMATED, loop=0)),
}
each_laden = pytest.mark.parametrize("name", LADEN)


def in_tensorflow(data: bytes) -> Any:
    return np.asarray(tf.io.decode_image(data, expand_animations=False))


def frames(data: bytes) -> list[bytes]:
    image = Image.open(BytesIO(data))
    shown = []
    for number in range(getattr(image, "n_frames", 1)):
        image.seek(number)
        shown.append(image.convert("RGBA").tobytes() + image.size[0].to_bytes(4, "big"))
    return shown


def traces_in(data: bytes) -> list[bytes]:
    return [trace for trace in TRACES if trace in data]


@each_laden
def test_pixels_are_the_same_and_nothing_else_is_left(name: str) -> None:
    before = LADEN[name]
    assert traces_in(before)
    stored = store_image(before, STRIP, check="decode")
    assert traces_in(stored.data) == []
    assert frames(stored.data) == frames(before)
    assert np.array_equal(in_tensorflow(stored.data), in_tensorflow(before))
    assert check_image(stored.data, "decode") == stored.info == check_image(before, "decode")
    assert store_image(stored.data, STRIP).data == stored.data
    assert len(make.opened(stored.data).getexif()) == 0


@each_laden
def test_profiles_go_with_re_encoding_only(name: str) -> None:
    def has_profile(data: bytes) -> bool:
        return any(mark in data for mark in (b"ICC_PROFILE", b"iCCP", b"ICCP"))

    assert has_profile(store_image(LADEN[name], STRIP).data) == ("gif" not in name)
    for options in (EncodeOptions("jpeg"), EncodeOptions("png")):
        assert not has_profile(store_image(LADEN[name], options).data)


# Pillow fails over the metadata of these, and libpng does not.
PILLOW_FAILS = {"png-7x5-wrong-text-crc", "png-7x5-bad-profile", "png-7x5-text-bomb"}
GOOD = [sample for sample in corpus.good_samples() if sample.info and sample.info.format != "bmp"]


@pytest.mark.parametrize("sample", GOOD, ids=lambda sample: sample.name)
def test_every_good_image_keeps_its_pixels(sample: corpus.Sample) -> None:
    stored = store_image(sample.data, STRIP, check="decode")
    if sample.name not in PILLOW_FAILS:
        assert frames(stored.data)[0] == frames(sample.data)[0]
    assert np.array_equal(in_tensorflow(stored.data), in_tensorflow(sample.data))
    assert check_image(stored.data, "decode") == sample.info


def test_a_bmp_stays_as_it_is_and_a_gif_keeps_its_loop_and_its_times() -> None:
    assert store_image(corpus.BMP, STRIP).data is corpus.BMP
    image: Any = Image.open(BytesIO(store_image(LADEN["gif-animated"], STRIP).data))
    assert (image.n_frames, image.info["loop"], image.info["duration"]) == (3, 0, 50)


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP"])
def test_the_orientation_becomes_a_feature(image_format: str) -> None:
    for orientation in range(1, 9):
        data = make.drawn(image_format, exif=make.exif_block(orientation))
        stored = store_image(data, STRIP)
        assert stored.info.orientation == orientation
        assert b"MM\0*" not in stored.data
        assert frames(stored.data) == frames(data)


def test_an_applied_orientation_is_no_feature() -> None:
    options = EncodeOptions(strip_metadata=True, policy=policy_of("fix", PolicyFault.EXIF))
    tells = [each.tells_orientation for each in (STRIP, options, EncodeOptions())]
    assert tells == [True, False, False]
    turned = make.drawn("JPEG", exif=make.exif_block(6), comment=SECRET)
    stored, upright = store_image(turned, options), store_image(LADEN["jpeg"], options)
    info = stored.info
    assert (info.width, info.height, info.orientation, stored.fixes) == (47, 61, 1, ("exif",))
    assert upright.fixes == ()
    assert traces_in(stored.data) == traces_in(upright.data) == []


@pytest.mark.parametrize(("data", "image_format"), [
    (corpus.JPEG[:-2], "jpeg"), (corpus.JPEG[:2], "jpeg"), (corpus.PNG[:-12], "png"),
    (corpus.PNG[:8], "png"), (corpus.WEBP[:12], "webp"), (corpus.ANIMATED_GIF[:-60], "gif"),
    (corpus.GIF[:-1] + b"?;", "gif"),
])  # fmt: skip
def test_parts_that_do_not_lead_to_the_end(data: bytes, image_format: str) -> None:
    with rejected(r"^corrupt: .*metadata cannot be stripped"):
        strip(data, image_format)


def test_a_file_that_is_no_image_is_rejected_even_unchecked() -> None:
    with rejected(r"^not_an_image: "):
        store_image(b"hello " + SECRET, STRIP, check="none")


@examples(100)
@given(
    sample=st.sampled_from(corpus.all_samples()),
    check=st.sampled_from(["header", "none"]),
    share=st.floats(0, 1),
)
def test_damage_is_a_typed_fault(sample: corpus.Sample, check: str, share: float) -> None:
    for data in (sample.data, sample.data[: int(share * len(sample.data))]):
        try:
            stored = store_image(data, STRIP, check=check)
        except ImageFault:
            continue
        assert store_image(stored.data, STRIP, check=check).data == stored.data
