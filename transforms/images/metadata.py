"""Read the EXIF orientation of a file, and strip its metadata.

Stripping leaves out segments or chunks and touches no pixel. An allow list keeps the parts that
pixels depend on. The rest is dropped: EXIF, GPS, XMP, comments, thumbnails, resolutions, dates,
makers' data, and bytes after the image's end. Sources: as in `shardwright.images`; JFIF 1.02; PNG's
registered chunks; APNG 1.0; ICC.1, annex B.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from shardwright.errors import ImageFault
from shardwright.images.gif import (
    APPLICATION,
    EXTENSION,
    GRAPHIC_CONTROL,
    IMAGE,
    PLAIN_TEXT,
    first_gif_block,
    gif_blocks,
)
from shardwright.images.jpeg import (
    APP0,
    APP2,
    APP14,
    END,
    EXIF_START,
    METADATA,
    SCAN,
    jpeg_segments,
)
from shardwright.images.kinds import PNG_MAGIC, Header
from shardwright.images.png import png_chunks, precedes_pixels
from shardwright.images.webp import riff_chunks

_ORIENTATION_TAG, _SHORT = 0x0112, 3
_MAX_EXIF_BYTES = 1 << 17  # of a JPEG it is 64 KiB
_JPEG_PROFILE = b"ICC_PROFILE\0"  # then number and count of the part, a byte each
_PNG_PIXELS = frozenset((b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"acTL", b"fcTL", b"fdAT"))
_PNG_KEPT = _PNG_PIXELS | {b"iCCP", b"sRGB", b"gAMA", b"cHRM", b"cICP"}  # of its colors
_WEBP_KEPT = frozenset((b"VP8X", b"VP8 ", b"VP8L", b"ALPH", b"ANIM", b"ANMF", b"ICCP"))
_WEBP_HAS_METADATA = 0x0C  # flags in VP8X, of EXIF and XMP
_GIF_LOOPS = (b"NETSCAPE2.0", b"ANIMEXTS1.0")


def orientation_of(data: bytes, header: Header) -> int:
    """Return the orientation, 1 (upright) to 8; see `exif_orientation`. GIF and BMP have none."""
    return exif_orientation(_exif_of(data, header))


def _exif_of(data: bytes, header: Header) -> bytes:
    """Return the first block of EXIF, b"" if there is none."""
    image_format, start = header.info.format, header.exif
    if image_format == "jpeg" and start:
        return data[start : start - 2 + int.from_bytes(data[start - 2 : start], "big")]
    # A search of both ends first: a walk of the chunks, or a search of the pixels, takes longer.
    if image_format == "png" and (
        precedes_pixels(data, b"eXIf") or b"eXIf" in data[-_MAX_EXIF_BYTES:]
    ):
        for chunk in png_chunks(data):
            if chunk.kind == b"eXIf" and chunk.is_intact(data):
                return chunk.body(data)
    elif image_format == "webp":
        for kind, start, end in riff_chunks(data):
            if kind == b"EXIF":
                return data[start + 8 : end]
    return b""


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
    # A damaged count may be larger than the block.
    whole = min(num_entries, (len(tiff) - start - 2) // 12)
    for number in range(whole):
        tag, kind, _, value = struct.unpack_from(order + "HHIH", tiff, start + 2 + 12 * number)
        if tag == _ORIENTATION_TAG and kind == _SHORT and 1 <= value <= 8:
            return int(value)
    return 1


def strip(data: bytes, image_format: str) -> bytes:
    """Return the file without its metadata, with unchanged pixels and its color profile.

    A BMP is returned unchanged: it has no place for metadata.

    Raises:
        ImageFault: CORRUPT for a file whose parts do not lead to its end, so that its other
            content is unknown. NOT_AN_IMAGE for an unknown format.
    """
    if image_format not in ("jpeg", "png", "webp", "gif", "bmp"):
        raise ImageFault(
            "metadata can be stripped from images only: this is not one", "not_an_image"
        )
    try:
        if image_format == "jpeg":
            return _jpeg(data)
        if image_format == "png":
            return _png(data)
        if image_format == "webp":
            return _webp(data)
        return _gif(data) if image_format == "gif" else data
    except (IndexError, ValueError) as error:
        detail = (
            f"the parts of the {image_format} do not lead to its end, "
            "so metadata cannot be stripped: fetch it again"
        )
        raise ImageFault(detail) from error


def _jpeg(data: bytes) -> bytes:
    kept, marker, end, scan = [data[:2]], 0, 0, 0
    for marker, start, end in jpeg_segments(data):
        if scan:  # the pixels of the last scan end here
            kept.append(data[scan:start])
        scan = start if marker == SCAN else 0
        if not scan:
            kept.append(_segment(data, marker, start, end))
    if marker != END:
        raise ValueError("no end marker")
    return b"".join(kept)


def _segment(data: bytes, marker: int, start: int, end: int) -> bytes:
    """Return the part of a segment to keep."""
    if marker == APP2 and data.startswith(_JPEG_PROFILE, start + 4):
        return data[start:end]
    if marker == APP0:
        return _jfif(data[start + 4 : end])
    strange = marker == APP14 and not data.startswith(b"Adobe", start + 4)
    return b"" if marker in METADATA or strange else data[start:end]


def _jfif(body: bytes) -> bytes:
    """Return the JFIF segment, which defines the color coding, without its thumbnail.

    b"" for other uses of the marker.
    """
    return (
        b"\xff\xe0\0\x10" + body[:12] + b"\0\0"
        if body.startswith(b"JFIF\0") and len(body) >= 14
        else b""
    )


def _png(data: bytes) -> bytes:
    kept, last = [PNG_MAGIC], None
    for last in png_chunks(data):
        kept.append(data[last.start : last.end] if last.kind in _PNG_KEPT else b"")
    if last is None or last.kind != b"IEND":
        raise ValueError("no IEND chunk")
    return b"".join(kept)


def _webp(data: bytes) -> bytes:
    body = b"".join(_webp_kept(data))
    if not body:
        raise ValueError("no chunk")
    return b"RIFF" + (4 + len(body)).to_bytes(4, "little") + b"WEBP" + body


def _webp_kept(data: bytes) -> Iterator[bytes]:
    for kind, start, end in riff_chunks(data):
        if kind not in _WEBP_KEPT:
            continue
        chunk = data[start:end] + bytes(end & 1)  # RIFF pads chunks to even lengths
        if kind == b"VP8X":
            chunk = chunk[:8] + bytes([chunk[8] & ~_WEBP_HAS_METADATA]) + chunk[9:]
        yield chunk


def _gif(data: bytes) -> bytes:
    kept, control = [data[: first_gif_block(data)]], b""
    for start, end in gif_blocks(data):
        if data[start] == EXTENSION and data[start + 1] == GRAPHIC_CONTROL:
            control = data[start:end]  # of the image that follows, or of a text, which goes with it
        elif data[start] == IMAGE:
            kept += [control, data[start:end]]
            control = b""
        elif data[start + 1] == APPLICATION and data.startswith(_GIF_LOOPS, start + 3):
            kept.append(data[start:end])
        else:
            control = b"" if data[start + 1] == PLAIN_TEXT else control
    return b"".join(kept) + b";"
