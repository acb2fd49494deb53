"""Encode small pictures for the page.

As JPEG, a thumbnail takes 0.1 ms; as WebP it would be a third smaller and take 1.5 ms.
"""

from __future__ import annotations

from base64 import b64encode
from io import BytesIO
from typing import NamedTuple

import numpy as np

from shardwright.images.libraries import load_library

LARGEST, LARGE, SMALL = (256, 75), (128, 75), (96, 50)  # longest side in pixels, and quality
_BYTES = ((31_000, LARGEST), (5_100, LARGE))  # that one takes at most, noise excepted
_TINY = 48  # a side in pixels, up to which PNG is small enough


class Thumbnail(NamedTuple):
    """A small picture as a file of its own."""

    data: bytes
    kind: str  # "jpeg" or "png"
    width: int
    height: int

    @property
    def url(self) -> str:
        return f"data:image/{self.kind};base64,{b64encode(self.data).decode()}"


def can_decode() -> bool:
    """Return whether Pillow is installed: the base install has no decoder."""
    try:
        load_library("PIL.Image")
    except Exception:
        return False
    return True


def detail_for(number: int, num_bytes: int) -> tuple[int, int]:
    """Return side and quality at which so many thumbnails usually have at most `num_bytes`."""
    return next((detail for each, detail in _BYTES if number * each <= num_bytes), SMALL)


def encode_small(pixels: np.ndarray, side: int, quality: int) -> Thumbnail:
    """Return pixels as a small file: PNG if it is tiny, else JPEG.

    Args:
        pixels: uint8 [height, width, 1 or 3].
        side: The longest side at most, in pixels.
        quality: Of a JPEG, 1 to 95.
    """
    library = load_library("PIL.Image")
    image = library.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    factor = -(-max(image.size) // side)
    if factor > 1:  # a mean of pixels, three times as fast as a resize
        image = image.reduce(factor)
    kind = "png" if max(image.size) <= _TINY else "jpeg"
    buffer = BytesIO()
    image.save(buffer, kind.upper(), **({"quality": quality} if kind == "jpeg" else {}))
    return Thumbnail(buffer.getvalue(), kind, *image.size)


def encode_mask(numbers: np.ndarray, size: tuple[int, int]) -> Thumbnail:
    """Return a mask as a PNG that is laid over its thumbnail: 0 is clear, other numbers colored.

    Args:
        numbers: Class or instance numbers, [height, width].
        size: (width, height) of the thumbnail.
    """
    library = load_library("PIL.Image")
    colors = np.where(numbers > 0, (numbers - 1) % len(MASK_COLORS) + 1, 0).astype(np.uint8)
    image = library.fromarray(colors).resize(size, library.Resampling.NEAREST)
    image.putpalette([0, 0, 0, *(part for color in MASK_COLORS for part in color)])
    buffer = BytesIO()
    image.save(buffer, "PNG", transparency=0)
    return Thumbnail(buffer.getvalue(), "png", *size)


# Okabe and Ito's colors, which color-blind people can tell apart (jfly.uni-koeln.de/color).
MASK_COLORS = (
    (230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0),
    (204, 121, 167),
)  # fmt: skip
