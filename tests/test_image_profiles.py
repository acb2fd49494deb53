"""Colour profiles: kept, dropped or converted to sRGB, in every format that holds one."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms

from tests.image_corpus import JPEG
from tests.image_makers import chunk, picture, png, saved
from tests.policy_images import policy_of
from tests.test_image_encode import opened
from transforms.images import EncodeOptions, PolicyFault, check_image, store_image
from transforms.images.profiles import needs_conversion, profile_of

SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
CONVERT = EncodeOptions(color_profile="srgb")


def swapped() -> bytes:
    """sRGB with its red and green primaries exchanged: whoever applies it shows red as green."""
    names = {
        SRGB[pos : pos + 4]: pos
        for pos in range(132, 132 + 12 * int.from_bytes(SRGB[128:132], "big"), 12)
    }
    profile = bytearray(SRGB)
    red, green = names[b"rXYZ"], names[b"gXYZ"]
    profile[red + 4 : red + 12], profile[green + 4 : green + 12] = (
        SRGB[green + 4 : green + 12],
        SRGB[red + 4 : red + 12],
    )
    return (
        bytes(profile)
        .replace("sRGB".encode("utf-16-be"), "odd!".encode("utf-16-be"))
        .replace(b"sRGB", b"odd!")
    )


def gray_profile() -> bytes:
    """Linear gray, put together by hand (ICC.1, 8.3): a white point and a curve without entries."""
    white = b"XYZ \0\0\0\0" + struct.pack(">iii", 63_190, 65_536, 54_061)
    curve = b"curv\0\0\0\0\0\0\0\0"
    tags = (
        struct.pack(">I", 2)
        + b"wtpt"
        + struct.pack(">II", 156, 20)
        + b"kTRC"
        + struct.pack(">II", 176, 12)
    )
    body = tags + white + curve
    head = (
        struct.pack(">I", 128 + len(body))
        + b"lcms"
        + b"\4\x30\0\0"
        + b"mntrGRAYXYZ "
        + bytes(12)
        + b"acsp"
        + bytes(28)
    )
    return head + struct.pack(">iii", 63_190, 65_536, 54_061) + bytes(48) + body


SWAPPED = swapped()
RED = Image.new("RGB", (30, 25), (200, 10, 10))
FORMATS = {"JPEG": {"quality": 95}, "PNG": {}, "WEBP": {"lossless": True}}


def with_profile(image_format: str, profile: bytes = SWAPPED, image: Image.Image = RED) -> bytes:
    return saved(image, image_format, icc_profile=profile, **FORMATS[image_format])


def colour(data: bytes) -> tuple[int, ...]:
    return tuple(
        np.asarray(opened(data).convert("RGB")).reshape(-1, 3).mean(axis=0).round().astype(int)
    )


@pytest.mark.parametrize("image_format", FORMATS)
def test_a_profile_is_found_as_pillow_finds_it(image_format: str) -> None:
    assert profile_of(with_profile(image_format), image_format.lower()) == SWAPPED
    assert opened(with_profile(image_format)).info["icc_profile"] == SWAPPED


def test_a_profile_in_several_parts() -> None:
    long = SWAPPED + bytes(200_000)
    assert profile_of(saved(RED, "JPEG", icc_profile=long), "jpeg") == long


@pytest.mark.parametrize("image_format", FORMATS)
def test_converted_to_srgb(image_format: str) -> None:
    stored = store_image(with_profile(image_format), CONVERT, check="decode")
    assert stored.fixes == ("profile",)
    red, green, blue = colour(stored.data)
    assert green > 180
    assert red < 60
    assert blue < 60
    assert b"odd!" not in stored.data
    assert stored.info == check_image(stored.data, "decode")


@pytest.mark.parametrize("image_format", FORMATS)
@pytest.mark.parametrize(
    "profile", [SRGB, b"", b"no profile at all" * 10, SWAPPED[:120], SWAPPED[:128] + bytes(400)]
)
def test_what_is_srgb_or_has_no_usable_profile_is_left_alone(
    image_format: str, profile: bytes
) -> None:
    data = with_profile(image_format, profile)
    stored = store_image(data, CONVERT)
    assert stored.data is data
    assert stored.fixes == ()


@pytest.mark.parametrize("encode", ["jpeg", "png", "raw", "tensor"])
def test_converted_while_encoded(encode: Any) -> None:
    stored = store_image(with_profile("PNG"), EncodeOptions(encode, (8, 8), color_profile="srgb"))
    pixels = (
        np.frombuffer(stored.data, np.uint8)[-8 * 8 * 3 :].reshape(-1, 3)
        if encode in ("raw", "tensor")
        else None
    )
    red, green, _ = pixels.mean(axis=0) if pixels is not None else colour(stored.data)
    assert green > 180
    assert red < 60
    assert stored.fixes == ("profile",)


def test_encoded_anew_profiles_go_unless_they_are_kept() -> None:
    for encode in ("jpeg", "png"):
        options: Any = {"encode": encode, "resize": (8, 8)}
        assert (
            "icc_profile"
            not in opened(store_image(with_profile("PNG"), EncodeOptions(**options)).data).info
        )
        kept = store_image(with_profile("PNG"), EncodeOptions(**options, color_profile="keep"))
        assert opened(kept.data).info["icc_profile"] == SWAPPED
        assert colour(kept.data)[0] > 180


def test_a_fix_keeps_the_profile_with_the_pixels_it_speaks_of() -> None:
    alpha = saved(Image.new("RGBA", (30, 25), (200, 10, 10, 255)), "PNG", icc_profile=SWAPPED)
    stored = store_image(alpha, EncodeOptions(policy=policy_of("fix", PolicyFault.ALPHA)))
    assert opened(stored.data).info["icc_profile"] == SWAPPED
    inks = bytearray(SWAPPED)
    inks[16:20] = b"CMYK"
    cmyk = saved(picture("CMYK"), "JPEG", icc_profile=bytes(inks))
    stored = store_image(cmyk, EncodeOptions(policy=policy_of("fix", PolicyFault.CMYK)))
    assert "icc_profile" not in opened(stored.data).info, "the pixels are no inks any more"


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L", "LA", "I;16", "1", "CMYK"])
def test_every_mode_survives_a_profile_of_another_kind(mode: str) -> None:
    image_format = "JPEG" if mode == "CMYK" else "PNG"
    data = saved(picture(mode), image_format, icc_profile=SWAPPED)
    stored = store_image(data, CONVERT, check="decode")
    assert (stored.info.width, stored.info.height) == (61, 47)
    assert stored.fixes == (("profile",) if mode in ("RGB", "RGBA", "P") else ())
    assert opened(stored.data).has_transparency_data == (mode in ("LA", "RGBA"))


@pytest.mark.parametrize("mode", ["L", "LA"])
def test_gray_with_a_gray_profile_stays_gray(mode: str) -> None:
    stored = store_image(
        saved(picture(mode), "PNG", icc_profile=gray_profile()), CONVERT, check="decode"
    )
    image = opened(stored.data)
    assert (stored.fixes, image.mode) == (("profile",), mode)
    before, after = (
        np.asarray(each.getchannel("L")).astype(int) for each in (picture(mode), image)
    )
    assert after.mean() > before.mean() + 10, "linear light is darker than it looks"
    assert mode == "L" or image.getchannel("A").tobytes() == picture(mode).getchannel("A").tobytes()


def test_alpha_is_kept_by_a_conversion() -> None:
    image = Image.new("RGBA", (30, 25), (200, 10, 10, 77))
    stored = store_image(saved(image, "PNG", icc_profile=SWAPPED), CONVERT)
    assert opened(stored.data).getchannel("A").getextrema() == (77, 77)


def test_damaged_profiles_are_none() -> None:
    for body in (b"", b"\0\0x", b"name\0\0" + b"no zlib", b"name\0\0" + zlib.compress(b"short")):
        data = png((7, 5), before=chunk(b"iCCP", body))
        assert profile_of(data, "png") == b""
        assert store_image(data, CONVERT).data is data
    assert profile_of(JPEG, "jpeg") == profile_of(saved(picture(), "BMP"), "bmp") == b""


def test_srgb_is_known_by_its_name() -> None:
    assert not needs_conversion(b"", b"RGB ")
    assert not needs_conversion(SRGB, b"RGB ")
    assert needs_conversion(SWAPPED, b"RGB ")
    assert not needs_conversion(SWAPPED, b"GRAY")
