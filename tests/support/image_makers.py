"""Makers of image files, whole or wrong on purpose: GIFs by their codes, JPEGs by their blocks."""

from __future__ import annotations

import base64
import struct
import zlib
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 61, 47
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
BGR_MASKS = struct.pack("<III", 0xFF0000, 0xFF00, 0xFF)
PALETTE = bytes((37 * value + 11) % 256 for value in range(3 * 256))
GRAY_PALETTE = b"".join(bytes((value, value, value, 0)) for value in range(256))
Size = tuple[int, int]  # width, height
Frame = tuple[Image.Image, tuple[int, int], int | None]  # image, corner, transparent index
INTERLACED = 0x40  # of the flags of a GIF's frame
_ADAM7 = (
    (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
    (0, 1, 1, 2),
)  # fmt: skip


def picture(mode: str = "RGB", size: Size = (WIDTH, HEIGHT)) -> Image.Image:
    """Gradients with a little texture; in modes with alpha, the alpha is a gradient too."""
    y, x = np.indices(size[::-1])
    if mode == "I;16":
        return Image.fromarray((x * 1000 + y * 7).astype(np.uint16))
    colors = x * 4 % 256, y * 5 % 256, (x + y) * 2 % 256 // (1 + (x * y % 7 == 0))
    image = Image.fromarray(np.stack(colors, axis=-1).astype(np.uint8)).convert(mode)
    if mode in ("LA", "RGBA"):
        image.putalpha(picture("L", size))
    return image


def saved(image: Image.Image, image_format: str, **options: Any) -> bytes:
    buffer = BytesIO()
    image.save(buffer, image_format, **options)
    return buffer.getvalue()


def drawn(image_format: str, mode: str = "RGB", **options: Any) -> bytes:
    """Save the usual picture."""
    return saved(picture(mode), image_format, **options)


def opened(data: bytes) -> Image.Image:
    image = Image.open(BytesIO(data))
    image.load()
    return image


def patched(data: bytes, at: int, new: bytes) -> bytes:
    """Overwrite some bytes."""
    return data[:at] + new + data[at + len(new) :]


def inserted(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at:]


def exif_block(orientation: int, *, order: str = ">", thumbnail: bytes = b"") -> bytes:
    """Return an EXIF block with an orientation, and a thumbnail in a second directory."""
    mark = b"MM" if order == ">" else b"II"
    start = b"Exif\0\0" + mark + struct.pack(order + "HI", 42, 8)
    first = struct.pack(order + "HHHIHH", 1, 0x0112, 3, 1, orientation, 0)
    if not thumbnail:
        return start + first + bytes(4)
    where = 8 + len(first) + 4
    entries = (2, 0x0201, 4, 1, where + 2 + 24 + 4, 0x0202, 4, 1, len(thumbnail))
    second = struct.pack(order + "I" + "HHHIIHHII", where, *entries)
    return start + first + second + bytes(4) + thumbnail


def chunk(kind: bytes, body: bytes, *, damage: int = 0) -> bytes:
    checksum = zlib.crc32(kind + body) ^ damage
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", checksum)


def png(size: Size, *, depth: int = 8, color: int = 0, interlace: int = 0, **parts: bytes) -> bytes:
    """Return a PNG of one value; parts: rows (or idat), chunks before and after the pixels."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    passes = _ADAM7 if interlace else ((0, 0, 1, 1),)
    sides = [(len(range(x, size[0], dx)), len(range(y, size[1], dy))) for x, y, dx, dy in passes]
    if (rows := parts.get("rows")) is None:
        row = [(b"\0" + b"\x5a" * ((w * samples * depth + 7) // 8)) * h for w, h in sides if w]
        rows = b"".join(row)
    idat = parts.get("idat", zlib.compress(rows))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", *size, depth, color, 0, 0, interlace))
    start = PNG_MAGIC + header + parts.get("before", b"")
    return start + chunk(b"IDAT", idat) + parts.get("after", b"") + chunk(b"IEND", b"")


def bmp(
    bits: int, pixels: bytes, *, compression: int = 0, tail: bytes = b"", height: int = 5
) -> bytes:
    """Return a BMP of 8 x 5 pixels; tail: palette or masks between header and pixels."""
    fields = (40, 8, height, 1, bits, compression, len(pixels), 2835, 2835, 0, 0)
    header = struct.pack("<IiiHHIIiiII", *fields) + tail
    offset = 14 + len(header)
    return b"BM" + struct.pack("<IHHI", offset + len(pixels), 0, 0, offset) + header + pixels


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"WEBP"
    for kind, part in chunks:
        body += kind + struct.pack("<I", len(part)) + part + bytes(len(part) % 2)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_chunk(data: bytes, kind: bytes) -> bytes:
    start = data.index(kind)
    return data[start + 8 : start + 8 + struct.unpack_from("<I", data, start + 4)[0]]


def vp8x(flags: int) -> tuple[bytes, bytes]:
    sides = (WIDTH - 1).to_bytes(3, "little") + (HEIGHT - 1).to_bytes(3, "little")
    return b"VP8X", bytes([flags, 0, 0, 0]) + sides


def gif_with_small_frame() -> bytes:
    """Return a first frame of 30 x 20 pixels in a canvas of 61 x 47."""
    data = patched(saved(picture(size=(30, 20)), "GIF"), 6, struct.pack("<HH", WIDTH, HEIGHT))
    start = data.index(b"\x2c\0\0\0\0")
    return patched(data, start + 1, struct.pack("<HHHH", 10, 20, 30, 20))


def gif(frames: list[Frame], *, background: int = 0) -> bytes:
    """Return a GIF on a canvas of 61 x 47."""
    parts = [b"GIF89a", struct.pack("<HHBBB", WIDTH, HEIGHT, 0xF7, background, 0), PALETTE]
    for image, corner, transparent in frames:
        if transparent is not None:
            parts.append(b"\x21\xf9\x04\1\0\0" + bytes((transparent, 0)))
        parts.append(b"\x2c" + struct.pack("<HHHHB", *corner, *image.size, 0))
        parts.append(b"\x08" + _blocks(lzw_codes(image.tobytes(), 8), 255))
    return b"".join((*parts, b";"))


def gif_with_codes(
    size: Size, codes: bytes, bits: int, *, block: int = 255, flags: int = 0, colors: int = 256
) -> bytes:
    """Return a GIF of one frame with these LZW codes and this many bits per pixel."""
    table = 0x80 | colors.bit_length() - 2
    screen = b"GIF89a" + struct.pack("<HHBBB", *size, table, 0, 0) + PALETTE[: 3 * colors]
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, *size, flags)
    return screen + frame + bytes((max(2, bits),)) + _blocks(codes, block) + b";"


def lzw_codes(
    values: bytes, bits: int, *, clear_first: bool = True, end: bool = True, keep_full: bool = False
) -> bytes:
    """Encode as LZW of GIF89a (appendix F); a full table is kept to the end, or cleared at once."""
    bits = max(2, bits)
    clear, end_code = 1 << bits, (1 << bits) + 1
    first = {bytes((value,)): value for value in range(clear)}
    table, following, width = dict(first), end_code + 1, bits + 1
    codes = [(clear, width)] if clear_first else []
    run = b""
    for value in values:
        longer = run + bytes((value,))
        if longer in table:
            run = longer
            continue
        codes.append((table[run], width))
        if following < 4096:
            table[longer] = following
            following += 1
            width += following > 1 << width and width < 12
        elif not keep_full:
            codes.append((clear, width))
            table, following, width = dict(first), end_code + 1, bits + 1
        run = bytes((value,))
    codes.append((table[run], width))
    width += following + 1 > 1 << width and width < 12
    return _packed([*codes, (end_code, width)] if end else codes)


def _packed(codes: list[tuple[int, int]]) -> bytes:
    made = num_bits = 0
    for code, width in codes:
        made |= code << num_bits
        num_bits += width
    return made.to_bytes((num_bits + 7) // 8, "little")


def _blocks(data: bytes, block_bytes: int) -> bytes:
    pieces = (data[start : start + block_bytes] for start in range(0, len(data), block_bytes))
    return b"".join(bytes((len(piece),)) + piece for piece in pieces) + b"\0"


def jpeg_of_gray_blocks(size: Size, sampling: tuple[int, int]) -> bytes:
    """Return a JPEG of one unit of gray; sampled (across, down) as finely as color."""
    data = saved(Image.new("RGB", (8, 8), (128, 128, 128)), "JPEG", subsampling=0)
    frame, scan = data.index(b"\xff\xc0"), data.index(b"\xff\xda")
    across, down = sampling
    # Gray in the standard Huffman codes (T.81, annex K): 00 1010 in brightness, 00 00 in color.
    bits = "001010" * (across * down) + "0000" * 2
    bits += "1" * (-len(bits) % 8)
    head = patched(data[: scan + 14], frame + 5, struct.pack(">HH", size[1], size[0]))
    head = patched(head, frame + 11, bytes((across << 4 | down,)))
    return head + int(bits, 2).to_bytes(len(bits) // 8, "big") + b"\xff\xd9"


# These three were made with imagecodecs: 8 x 8 pixels, gray (SOF3), gray, and RGB.
LOSSLESS_JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/wwALCAAIAAgBAREA/8QAFgABAQEAAAAAAAAAAAAAAAAAAgUI/9oACAEBAAEAAM/ttt"
    "uw2227DbbbsNttuw2227DbbbsNttuw222//9k="
)
JPEG_12_BITS = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAIBAQEBAQIBAQECAgICAgQDAgICAgUEBAMEBgUGBgYFBgYGBwkIBgcJBwYGCA"
    "sICQoKCgoKBggLDAsKDAkKCgr/wQALDAAIAAgBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAADP/EABwQAAAGAwAAAAAAAAAA"
    "AAAAAAAKDSo2R1Nkcf/aAAgBAQAAPwA8+SURKqItI8FJc1x//9k="
)
JPEG_XL = base64.b64decode(
    "/wpBQCQIBAEARAFLGJOOg4MJEQXuMSLG2IgYo6qqOIUxxhjDGMQLRA/w/4cA8P/////h9////9/f/+Gf0b8/Sos9DIxF27"
    "/d8jV2xJA4OAgMAK4MgEe9OoF8ZwA="
)
