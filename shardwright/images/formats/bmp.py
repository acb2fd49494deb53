"""Parse the header of a BMP: BITMAPFILEHEADER to BITMAPV5HEADER in Microsoft's documentation."""

from __future__ import annotations

import struct
from typing import NamedTuple

BITFIELDS = 3  # a compression: masks say where the colors are

_CORE_BYTES = 12
_HEADER_SIZES = frozenset((_CORE_BYTES, 16, 40, 52, 56, 64, 108, 124))
_START, _CORE, _INFO = (struct.Struct(each).unpack_from for each in ("<II", "<HHHH", "<iiHHI"))
_BGR_MASKS = (0xFF0000, 0xFF00, 0xFF)


class BmpHeader(NamedTuple):
    """The header of a BMP.

    Attributes:
        pixels: Offset of the pixels.
        num_bytes: Size of the header behind that of the file.
        width: In pixels.
        height: In pixels; negative if the top row is stored first.
        bits: Per pixel.
        compression: 0 for none.
    """

    pixels: int
    num_bytes: int
    width: int
    height: int
    bits: int
    compression: int


def has_bmp_header(data: bytes) -> bool:
    """Return whether the header has a valid size, or is cut: the magic is only two letters."""
    return len(data) < 18 or int.from_bytes(data[14:18], "little") in _HEADER_SIZES


def bmp_header(data: bytes) -> BmpHeader:
    """Return the header of a BMP."""
    pixels, num_bytes = _START(data, 10)
    if num_bytes == _CORE_BYTES:
        width, height, _, bits = _CORE(data, 18)
        return BmpHeader(pixels, num_bytes, width, height, bits, 0)
    width, height, _, bits, compression = _INFO(data, 18)
    return BmpHeader(pixels, num_bytes, width, height, bits, compression)


def has_bgr_masks(data: bytes) -> bool:
    """Return whether the masks of 32-bit pixels say the usual order: blue, green, red."""
    return struct.unpack_from("<III", data, 54) == _BGR_MASKS
