"""Read the EXIF orientation of each format."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from shardwright.images.formats.jpeg import EXIF_START
from shardwright.images.formats.png import png_chunks
from shardwright.images.formats.webp import riff_chunks
from shardwright.transforms.images.kinds import Header

_ORIENTATION_TAG, _SHORT = 0x0112, 3


def orientation_of(data: bytes, header: Header) -> int:
    """Return the orientation, 1 (upright) to 8; see `exif_orientation`. GIF and BMP have none."""
    return exif_orientation(next(_exif_blocks(data, header), b""))


def _exif_blocks(data: bytes, header: Header) -> Iterator[bytes]:
    image_format, start = header.info.format, header.exif
    if image_format == "jpeg" and start:
        yield data[start : start - 2 + int.from_bytes(data[start - 2 : start], "big")]
    # A search first, to walk the chunks only if one may be the EXIF chunk.
    elif image_format == "png" and data.find(b"eXIf", 33) > 0:
        for chunk in png_chunks(data):
            if chunk.kind == b"eXIf" and chunk.is_intact(data):
                yield chunk.body(data)
    elif image_format == "webp":
        for kind, start, end in riff_chunks(data):
            if kind == b"EXIF":
                yield data[start + 8 : end]


def exif_orientation(exif: bytes) -> int:
    """Return tag 0x0112 of the first directory (TIFF 6.0, pages 14-16), 1 to 8.

    1 (as stored) if the block is absent or malformed; viewers, too, show such an image as stored.
    """
    tiff = exif.removeprefix(EXIF_START)
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None or len(tiff) < 8:
        return 1
    start = struct.unpack_from(order + "I", tiff, 4)[0]
    if start + 2 > len(tiff):
        return 1
    num_entries = struct.unpack_from(order + "H", tiff, start)[0]
    whole = min(num_entries, (len(tiff) - start - 2) // 12)
    for number in range(whole):
        tag, kind, _, value = struct.unpack_from(order + "HHIH", tiff, start + 2 + 12 * number)
        if tag == _ORIENTATION_TAG and kind == _SHORT and 1 <= value <= 8:
            return int(value)
    return 1
