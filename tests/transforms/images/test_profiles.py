"""Color profiles: kept, dropped or converted to sRGB, in every format that holds one."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms

from shardwright.transforms.images.checks import check_image
from shardwright.transforms.images.colors import needs_conversion
from shardwright.transforms.images.metadata import profile_of
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.policy import PolicyFault
from shardwright.transforms.images.storing import ImageToStore, store_image
from tests.support.image_corpus import JPEG
from tests.support.image_makers import chunk, drawn, opened, patched, picture, png, saved
from tests.support.policy_images import policy_of

SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
CONVERT = EncodeOptions(color_profile="srgb")
CONVERTED = ("profile",)


def swap_primaries() -> bytes:
    """SRGB with red and green exchanged: a program that applies it shows red as green."""
    tags = range(132, 132 + 12 * int.from_bytes(SRGB[128:132], "big"), 12)
    places = {SRGB[tag : tag + 4]: tag + 4 for tag in tags}
    red, green = places[b"rXYZ"], places[b"gXYZ"]
    profile = patched(SRGB, red, SRGB[green : green + 8])
    profile = patched(profile, green, SRGB[red : red + 8])
    profile = profile.replace("sRGB".encode("utf-16-be"), "odd!".encode("utf-16-be"))
    return profile.replace(b"sRGB", b"odd!")


def gray_profile() -> bytes:
    """Linear gray, made by hand (ICC.1, 8.3): a white point and a curve without entries."""
    white = struct.pack(">iii", 63_190, 65_536, 54_061)
    tags = b"wtpt" + struct.pack(">II", 156, 20) + b"kTRC" + struct.pack(">II", 176, 12)
    body = struct.pack(">I", 2) + tags + b"XYZ \0\0\0\0" + white + b"curv" + bytes(8)
    size = struct.pack(">I", 128 + len(body))
    head = size + b"lcms\4\x30\0\0mntrGRAYXYZ " + bytes(12) + b"acsp" + bytes(28)
    return head + white + bytes(48) + body


SWAPPED = swap_primaries()
RED = Image.new("RGB", (30, 25), (200, 10, 10))
FORMATS: dict[str, dict[str, Any]] = {
    "JPEG": {"quality": 95},
    "PNG": {},
    "WEBP": {"lossless": True},
}
each_format = pytest.mark.parametrize("image_format", FORMATS)


def with_profile(image_format: str = "PNG", profile: bytes = SWAPPED) -> bytes:
    return saved(RED, image_format, icc_profile=profile, **FORMATS[image_format])


def assert_green(pixels: Any) -> None:
    """Check that the red image was converted by the swapped profile."""
    red, green, blue = np.asarray(pixels).reshape(-1, 3).mean(axis=0)
    assert green > 180
    assert red < 60
    assert blue < 60


@each_format
def test_a_profile_is_found_and_converted(image_format: str) -> None:
    data = with_profile(image_format)
    assert profile_of(data, image_format.lower()) == opened(data).info["icc_profile"] == SWAPPED
    stored = store_image(data, CONVERT, check="decode")
    assert stored.fixes == CONVERTED
    assert_green(opened(stored.data).convert("RGB"))
    assert b"odd!" not in stored.data
    assert stored.info == check_image(stored.data, "decode")


@each_format
def test_images_in_srgb_or_without_a_usable_profile_stay_as_they_are(image_format: str) -> None:
    damaged = (b"", b"no profile at all" * 10, SWAPPED[:120], SWAPPED[:128] + bytes(400))
    for profile in (SRGB, *damaged):
        data = with_profile(image_format, profile)
        stored = store_image(data, CONVERT)
        assert stored.data is data
        assert stored.fixes == ()


@pytest.mark.parametrize("encode", ["jpeg", "png", "raw"])
def test_converted_while_re_encoded(encode: Any) -> None:
    stored = store_image(with_profile(), EncodeOptions(encode, (8, 8), color_profile="srgb"))
    bare = np.frombuffer(stored.data, np.uint8)[-8 * 8 * 3 :]
    assert_green(bare if encode == "raw" else opened(stored.data))
    assert stored.fixes == CONVERTED


@pytest.mark.parametrize("encode", ["jpeg", "png"])
def test_re_encoding_drops_profiles_unless_they_are_kept(encode: Any) -> None:
    bare = opened(store_image(with_profile(), EncodeOptions(encode, (8, 8))).data)
    assert "icc_profile" not in bare.info
    options = EncodeOptions(encode, (8, 8), color_profile="keep")
    kept = opened(store_image(with_profile(), options).data)
    assert kept.info["icc_profile"] == SWAPPED
    assert np.asarray(kept)[..., 0].mean() > 180


def test_a_fix_keeps_the_profile_unless_it_changes_the_color_space() -> None:
    def fixed(data: bytes, fault: PolicyFault) -> Image.Image:
        return opened(store_image(data, EncodeOptions(policy=policy_of("fix", fault))).data)

    alpha = saved(Image.new("RGBA", (30, 25), (200, 10, 10, 255)), "PNG", icc_profile=SWAPPED)
    assert fixed(alpha, PolicyFault.ALPHA).info["icc_profile"] == SWAPPED
    inks = drawn("JPEG", "CMYK", icc_profile=patched(SWAPPED, 16, b"CMYK"))
    assert "icc_profile" not in fixed(inks, PolicyFault.CMYK).info


def converted(image: Image.Image, profile: bytes, image_format: str = "PNG") -> ImageToStore:
    return store_image(saved(image, image_format, icc_profile=profile), CONVERT, check="decode")


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L", "LA", "I;16", "1", "CMYK"])
def test_every_mode_survives_a_profile_of_another_kind(mode: str) -> None:
    stored = converted(picture(mode), SWAPPED, "JPEG" if mode == "CMYK" else "PNG")
    assert (stored.info.width, stored.info.height) == (61, 47)
    assert stored.fixes == (CONVERTED if mode in ("RGB", "RGBA", "P") else ())
    image = opened(stored.data)
    assert image.has_transparency_data == (mode in ("LA", "RGBA"))
    if image.has_transparency_data:
        assert image.getchannel("A").tobytes() == picture(mode).getchannel("A").tobytes()


@pytest.mark.parametrize("mode", ["L", "LA"])
def test_gray_with_a_gray_profile_stays_gray(mode: str) -> None:
    stored = converted(picture(mode), gray_profile())
    image = opened(stored.data)
    assert (stored.fixes, image.mode) == (CONVERTED, mode)
    before, after = (np.asarray(each.getchannel("L")) for each in (picture(mode), image))
    assert after.mean() > before.mean() + 10, "linear light is darker than it looks"
    if mode == "LA":
        assert image.getchannel("A").tobytes() == picture(mode).getchannel("A").tobytes()


def test_long_and_damaged_profiles() -> None:
    long = SWAPPED + bytes(200_000)  # in several parts
    assert profile_of(saved(RED, "JPEG", icc_profile=long), "jpeg") == long
    for body in (b"", b"\0\0x", b"name\0\0" + b"no zlib", b"name\0\0" + zlib.compress(b"short")):
        data = png((7, 5), before=chunk(b"iCCP", body))
        assert profile_of(data, "png") == b""
        assert store_image(data, CONVERT).data is data
    assert profile_of(JPEG, "jpeg") == profile_of(drawn("BMP"), "bmp") == b""


def test_only_another_profile_of_the_same_space_needs_a_conversion() -> None:
    cases = ((b"", b"RGB "), (SRGB, b"RGB "), (SWAPPED, b"RGB "), (SWAPPED, b"GRAY"))
    assert [needs_conversion(*case) for case in cases] == [False, False, True, False]
