"""Masks: every number comes out as it went in, and the geometry is that of the image beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shardwright.errors import ImageFault
from shardwright.images.kinds import ImageInfo
from shardwright.transforms.images.checks import check_image
from shardwright.transforms.images.masks import encode_mask
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.policy import PolicyFault
from shardwright.transforms.images.storing import store_image
from shardwright.transforms.rejects import RejectReason as R
from tests.support.encoded_images import rejected
from tests.support.image_corpus import JPEG, Sample, all_samples
from tests.support.image_makers import Size, drawn, exif_block, opened, picture, saved
from tests.support.policy_images import policy_of

SQUARES = np.kron(np.arange(12, dtype=np.uint8).reshape(3, 4), np.ones((10, 10), np.uint8))
NUMBERS = SQUARES * 20  # 40 x 30 pixels
KEEP = EncodeOptions()
FITS = ["cover", "contain", "stretch"]


def mask_png(numbers: Any = NUMBERS, **options: Any) -> bytes:
    return saved(Image.fromarray(numbers), "PNG", **options)


def numbers_of(data: bytes) -> Any:
    return np.asarray(opened(data))


def test_a_gray_png_is_kept_as_it_is() -> None:
    data, deep = mask_png(), mask_png(NUMBERS.astype(np.uint16) * 300)
    stored, info = encode_mask(data, KEEP)
    assert stored is data
    assert info == ImageInfo("png", 40, 30, 1)
    assert encode_mask(deep, KEEP)[0] is deep


@pytest.mark.parametrize(
    ("image_format", "options"), [("PNG", {}), ("GIF", {"optimize": False}), ("BMP", {})]
)
def test_the_numbers_of_a_palette_are_its_indices(image_format: str, options: Any) -> None:
    image = Image.frombytes("P", (40, 30), SQUARES.tobytes())
    colors = [(number * 37 % 256, number * 91 % 256, number) for number in range(256)]
    image.putpalette([value for color in colors for value in color])
    stored, info = encode_mask(saved(image, image_format, **options), KEEP)
    assert np.array_equal(numbers_of(stored), SQUARES)
    assert info == check_image(stored, "decode") == ImageInfo("png", 40, 30, 1)


@pytest.mark.parametrize(
    ("mode", "image_format"),
    [("RGB", "PNG"), ("RGB", "WEBP"), ("RGBA", "PNG"), ("RGBA", "WEBP"), ("LA", "PNG")],
)
def test_channels_that_are_the_same_become_one(mode: str, image_format: str) -> None:
    options = {"lossless": True} if image_format == "WEBP" else {}
    data = saved(Image.fromarray(NUMBERS).convert(mode), image_format, **options)
    stored, info = encode_mask(data, KEEP)
    assert info.channels == 1
    assert np.array_equal(numbers_of(stored), NUMBERS)


@pytest.mark.parametrize("check", ["header", "decode", "none"])
def test_reasons_of_what_is_no_mask(check: str) -> None:
    for data, reason, message in (
        (JPEG, R.UNSUPPORTED_FORMAT, "a mask as JPEG, whose compression changes the numbers"),
        (drawn("PNG"), R.UNSUPPORTED_FORMAT, "a mask in color"),
        (mask_png()[:-20], R.TRUNCATED, "fetch it again"),
        (b"", R.EMPTY_FILE, "no bytes"),
        (b"hello", R.NOT_AN_IMAGE, "starts with"),
    ):
        with rejected(f"^{reason}: .*{message}"):
            encode_mask(data, KEEP, check=check)


@pytest.mark.parametrize("encode", ["jpeg", "png", "raw"])
def test_it_is_a_png_however_images_are_encoded(encode: Any) -> None:
    stored, info = encode_mask(mask_png(), EncodeOptions(encode, (20, 15)))
    assert info == ImageInfo("png", 20, 15, 1)
    assert np.array_equal(numbers_of(stored), NUMBERS[::2, ::2])


@given(
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    resize=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    fit=st.sampled_from(FITS),
    values=st.sampled_from([np.uint8([0, 1, 7, 255]), np.uint16([0, 1, 7, 60_000])]),
)
def test_no_number_is_made_up(size: Size, resize: Size, fit: Any, values: Any) -> None:
    numbers = values[np.add.outer(np.arange(size[1]) // 7, np.arange(size[0]) // 5) % 4]
    stored, info = encode_mask(mask_png(numbers), EncodeOptions("png", resize, fit=fit))
    found = numbers_of(stored)
    assert (info.width, info.height) == resize == found.shape[::-1]
    assert set(found.flat) <= set(values)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("resize", [(24, 24), (50, 20), (10, 40)])
def test_it_lies_on_its_image(fit: Any, resize: tuple[int, int]) -> None:
    """In its flat parts, an image of flat squares shows the same square as its mask."""
    options = EncodeOptions("png", resize, fit=fit)
    image = numbers_of(store_image(mask_png(), options).data).astype(int)
    same = np.abs(image - numbers_of(encode_mask(mask_png(), options)[0])) <= 2
    assert same.mean() > 0.6
    assert same[0, 0]
    assert same[-1, -1]


@pytest.mark.parametrize("fault", [PolicyFault.BOMB, PolicyFault.ASPECT, PolicyFault.SMALL])
def test_it_gets_the_size_that_the_policy_gives_its_image(fault: PolicyFault) -> None:
    options = EncodeOptions(policy=policy_of("fix", fault))
    for size in ((90, 60), (130, 25), (70, 12)):
        image = store_image(saved(picture(size=size), "PNG"), options).info
        mask = encode_mask(mask_png(np.zeros(size[::-1], np.uint8)), options)[1]
        assert (mask.width, mask.height) == (image.width, image.height)


def test_its_exif_is_kept_applied_or_stripped() -> None:
    data = mask_png(exif=exif_block(6))
    assert encode_mask(data, KEEP)[0] is data
    turned = encode_mask(data, EncodeOptions(policy=policy_of("fix", PolicyFault.EXIF)))[0]
    assert np.array_equal(numbers_of(turned), np.rot90(NUMBERS, -1))
    stripped = encode_mask(data, EncodeOptions(strip_metadata=True))[0]
    assert b"eXIf" not in stripped
    assert np.array_equal(numbers_of(stripped), NUMBERS)


@pytest.mark.parametrize("sample", all_samples(), ids=lambda sample: sample.name)
def test_any_file_is_a_mask_or_a_typed_fault(sample: Sample) -> None:
    for options in (KEEP, EncodeOptions("jpeg", (9, 7))):
        try:
            stored, info = encode_mask(sample.data, options)
        except ImageFault:
            continue
        assert (info.format, info.channels) == ("png", 1)
        assert options is KEEP or check_image(stored, "decode") == info


@pytest.mark.parametrize(("size", "orientation", "action", "fits"), [
    ((47, 61), 1, "keep", True),
    ((94, 122), 1, "keep", True),
    ((95, 122), 1, "keep", True),
    ((98, 122), 1, "keep", False),
    ((64, 64), 1, "keep", True),
    ((61, 47), 1, "keep", False),
    ((61, 47), 6, "keep", False),
    ((61, 47), 6, "fix", True),
    ((47, 61), 6, "fix", False),
    ((47, 61), 3, "fix", True),
    (None, 1, "keep", True),
])  # fmt: skip
def test_a_mask_has_the_shape_of_its_image(
    size: tuple[int, int] | None, orientation: int, action: str, fits: bool
) -> None:
    """A scaled mask is one, too; a size of an image that EXIF turns is the turned one."""
    numbers = np.zeros((47, 61), np.uint8)
    data = saved(Image.fromarray(numbers), "PNG", exif=exif_block(orientation))
    options = EncodeOptions(policy=policy_of(action, PolicyFault.EXIF))
    if fits:
        assert encode_mask(data, options, image_size=size)[0]
    else:
        with pytest.raises(
            ImageFault,
            match="a mask of 61 x 47 pixels for an"
            if orientation != 6 or action == "keep"
            else "of 47 x 61",
        ):
            encode_mask(data, options, image_size=size)
