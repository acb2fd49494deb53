"""Read the format and size of an image file before decoding: it may claim more pixels than fit.

Sources: the PNG specification (W3C, 3rd edition); RFC 9649 (WebP); BITMAPCOREHEADER to
BITMAPV5HEADER in Microsoft's documentation (BMP). See `jpeg` and `gif` for those formats.
"""

from __future__ import annotations

import struct

from shardwright.errors import ImageFault

MAX_PIXELS = 178_956_970
"""Maximum pixels of an image, as in `shardwright build`; Pillow's limit for decompression bombs."""

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"

_CORE_HEADER_BYTES = 12
_BMP_HEADER_BYTES = frozenset((_CORE_HEADER_BYTES, 16, 40, 52, 56, 64, 108, 124))
_BITFIELDS = 3
_BGR_MASKS = struct.pack("<III", 0xFF0000, 0xFF00, 0xFF)


def image_format(start: bytes) -> str:
    """Return 'jpeg', 'png', 'gif', 'bmp' or 'webp' from the first 16 bytes of a file, else ''."""
    if start.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if start.startswith(PNG_MAGIC):
        return "png"
    if start.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        return "webp"
    return "bmp" if start.startswith(b"BM") else ""


def check_size(kind: str, height: int, width: int) -> None:
    """Check the size of an image, in pixels.

    Raises:
        ImageFault: There are no pixels, or more than MAX_PIXELS.
    """
    if height < 1 or width < 1:
        raise ImageFault(f"the {kind} image has no pixels: its size is {width} x {height}")
    if height * width > MAX_PIXELS:
        raise ImageFault(
            f"the {kind} image has {width:,} x {height:,} pixels, more than the maximum of "
            f"{MAX_PIXELS:,}: scale it down"
        )


def read_size(kind: str, data: bytes) -> tuple[int, int]:
    """Return (height, width) of a PNG, BMP or WebP file from its header.

    Raises:
        ImageFault: The file ends inside its header, or the header is invalid.
    """
    try:
        height, width = {"png": _png_size, "bmp": _bmp_size, "webp": _webp_size}[kind](data)
    except (struct.error, IndexError) as error:
        raise ImageFault(
            f"the {kind} image ends in its header, after {len(data):,} bytes"
        ) from error
    check_size(kind, height, width)
    return height, width


def _png_size(data: bytes) -> tuple[int, int]:
    kind, width, height = struct.unpack_from(">4sII", data, 12)
    if kind != b"IHDR":
        raise ImageFault("the png image does not begin with its header (IHDR)")
    return height, width


def _bmp_size(data: bytes) -> tuple[int, int]:
    (header_bytes,) = struct.unpack_from("<I", data, 14)
    if header_bytes not in _BMP_HEADER_BYTES:  # the magic is only two letters: text may match it
        raise ImageFault("not a bmp image, although it starts with 'BM'")
    if header_bytes == _CORE_HEADER_BYTES:
        width, height = struct.unpack_from("<HH", data, 18)
        return height, width
    width, height, _, bits, compression = struct.unpack_from("<iiHHI", data, 18)
    # 32-bit decoders assume this byte order; colors in another one would be wrong.
    if bits == 32 and compression == _BITFIELDS and data[54:66] != _BGR_MASKS:
        raise ImageFault(
            "the 32-bit bmp image has unusual color masks: re-encode it as png or jpeg"
        )
    return abs(height), width  # negative: the top row is stored first


def _webp_size(data: bytes) -> tuple[int, int]:
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(_exactly(data, 27, 3), "little"), 1 + int.from_bytes(
            _exactly(data, 24, 3), "little"
        )
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return 1 + (bits >> 14 & 0x3FFF), 1 + (bits & 0x3FFF)
    width, height = struct.unpack_from("<HH", data, 26)
    return height & 0x3FFF, width & 0x3FFF


def _exactly(data: bytes, start: int, num_bytes: int) -> bytes:
    if len(data) < start + num_bytes:
        raise IndexError(start)
    return data[start : start + num_bytes]


def essential_png(data: bytes) -> bytes:
    """Return the file without its ancillary chunks: text, profiles, transparency, animation.

    They do not affect the colors, and libpng prints a line to stderr for each profile it dislikes,
    which are common. Chunk lengths are checked here, because OpenCV would allocate as much memory
    as a damaged length claims, up to 2 GB.

    Raises:
        ImageFault: A chunk reaches beyond the file, or the last one is missing.
    """
    kept, pos, num_bytes = [data[:8]], 8, len(data)
    while pos + 12 <= num_bytes:
        end = pos + 12 + int.from_bytes(data[pos : pos + 4], "big")
        if end > num_bytes:
            break
        is_critical = not data[pos + 4] & 0x20  # the type's first letter is upper case
        if is_critical:
            kept.append(data[pos:end])
        if data[pos + 4 : pos + 8] == b"IEND":
            return b"".join(kept)
        pos = end
    raise ImageFault(
        f"the png image is cut short or has a damaged length: no end in {num_bytes:,} bytes"
    )
