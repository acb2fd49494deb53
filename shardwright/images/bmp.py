"""Parse the header of a BMP: BITMAPFILEHEADER to BITMAPV5HEADER in Microsoft's documentation."""

from __future__ import annotations

import struct
from typing import NamedTuple

from shardwright.errors import ImageFault
from shardwright.images.kinds import Header, ImageInfo
from shardwright.sizes import counted

_BITFIELDS = 3  # a compression: masks say where the colors are
_CORE_BYTES = 12
_HEADER_SIZES = frozenset((_CORE_BYTES, 16, 40, 52, 56, 64, 108, 124))
_START, _CORE, _INFO = (struct.Struct(each).unpack_from for each in ("<II", "<HHHH", "<iiHHI"))
_BGR_MASKS = (0xFF0000, 0xFF00, 0xFF)
_GRAY_RAMP = bytes(range(256))


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


def has_odd_masks(data: bytes) -> bool:
    """Return whether the colors of 32-bit pixels are in another order than decoders assume."""
    header = bmp_header(data)
    is_masked = header.bits == 32 and header.compression == _BITFIELDS
    return is_masked and struct.unpack_from("<III", data, 54) != _BGR_MASKS


def read_bmp(data: bytes) -> Header:
    """Return what a build must know of a BMP. Raises as `read_header`."""
    header = bmp_header(data)
    width, height, bits = header.width, header.height, header.bits
    if width <= 0 or not height or bits > 32:
        raise ImageFault(f"the BMP header says {width} x {height} pixels of {bits} bits")
    # Rows are padded to four bytes.
    num_bytes = header.pixels + (width * bits + 31) // 32 * 4 * abs(height)
    # Run lengths, or an embedded JPEG or PNG: only their total size is known.
    if header.compression not in (0, _BITFIELDS, 6):
        num_bytes = int.from_bytes(data[2:6], "little")
        # A run of 255 pixels takes two bytes. Pillow would fill the rest in Python, for minutes.
        if width * abs(height) > 256 * len(data):
            raise ImageFault(
                f"a BMP of {counted(len(data), 'byte')} cannot fill {width} x {height} pixels"
            )
    # TensorFlow ignores the palette, so indices must be gray values.
    gray = bits == 8 and all(
        # The palette is between the header and the pixels, four bytes a color.
        data[14 + header.num_bytes + channel : header.pixels : 4] == _GRAY_RAMP
        for channel in range(3)
    )
    info = ImageInfo("bmp", width, abs(height), 1 if gray else 4 if bits == 32 else 3)
    refusal = _refusal(data, header, gray=gray)
    if not refusal and len(data) > num_bytes:
        refusal = f"a BMP with {counted(len(data) - num_bytes, 'byte')} after its pixels"
    return Header(info, "fewer bytes than it says" if len(data) < num_bytes else "", "", refusal)


def _refusal(data: bytes, header: BmpHeader, *, gray: bool) -> str:
    bits, compression = header.bits, header.compression
    plain = (compression == 0 and (bits in (24, 32) or gray)) or (
        compression == _BITFIELDS and bits == 32 and not has_odd_masks(data)
    )
    if header.num_bytes < 40:
        return f"a BMP with a header of {header.num_bytes} bytes (40 or more are supported)"
    if plain:
        return ""
    if bits <= 8 and compression == 0:
        return (
            f"a BMP of {bits} bits with a palette other than 256 grays (TensorFlow ignores "
            "palettes; --on palette=fix converts it)"
        )
    return (
        f"a BMP of {bits} bits with compression {compression} "
        "(gray, 24 or 32 bits in BGR order are supported)"
    )
