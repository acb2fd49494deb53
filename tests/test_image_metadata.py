"""Metadata is cut out without touching a pixel: equal in Pillow and TensorFlow, and nothing of it is left in the bytes."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.image_corpus import (
    ANIMATED_GIF,
    BMP,
    FRAMES,
    GIF,
    JPEG,
    PNG,
    PROGRESSIVE,
    WEBP,
    all_samples,
    good_samples,
)
from tests.image_makers import chunk, exif_block, picture, riff, saved, vp8x, webp_chunk
from tests.test_image_encode import opened
from transforms.images import (
    EncodeOptions,
    ImageFault,
    ImagePolicy,
    PolicyFault,
    check_image,
    store_image,
)
from transforms.images.metadata import strip
from transforms.rejects import RejectReason

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

SECRET = b"GPS 52.5200 13.4050 of someone's home"
XMP = b"http://ns.adobe.com/xap/1.0/\0<x:xmpmeta>" + SECRET + b"</x:xmpmeta>"
PROFILE = bytes(16) + b"RGB XYZ " + bytes(12) + b"acsp" + bytes(88)
STRIP = EncodeOptions(strip_metadata=True)
TRACES = (
    SECRET,
    b"Exif",
    b"EXIF",
    b"eXIf",
    b"xmpmeta",
    b"XMP ",
    b"MakerNote",
    b"tEXt",
    b"zTXt",
    b"iTXt",
    b"tIME",
    b"JFXX",
)


def segment(marker: int, body: bytes) -> bytes:
    return bytes((0xFF, marker)) + struct.pack(">H", len(body) + 2) + body


def jpeg_with_everything(base: bytes) -> bytes:
    thumbnail = saved(picture(size=(16, 12)), "JPEG")
    before = (
        segment(0xE0, b"JFXX\0\x10" + thumbnail)
        + segment(0xE1, exif_block(1, thumbnail=thumbnail) + SECRET)
        + segment(0xE1, XMP)
        + segment(0xE2, b"FPXR\0" + SECRET)
        + segment(0xE2, b"ICC_PROFILE\0\1\1" + PROFILE)
        + segment(0xED, b"Photoshop 3.0\0" + SECRET)
        + segment(0xEE, b"Ducky" + SECRET)
        + segment(0xFE, SECRET)
    )
    assert base[2:6] == b"\xff\xe0\0\x10"
    jfif = segment(
        0xE0, base[6:18] + b"\1\2" + SECRET[:6]
    )  # with a thumbnail of 1 x 2 pixels of its own
    scan = base.rindex(b"\xff\xda")
    start, rest, end = base[:2], base[20:scan], base[scan:]
    return (
        start
        + jfif
        + before
        + rest
        + segment(0xFE, SECRET)
        + end
        + b"trailer "
        + SECRET
        + thumbnail
    )


def png_with_everything(base: bytes) -> bytes:
    before = chunk(b"iCCP", b"name\0\0" + zlib.compress(PROFILE)) + chunk(
        b"gAMA", struct.pack(">I", 45_455)
    )
    text = (
        chunk(b"tEXt", b"Comment\0" + SECRET)
        + chunk(b"zTXt", b"k\0\0" + zlib.compress(SECRET))
        + chunk(b"iTXt", b"k\0\0\0\0\0" + SECRET)
    )
    dates = (
        chunk(b"tIME", bytes(7))
        + chunk(b"pHYs", bytes(9))
        + chunk(b"eXIf", exif_block(1)[6:] + SECRET)
    )
    return (
        base[:33]
        + before
        + text
        + dates
        + base[33:-12]
        + chunk(b"tEXt", b"After\0" + SECRET)
        + base[-12:]
        + SECRET
    )


def webp_with_everything(kind: bytes, base: bytes) -> bytes:
    parts = (
        (b"ICCP", PROFILE),
        (kind, webp_chunk(base, kind)),
        (b"EXIF", exif_block(1) + SECRET),
        (b"XMP ", XMP),
        (b"MINE", SECRET),
    )
    return riff(vp8x(0x2C), *parts) + SECRET


def gif_with_everything(base: bytes) -> bytes:
    def extension(label: int, *blocks: bytes) -> bytes:
        return (
            bytes((0x21, label))
            + b"".join(bytes((len(block),)) + block for block in blocks)
            + b"\0"
        )

    first = 13 + 3 * 2 ** ((base[10] & 7) + 1)
    added = (
        extension(0xFE, SECRET)
        + extension(0xFF, b"XMP DataXMP", SECRET)
        + extension(0x01, bytes(12), SECRET)
    )
    return base[:first] + added + base[first:-1] + extension(0xFE, SECRET) + b";" + SECRET


def laden() -> Iterable[tuple[str, bytes]]:
    yield "jpeg", jpeg_with_everything(JPEG)
    yield "progressive", jpeg_with_everything(PROGRESSIVE)
    yield "gray", jpeg_with_everything(saved(picture("L"), "JPEG"))
    yield "png", png_with_everything(PNG)
    for mode in ("L", "P", "RGBA", "I;16"):
        yield f"png-{mode}", png_with_everything(saved(picture(mode), "PNG"))
    yield "png-transparent", png_with_everything(saved(picture("P"), "PNG", transparency=3))
    yield (
        "apng",
        png_with_everything(saved(picture(), "PNG", save_all=True, append_images=FRAMES[1:])),
    )
    yield "webp", webp_with_everything(b"VP8 ", WEBP)
    yield "webp-lossless", webp_with_everything(b"VP8L", saved(picture(), "WEBP", lossless=True))
    yield "gif", gif_with_everything(GIF)
    yield (
        "gif-animated",
        gif_with_everything(
            saved(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:], duration=50, loop=0)
        ),
    )


PILLOW_FAILS = {
    "png-7x5-wrong-text-crc",
    "png-7x5-bad-profile",
    "png-7x5-text-bomb",
}  # over metadata, where libpng does not
LADEN = dict(laden())
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


@each_laden
def test_pixels_are_the_same_and_nothing_else_is_left(name: str) -> None:
    before = LADEN[name]
    assert any(trace in before for trace in TRACES)
    stored = store_image(before, STRIP, check="decode")
    assert [trace for trace in TRACES if trace in stored.data] == []
    assert frames(stored.data) == frames(before)
    assert np.array_equal(in_tensorflow(stored.data), in_tensorflow(before))
    assert check_image(stored.data, "decode") == stored.info == check_image(before, "decode")


@each_laden
def test_stripped_once_there_is_nothing_more_to_strip(name: str) -> None:
    once = store_image(LADEN[name], STRIP).data
    assert store_image(once, STRIP).data == once
    assert len(opened(once).getexif()) == 0


@each_laden
def test_profiles_go_only_where_that_is_asked_for(name: str) -> None:
    def has_profile(data: bytes) -> bool:
        return any(mark in data for mark in (b"ICC_PROFILE", b"iCCP", b"ICCP"))

    assert has_profile(store_image(LADEN[name], STRIP).data) == ("gif" not in name)
    bare = store_image(LADEN[name], EncodeOptions(color_profile="drop"))
    assert not has_profile(bare.data)
    assert frames(bare.data) == frames(LADEN[name])
    assert SECRET in bare.data, "metadata stays where only the profile was to go"
    assert check_image(bare.data, "decode") == bare.info


@pytest.mark.parametrize(
    "sample",
    [sample for sample in good_samples() if sample.data[:2] != b"BM"],
    ids=lambda sample: sample.name,
)
def test_every_good_image_stays_as_it_shows(sample: Any) -> None:
    stored = store_image(sample.data, STRIP, check="decode")
    if sample.name not in PILLOW_FAILS:
        assert frames(stored.data)[0] == frames(sample.data)[0]
    assert np.array_equal(in_tensorflow(stored.data), in_tensorflow(sample.data))
    assert check_image(stored.data, "decode") == sample.info


def test_a_bmp_has_no_metadata() -> None:
    assert store_image(BMP, STRIP).data is BMP


def test_a_gif_keeps_its_loop_and_its_times() -> None:
    image = Image.open(BytesIO(store_image(LADEN["gif-animated"], STRIP).data))
    assert (image.n_frames, image.info["loop"], image.info["duration"]) == (3, 0, 50)  # type: ignore[attr-defined]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP"])
def test_the_orientation_becomes_a_feature(orientation: int, image_format: str) -> None:
    data = saved(picture(), image_format, exif=exif_block(orientation))
    stored = store_image(data, STRIP)
    assert stored.info.orientation == orientation
    assert b"MM\0*" not in stored.data
    assert frames(stored.data) == frames(data)


def test_or_it_is_applied() -> None:
    options = EncodeOptions(strip_metadata=True, policy=ImagePolicy({PolicyFault.EXIF: "fix"}))
    assert (
        STRIP.tells_orientation,
        options.tells_orientation,
        EncodeOptions().tells_orientation,
    ) == (True, False, False)
    turned = saved(picture(), "JPEG", exif=exif_block(6), comment=SECRET)
    stored = store_image(turned, options)
    assert (stored.info.width, stored.info.height, stored.info.orientation, stored.fixes) == (
        47,
        61,
        1,
        ("exif",),
    )
    assert [trace for trace in TRACES if trace in stored.data] == []
    upright = store_image(jpeg_with_everything(JPEG), options)
    assert upright.fixes == ()
    assert [trace for trace in TRACES if trace in upright.data] == []


@pytest.mark.parametrize(
    ("data", "image_format"),
    [
        (JPEG[:-2], "jpeg"), (JPEG[:2], "jpeg"), (PNG[:-12], "png"), (PNG[:8], "png"), (WEBP[:12], "webp"),
        (ANIMATED_GIF[:-60], "gif"), (GIF[:-1] + b"?;", "gif"),
    ],
)  # fmt: skip
def test_where_the_parts_do_not_lead_to_the_end_nothing_is_stored(
    data: bytes, image_format: str
) -> None:
    with pytest.raises(ImageFault, match="metadata cannot be taken out") as caught:
        strip(data, image_format, metadata=True, profile=False)
    assert caught.value.reason == RejectReason.CORRUPT


def test_what_is_no_image_is_not_stored_unseen() -> None:
    """Also where nothing is checked: nobody could say what is in it."""
    with pytest.raises(ImageFault) as caught:
        store_image(b"hello " + SECRET, STRIP, check="none")
    assert caught.value.reason == RejectReason.NOT_AN_IMAGE


@settings(max_examples=150, deadline=None)
@given(
    sample=st.sampled_from(all_samples()),
    check=st.sampled_from(["header", "none"]),
    cut=st.floats(0, 1),
)
def test_damage_is_a_typed_fault(sample: Any, check: str, cut: float) -> None:
    for data in (sample.data, sample.data[: int(cut * len(sample.data))]):
        try:
            stored = store_image(data, STRIP, check=check)
        except ImageFault:
            continue
        assert store_image(stored.data, STRIP, check=check).data == stored.data
