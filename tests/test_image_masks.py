"""Masks: every number that goes in is one that comes out, and the geometry is that of the image beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.image_corpus import JPEG, all_samples
from tests.image_makers import exif_block, picture, saved
from tests.policy_images import policy_of
from tests.test_image_encode import opened
from transforms.images import (
    EncodeOptions,
    ImageFault,
    PolicyFault,
    check_image,
    encode_mask,
    store_image,
)
from transforms.rejects import RejectReason

NUMBERS = np.kron(
    np.arange(12, dtype=np.uint8).reshape(3, 4) * 20, np.ones((10, 10), np.uint8)
)  # 40 x 30 pixels
KEEP = EncodeOptions()


def mask_png(numbers: Any = NUMBERS, **options: Any) -> bytes:
    return saved(Image.fromarray(numbers), "PNG", **options)


def numbers_of(data: bytes) -> Any:
    return np.asarray(opened(data))


def test_a_gray_png_is_kept_as_it_is() -> None:
    data = mask_png()
    stored, info = encode_mask(data, KEEP)
    assert stored is data
    assert (info.format, info.width, info.height, info.channels) == ("png", 40, 30, 1)
    deep = mask_png(NUMBERS.astype(np.uint16) * 300)
    assert encode_mask(deep, KEEP)[0] is deep


def palette_mask() -> Image.Image:
    image = Image.fromarray(NUMBERS // 20).convert("P")
    image = Image.frombytes("P", image.size, (NUMBERS // 20).tobytes())
    image.putpalette(
        [value for number in range(256) for value in (number * 37 % 256, number * 91 % 256, number)]
    )
    return image


@pytest.mark.parametrize("image_format", ["PNG", "GIF", "BMP"])
def test_the_numbers_of_a_palette_are_its_indices(image_format: str) -> None:
    stored, info = encode_mask(
        saved(
            palette_mask(), image_format, **({"optimize": False} if image_format == "GIF" else {})
        ),
        KEEP,
    )
    assert np.array_equal(numbers_of(stored), NUMBERS // 20)
    assert (info.format, info.channels) == ("png", 1)
    assert info == check_image(stored, "decode")


def test_alike_channels_are_one() -> None:
    rgb = np.repeat(NUMBERS[:, :, None], 3, axis=2)
    for image in (Image.fromarray(rgb), Image.fromarray(rgb).convert("RGBA")):
        for image_format in ("PNG", "WEBP"):
            stored, info = encode_mask(
                saved(
                    image, image_format, **({"lossless": True} if image_format == "WEBP" else {})
                ),
                KEEP,
            )
            assert info.channels == 1
            assert np.array_equal(numbers_of(stored), NUMBERS)
    stored, _ = encode_mask(saved(Image.fromarray(NUMBERS).convert("LA"), "PNG"), KEEP)
    assert np.array_equal(numbers_of(stored), NUMBERS)


@pytest.mark.parametrize(
    ("data", "reason", "said"),
    [
        (
            JPEG,
            RejectReason.UNSUPPORTED_FORMAT,
            "a mask as JPEG: compression has changed its numbers",
        ),
        (saved(picture(), "PNG"), RejectReason.UNSUPPORTED_FORMAT, "a mask in colours"),
        (mask_png()[:-20], RejectReason.TRUNCATED, "fetch it again"),
        (b"", RejectReason.EMPTY_FILE, "no bytes"),
        (b"hello", RejectReason.NOT_AN_IMAGE, "starts with"),
    ],
)
@pytest.mark.parametrize("check", ["header", "decode", "none"])
def test_what_is_no_mask(data: bytes, reason: RejectReason, said: str, check: str) -> None:
    with pytest.raises(ImageFault, match=said) as caught:
        encode_mask(data, KEEP, check=check)
    assert caught.value.reason == reason


@pytest.mark.parametrize("encode", ["jpeg", "png", "raw", "tensor"])
def test_it_is_a_png_whatever_the_images_are(encode: Any) -> None:
    stored, info = encode_mask(mask_png(), EncodeOptions(encode, (20, 15)))
    assert (info.format, info.width, info.height, info.channels) == ("png", 20, 15, 1)
    assert np.array_equal(numbers_of(stored), NUMBERS[::2, ::2])


@settings(max_examples=60, deadline=None)
@given(
    size=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    resize=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    fit=st.sampled_from(["cover", "contain", "stretch"]),
    deep=st.booleans(),
)
def test_no_number_is_made_up(
    size: tuple[int, int], resize: tuple[int, int], fit: Any, deep: bool
) -> None:
    values = np.array([0, 1, 7, 255 if not deep else 60_000], np.uint16 if deep else np.uint8)
    numbers = values[np.add.outer(np.arange(size[1]) // 7, np.arange(size[0]) // 5) % 4]
    options = EncodeOptions("png", resize, fit=fit)
    stored, info = encode_mask(mask_png(numbers), options)
    found = numbers_of(stored)
    assert (info.width, info.height) == resize == found.shape[::-1]
    assert set(np.unique(found)) <= {int(value) for value in values} | {0}


@pytest.mark.parametrize("fit", ["cover", "contain", "stretch"])
@pytest.mark.parametrize("resize", [(24, 24), (50, 20), (10, 40)])
def test_it_lies_on_its_image(fit: Any, resize: tuple[int, int]) -> None:
    """An image of flat squares, and the mask of its squares: where the image is flat, both tell the same square."""
    options = EncodeOptions("png", resize, fit=fit)
    image = opened(store_image(mask_png(), options).data)
    mask = numbers_of(encode_mask(mask_png(), options)[0]).astype(int)
    same = np.abs(np.asarray(image).astype(int) - mask) <= 2
    assert same.mean() > 0.6
    assert same[0, 0]
    assert same[-1, -1]


def test_sizes_that_the_policy_changes_are_changed_alike() -> None:
    for fault in (PolicyFault.BOMB, PolicyFault.ASPECT, PolicyFault.SMALL):
        for size in ((90, 60), (130, 25), (70, 12)):
            options = EncodeOptions(policy=policy_of("fix", fault))
            image = store_image(saved(picture(size=size), "PNG"), options).info
            mask = encode_mask(mask_png(np.zeros(size[::-1], np.uint8)), options)[1]
            assert (mask.width, mask.height) == (image.width, image.height)


def test_its_own_orientation_is_applied_where_that_of_images_is() -> None:
    data = mask_png(exif=exif_block(6))
    assert encode_mask(data, KEEP)[0] is data
    turned = encode_mask(data, EncodeOptions(policy=policy_of("fix", PolicyFault.EXIF)))[0]
    assert np.array_equal(numbers_of(turned), np.rot90(NUMBERS, -1))


def test_metadata_is_stripped() -> None:
    data = mask_png(exif=exif_block(1))
    stored = encode_mask(data, EncodeOptions(strip_metadata=True))[0]
    assert b"eXIf" not in stored
    assert np.array_equal(numbers_of(stored), NUMBERS)


@pytest.mark.parametrize("sample", all_samples(), ids=lambda sample: sample.name)
def test_any_file_is_a_mask_or_a_typed_fault(sample: Any) -> None:
    for options in (KEEP, EncodeOptions("jpeg", (9, 7))):
        try:
            stored, info = encode_mask(sample.data, options)
        except ImageFault:
            continue
        assert info.format == "png"
        assert info.channels == 1
        if options is not KEEP:
            assert check_image(stored, "decode") == info
