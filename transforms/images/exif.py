"""Read the EXIF orientation of each format."""

from __future__ import annotations

import struct

from shardwright.images.formats.jpeg import EXIF_START
from shardwright.images.formats.png import png_chunks
from shardwright.images.formats.webp import riff_chunks
from transforms.images.kinds import Header

_ORIENTATION_TAG, _SHORT = 0x0112, 3


def orientation_of(data: bytes, header: Header) -> int:
    """Return the orientation, 1 (upright) to 8; see `exif_orientation`. GIF and BMP have none."""
    image_format = header.info.format
    if image_format == "jpeg":
        start = header.exif
        return (
            exif_orientation(
                data[start : start - 2 + int.from_bytes(data[start - 2 : start], "big")]
            )
            if start
            else 1
        )
    # A search first, to walk the chunks only if one may be the EXIF chunk.
    if image_format == "png" and data.find(b"eXIf", 33) > 0:
        return exif_orientation(
            next(
                (
                    chunk.body(data)
                    for chunk in png_chunks(data)
                    if chunk.kind == b"eXIf" and chunk.is_intact(data)
                ),
                b"",
            )
        )
    if image_format == "webp":
        return exif_orientation(
            next(
                (
                    data[start + 8 : end]
                    for kind, start, end in riff_chunks(data)
                    if kind == b"EXIF"
                ),
                b"",
            )
        )
    return 1


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
