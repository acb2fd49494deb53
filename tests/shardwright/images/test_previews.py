"""Previews of images: every format and mode, at a reduced size; damage is a fault of the image."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from shardwright.errors import ImageFault
from shardwright.format.tensors import to_tensor_proto
from shardwright.images.decode import StoredImage
from shardwright.images.previews import SIDE, decode_preview

FILES = StoredImage()


def encoded(image: Image.Image, image_format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, image_format, **options)
    return buffer.getvalue()


def noise(width: int, height: int, mode: str = "RGB") -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(pixels).convert(mode)


@pytest.mark.parametrize(("image_format", "mode", "channels"), [
    ("JPEG", "RGB", 3), ("JPEG", "L", 1), ("JPEG", "CMYK", 3),
    ("PNG", "RGB", 3), ("PNG", "L", 1), ("PNG", "1", 1), ("PNG", "P", 3), ("PNG", "RGBA", 3),
    ("PNG", "LA", 1), ("GIF", "P", 3), ("BMP", "RGB", 3), ("WEBP", "RGB", 3), ("WEBP", "RGBA", 3),
])  # fmt: skip
def test_formats_and_modes(image_format: str, mode: str, channels: int) -> None:
    preview = decode_preview(encoded(noise(50, 30, mode), image_format), FILES)
    assert preview.pixels.shape == (30, 50, channels)
    assert preview.pixels.dtype == np.uint8
    assert (preview.width, preview.height) == (50, 30)


def test_16_bits_are_shown_by_their_high_byte() -> None:
    values = np.arange(256, dtype=np.uint16).reshape(16, 16) * 256 + 77
    preview = decode_preview(encoded(Image.fromarray(values), "PNG"), FILES)
    assert (preview.pixels[..., 0] == values >> 8).all()


@pytest.mark.parametrize("image_format", ["JPEG", "PNG"])
@pytest.mark.parametrize("longer", [SIDE - 1, SIDE, 2 * SIDE - 1, 2 * SIDE, 5 * SIDE, 9 * SIDE])
def test_large_images_are_reduced(image_format: str, longer: int) -> None:
    image = Image.new("RGB", (longer // 10, longer), (10, 100, 200))
    preview = decode_preview(encoded(image, image_format), FILES)
    assert (preview.width, preview.height) == image.size
    shown = max(preview.pixels.shape[:2])
    assert shown == longer if longer < 2 * SIDE else SIDE <= shown < 2 * SIDE
    assert np.abs(preview.pixels.reshape(-1, 3).astype(int) - (10, 100, 200)).max() <= 2


def test_stored_pixels() -> None:
    pixels = np.asarray(noise(6, 4))
    raw = decode_preview(pixels.tobytes(), StoredImage("raw", pixels.shape))
    assert (raw.pixels == pixels).all()
    tensor = decode_preview(to_tensor_proto(pixels[..., :1]), StoredImage("tensor"))
    assert tensor.pixels.shape == (4, 6, 1)
    floats = StoredImage("raw", pixels.shape, "float32")
    assert (decode_preview((pixels / np.float32(255)).tobytes(), floats).pixels == pixels).all()


@pytest.mark.parametrize("data", [
    b"", b"no image", encoded(noise(90, 90), "JPEG")[:900], encoded(noise(90, 90), "PNG")[:-300],
    encoded(noise(9, 9), "GIF")[:40], b"BM" + bytes(60), b"\xff\xd8\xff",
])  # fmt: skip
def test_damage_is_a_fault_of_the_image(data: bytes) -> None:
    with pytest.raises(ImageFault):
        decode_preview(data, FILES)


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "BMP"])
def test_what_decodes_of_a_damaged_image_can_be_shown(image_format: str) -> None:
    image = Image.fromarray(np.full((200, 100, 3), 77, np.uint8) ^ np.asarray(noise(100, 200)) // 9)
    data = encoded(image, image_format)
    whole, cut = (
        decode_preview(part, FILES, partial=True).pixels for part in (data, data[: len(data) // 2])
    )
    assert whole.shape == cut.shape
    if image_format == "BMP":  # from the bottom up
        whole, cut = whole[::-1], cut[::-1]
    assert (whole[:60] == cut[:60]).all()
    assert not cut[150:].any()
    with pytest.raises(ImageFault):
        decode_preview(data[: len(data) // 2], FILES)


@pytest.mark.parametrize("data", [b"", b"no image", b"BM" + bytes(60), b"\xff\xd8\xff"])
def test_nothing_is_shown_of_an_image_without_a_pixel(data: bytes) -> None:
    with pytest.raises(ImageFault):
        decode_preview(data, FILES, partial=True)
