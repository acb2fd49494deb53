"""Decode an image for a look at it, with Pillow: reduced, in gray or RGB, without alpha.

A JPEG is reduced while it is decoded (libjpeg's scaled DCT), and other images by averaging pixels.
Pillow is the one decoder that both readers and builds have.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import ImageFault
from shardwright.images.decode import StoredImage, open_image, power_of_two
from shardwright.images.jpeg import check_scans, essential_jpeg
from shardwright.images.kinds import check_size, fault_of_stranger, image_format
from shardwright.images.libraries import load_library
from shardwright.images.png import essential_png

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

SIDE = 480
"""A preview's longer side has at least as many pixels, if the image has, and less than twice."""

_ESSENTIAL: dict[str, Callable[[bytes], bytes]] = {"jpeg": essential_jpeg, "png": essential_png}


class Preview(NamedTuple):
    """A decoded image.

    Attributes:
        pixels: uint8 [height, width, 1 or 3], gray or RGB, at a reduced size.
        width: Width of the image itself, in pixels.
        height: Height of the image itself, in pixels.
    """

    pixels: NDArray[np.uint8]
    width: int
    height: int


def decode_preview(data: bytes, stored: StoredImage, *, partial: bool = False) -> Preview:
    """Decode an image, at full size if its longer side has less than `2 * SIDE` pixels.

    Args:
        data: All stored bytes.
        stored: Their storage format.
        partial: Return what decodes of a damaged file, if there is anything; the rest is black.

    Raises:
        ImageFault: The image cannot be decoded, or has too many pixels.
        UsageError: Pillow is not installed.
    """
    if stored.encoding == "raw":
        return _preview_of_pixels(data, stored)
    load_library("PIL.Image")  # outside `try`: a missing library is not a fault of the image
    kind = image_format(data[:16])
    if not kind:
        raise fault_of_stranger(data)
    try:
        return _preview_of_file(data, kind, partial=partial)
    except (ImageFault, MemoryError):
        raise
    # Decoders raise any exception over hostile bytes.
    except Exception as error:
        raise ImageFault(f"the {kind} image does not decode: {error}") from error


def _preview_of_pixels(data: bytes, stored: StoredImage) -> Preview:
    opened = open_image(data, stored, fast=True)
    pixels = opened.decode(1)
    step = _reduction(opened.width, opened.height)
    small = pixels[::step, ::step]
    if (small[..., :1] == small).all():
        small = small[..., :1]
    return Preview(np.ascontiguousarray(small), opened.width, opened.height)


def _preview_of_file(data: bytes, kind: str, *, partial: bool) -> Preview:
    whole = partial and kind == "png"  # `essential_png` wants all chunks
    image = image_openers()[kind](BytesIO(data if whole else _ESSENTIAL.get(kind, bytes)(data)))
    width, height = image.size
    check_size(kind, height, width)
    step = _reduction(width, height)
    if kind == "jpeg":
        check_scans(data, height, width)
        image.draft(None, (-(-width // step), -(-height // step)))
    try:
        image.load()
    except Exception:
        image.tile = []  # Pillow keeps the pixels before the damage
        if not (partial and image.getbbox()):
            raise
    shown: Any = image
    # What `draft` has not reduced already.
    step = min(step, max(1, round(image.width * step / width)))
    if shown.mode.startswith("I"):  # 16 bits: the high byte, as TensorFlow's decoders return
        shown = load_library("PIL.Image").fromarray((np.asarray(shown) >> 8).astype(np.uint8))
    elif shown.mode not in ("L", "RGB"):
        shown = shown.convert("L" if shown.mode in ("1", "LA") else "RGB")
    if step > 1:
        shown = shown.reduce(step)
    pixels = np.asarray(shown)
    return Preview(pixels[..., None] if pixels.ndim == 2 else pixels, width, height)


def _reduction(width: int, height: int) -> int:
    """Return the power of two, at most 64, that leaves at least `SIDE` pixels."""
    return min(64, power_of_two(max(width, height) // SIDE))


@functools.cache
def image_openers() -> dict[str, Callable[[BytesIO], ImageFile]]:
    """Return Pillow's plugin for each image format."""
    # Not Image.open: that registers some 40 plugins at the first unknown file, tries them in turn
    # whatever the header says, and warns about large images, which are checked here.
    from PIL import (
        BmpImagePlugin,
        GifImagePlugin,
        JpegImagePlugin,
        PngImagePlugin,
        WebPImagePlugin,
    )

    return {
        "jpeg": JpegImagePlugin.JpegImageFile,
        "png": PngImagePlugin.PngImageFile,
        "gif": GifImagePlugin.GifImageFile,
        "bmp": BmpImagePlugin.BmpImageFile,
        "webp": WebPImagePlugin.WebPImageFile,
    }
