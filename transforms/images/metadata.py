"""Strip metadata from image files without touching a pixel, by leaving out segments or chunks.

An allow list keeps the parts that pixels depend on. The rest is dropped: EXIF, GPS, XMP, comments,
thumbnails, resolutions, dates, makers' data, and bytes after the image's end. Sources: as in
`shardwright.images.formats`; JFIF 1.02; PNG's registered chunks; APNG 1.0.
"""

from __future__ import annotations

from collections.abc import Iterator

from shardwright.images.formats.gif import (
    APPLICATION,
    EXTENSION,
    GRAPHIC_CONTROL,
    IMAGE,
    PLAIN_TEXT,
    first_gif_block,
    gif_blocks,
)
from shardwright.images.formats.jpeg import APP0, APP2, APP14, END, METADATA, SCAN, jpeg_segments
from shardwright.images.formats.png import PNG_MAGIC, png_chunks
from shardwright.images.formats.webp import riff_chunks, riff_end
from shardwright.transforms.images.kinds import RejectedImage
from shardwright.transforms.images.profiles import JPEG_PROFILE
from shardwright.transforms.rejects import RejectReason

_PNG_PIXELS = frozenset((b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"acTL", b"fcTL", b"fdAT"))
_PNG_PROFILE = frozenset((b"iCCP", b"sRGB", b"gAMA", b"cHRM", b"cICP"))
_WEBP_PIXELS = frozenset((b"VP8X", b"VP8 ", b"VP8L", b"ALPH", b"ANIM", b"ANMF"))
_WEBP_HAS_PROFILE, _WEBP_HAS_METADATA = 0x20, 0x0C  # flags in VP8X; the latter are EXIF and XMP
_GIF_LOOPS = (b"NETSCAPE2.0", b"ANIMEXTS1.0")


def strip(data: bytes, image_format: str, *, metadata: bool, profile: bool) -> bytes:
    """Return the file without its metadata, its color profile, or both, with unchanged pixels.

    A BMP is returned unchanged: it has no place for metadata.

    Raises:
        RejectedImage: CORRUPT for a file whose parts do not lead to its end, so that its other
            content is unknown. NOT_AN_IMAGE for an unknown format.
    """
    if image_format not in ("jpeg", "png", "webp", "gif", "bmp"):
        raise RejectedImage(
            RejectReason.NOT_AN_IMAGE, "metadata can be stripped from images only: this is not one"
        )
    try:
        if image_format == "jpeg":
            return _jpeg(data, metadata, profile)
        if image_format == "png":
            return _png(data, metadata, profile)
        if image_format == "webp":
            return _webp(data, metadata, profile)
        return _gif(data) if image_format == "gif" and metadata else data
    except (IndexError, ValueError) as error:
        detail = (
            f"the parts of the {image_format} do not lead to its end, "
            "so metadata cannot be stripped: fetch it again"
        )
        raise RejectedImage(RejectReason.CORRUPT, detail) from error


def _jpeg(data: bytes, metadata: bool, profile: bool) -> bytes:
    kept, marker, end, scan = [data[:2]], 0, 0, 0
    for marker, start, end in jpeg_segments(data):
        if scan:  # the pixels of the last scan end here
            kept.append(data[scan:start])
        scan = start if marker == SCAN else 0
        if not scan:
            kept.append(_segment(data, marker, start, end, metadata=metadata, profile=profile))
    if marker != END:
        raise ValueError("no end marker")
    return b"".join(kept) + (b"" if metadata else data[end:])


def _segment(
    data: bytes, marker: int, start: int, end: int, *, metadata: bool, profile: bool
) -> bytes:
    """Return the part of a segment to keep."""
    if marker == APP2 and data.startswith(JPEG_PROFILE, start + 4):
        return b"" if profile else data[start:end]
    if metadata and marker == APP0:
        return _jfif(data[start + 4 : end])
    strange = marker == APP14 and not data.startswith(b"Adobe", start + 4)
    return b"" if metadata and (marker in METADATA or strange) else data[start:end]


def _jfif(body: bytes) -> bytes:
    """Return the JFIF segment, which defines the color coding, without its thumbnail.

    b"" for other uses of the marker.
    """
    return (
        b"\xff\xe0\0\x10" + body[:12] + b"\0\0"
        if body.startswith(b"JFIF\0") and len(body) >= 14
        else b""
    )


def _png(data: bytes, metadata: bool, profile: bool) -> bytes:
    kept, last = [PNG_MAGIC], None
    for last in png_chunks(data):
        dropped = (
            profile if last.kind in _PNG_PROFILE else metadata and last.kind not in _PNG_PIXELS
        )
        kept.append(b"" if dropped else data[last.start : last.end])
    if last is None or last.kind != b"IEND":
        raise ValueError("no IEND chunk")
    return b"".join(kept) + (b"" if metadata else data[last.end :])


def _webp(data: bytes, metadata: bool, profile: bool) -> bytes:
    body = b"".join(_webp_kept(data, metadata, profile))
    behind = b"" if metadata else data[riff_end(data) :]
    if not body:
        raise ValueError("no chunk")
    return b"RIFF" + (4 + len(body)).to_bytes(4, "little") + b"WEBP" + body + behind


def _webp_kept(data: bytes, metadata: bool, profile: bool) -> Iterator[bytes]:
    for kind, start, end in riff_chunks(data):
        if profile if kind == b"ICCP" else metadata and kind not in _WEBP_PIXELS:
            continue
        chunk = data[start:end] + bytes(end & 1)  # RIFF pads chunks to even lengths
        if kind == b"VP8X":
            gone = (_WEBP_HAS_METADATA if metadata else 0) | (_WEBP_HAS_PROFILE if profile else 0)
            chunk = chunk[:8] + bytes([chunk[8] & ~gone]) + chunk[9:]
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
