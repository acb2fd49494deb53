"""Makers of image files, whole or wrong on purpose: what Pillow does not write is put together by hand."""

from __future__ import annotations

import base64
import struct
import zlib
from io import BytesIO
from typing import Any

from PIL import Image

WIDTH, HEIGHT = 61, 47
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
BGR_MASKS = struct.pack("<III", 0xFF0000, 0xFF00, 0xFF)
_ADAM7 = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)


def picture(mode: str = "RGB", size: tuple[int, int] = (WIDTH, HEIGHT)) -> Image.Image:
    """Gradients with a little texture; of alpha modes the alpha is a gradient too."""
    if mode == "I;16":
        values = [x * 1000 + y * 7 for y in range(size[1]) for x in range(size[0])]
        return Image.frombytes("I;16", size, struct.pack(f"<{len(values)}H", *values))
    image = Image.new("RGB", size)
    rgb = bytearray()
    for y in range(size[1]):
        for x in range(size[0]):
            rgb += bytes((x * 4 % 256, y * 5 % 256, (x + y) * 2 % 256 // (1 + (x * y % 7 == 0))))
    image.frombytes(bytes(rgb))
    if mode in ("LA", "RGBA"):
        image = image.convert(mode)
        image.putalpha(picture("L", size))
        return image
    return image.convert(mode)


def saved(image: Image.Image, image_format: str, **options: Any) -> bytes:
    buffer = BytesIO()
    image.save(buffer, image_format, **options)
    return buffer.getvalue()


def exif_block(orientation: int, *, order: str = ">", thumbnail: bytes = b"") -> bytes:
    """An EXIF block with an orientation, and a thumbnail in a second directory."""
    mark = b"MM" if order == ">" else b"II"
    first = struct.pack(order + "HHHIHH", 1, 0x0112, 3, 1, orientation, 0)
    if not thumbnail:
        return b"Exif\0\0" + mark + struct.pack(order + "HI", 42, 8) + first + bytes(4)
    where = 8 + len(first) + 4 + 2 + 24 + 4
    second = struct.pack(
        order + "HHHIIHHII", 2, 0x0201, 4, 1, where, 0x0202, 4, 1, len(thumbnail)
    ) + bytes(4)
    link = struct.pack(order + "I", 8 + len(first) + 4)
    return b"Exif\0\0" + mark + struct.pack(order + "HI", 42, 8) + first + link + second + thumbnail


def chunk(kind: bytes, body: bytes, *, damage: int = 0) -> bytes:
    return (
        struct.pack(">I", len(body))
        + kind
        + body
        + struct.pack(">I", zlib.crc32(kind + body) ^ damage)
    )


def png(
    size: tuple[int, int], *, depth: int = 8, color: int = 0, interlace: int = 0, **parts: bytes
) -> bytes:
    """A PNG of one value; parts: rows (uncompressed), idat (compressed), before and after the pixels."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    rows = parts.get("rows")
    if rows is None:
        passes = _ADAM7 if interlace else ((0, 0, 1, 1),)
        sides = [
            (len(range(x, size[0], dx)), len(range(y, size[1], dy))) for x, y, dx, dy in passes
        ]
        row = [(b"\0" + b"\x5a" * ((w * samples * depth + 7) // 8)) * h for w, h in sides if w]
        rows = b"".join(row)
    idat = parts.get("idat", zlib.compress(rows))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", *size, depth, color, 0, 0, interlace))
    start = PNG_MAGIC + header + parts.get("before", b"")
    return start + chunk(b"IDAT", idat) + parts.get("after", b"") + chunk(b"IEND", b"")


def bmp(
    bits: int, pixels: bytes, *, compression: int = 0, tail: bytes = b"", height: int = 5
) -> bytes:
    """A BMP of 8 x 5 pixels; tail: palette or masks between header and pixels."""
    header = (
        struct.pack(
            "<IiiHHIIiiII", 40, 8, height, 1, bits, compression, len(pixels), 2835, 2835, 0, 0
        )
        + tail
    )
    offset = 14 + len(header)
    return b"BM" + struct.pack("<IHHI", offset + len(pixels), 0, 0, offset) + header + pixels


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    parts = (
        kind + struct.pack("<I", len(body)) + body + bytes(len(body) % 2) for kind, body in chunks
    )
    body = b"WEBP" + b"".join(parts)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_chunk(data: bytes, kind: bytes) -> bytes:
    start = data.index(kind)
    return data[start + 8 : start + 8 + struct.unpack_from("<I", data, start + 4)[0]]


def vp8x(flags: int) -> tuple[bytes, bytes]:
    sides = (WIDTH - 1).to_bytes(3, "little") + (HEIGHT - 1).to_bytes(3, "little")
    return b"VP8X", bytes([flags, 0, 0, 0]) + sides


def gif_with_small_frame() -> bytes:
    """A first frame of 30 x 20 pixels in a canvas of 61 x 47."""
    data = saved(picture(size=(30, 20)), "GIF")
    start = data.index(b"\x2c\0\0\0\0")
    frame = b"\x2c" + struct.pack("<HHHH", 10, 20, 30, 20)
    return data[:6] + struct.pack("<HH", WIDTH, HEIGHT) + data[10:start] + frame + data[start + 9 :]


LOSSLESS_JPEG = base64.b64decode(  # made once with imagecodecs: 8 x 8 gray, SOF3
    b"/9j/4AAQSkZJRgABAQAAAQABAAD/wwALCAAIAAgBAREA/8QAFgABAQEAAAAAAAAAAAAAAAAAAgUI/9oACAEBAAEAAM/tttuw2227DbbbsNttuw2227DbbbsNttuw222//9k="
)
JPEG_12_BITS = base64.b64decode(  # made once with imagecodecs: 8 x 8 gray
    b"/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAIBAQEBAQIBAQECAgICAgQDAgICAgUEBAMEBgUGBgYFBgYGBwkIBgcJBwYGCAsICQoKCgoKBg"
    b"gLDAsKDAkKCgr/wQALDAAIAAgBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAADP/EABwQAAAGAwAAAAAAAAAAAAAAAAAKDSo2R1Nkcf/aAAgB"
    b"AQAAPwA8+SURKqItI8FJc1x//9k="
)
JPEG_XL = base64.b64decode(  # made once with imagecodecs: 8 x 8 RGB
    b"/wpBQCQIBAEARAFLGJOOg4MJEQXuMSLG2IgYo6qqOIUxxhjDGMQLRA/w/4cA8P/////h9////9/f/+Gf0b8/Sos9DIxF27/d8jV2xJA4OAgMAK4MgEe9OoF8ZwA="
)
GRAY_PALETTE = b"".join(bytes((value, value, value, 0)) for value in range(256))
