"""Makers of image files that no library writes: GIFs by their codes, JPEGs by their blocks."""

from __future__ import annotations

import struct

from PIL import Image

from tests.image_makers import HEIGHT, WIDTH, saved

PALETTE = bytes((37 * value + 11) % 256 for value in range(3 * 256))


def gif(
    frames: list[tuple[Image.Image, tuple[int, int], int | None]], *, background: int = 0
) -> bytes:
    """A GIF on a canvas of 61 x 47: of each frame its pixels, where its top left corner is, and which index is transparent."""
    parts = [b"GIF89a", struct.pack("<HHBBB", WIDTH, HEIGHT, 0xF7, background, 0), PALETTE]
    for image, corner, transparent in frames:
        if transparent is not None:
            parts.append(b"\x21\xf9\x04\1\0\0" + bytes((transparent, 0)))
        parts.append(b"\x2c" + struct.pack("<HHHHB", *corner, *image.size, 0))
        parts.append(b"\x08" + _blocks(lzw_codes(image.tobytes(), 8), 255))
    return b"".join((*parts, b";"))


def gif_with_codes(
    size: tuple[int, int],
    codes: bytes,
    bits: int,
    *,
    block_bytes: int = 255,
    interlaced: bool = False,
    num_colours: int = 256,
) -> bytes:
    """A GIF of one frame with these LZW codes, of pixels of so many bits."""
    depth = num_colours.bit_length() - 1
    screen = (
        b"GIF89a"
        + struct.pack("<HHBBB", *size, 0x80 | depth - 1, 0, 0)
        + PALETTE[: 3 * num_colours]
    )
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, *size, 0x40 * interlaced)
    return screen + frame + bytes((max(2, bits),)) + _blocks(codes, block_bytes) + b";"


def lzw_codes(
    values: bytes,
    bits: int,
    *,
    clear_first: bool = True,
    end: bool = True,
    keep_full_table: bool = False,
) -> bytes:
    """LZW as GIF has it (GIF89a, appendix F); a full table is kept to the end, or cleared at once."""
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
        elif not keep_full_table:
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


def jpeg_of_gray_blocks(size: tuple[int, int], sampling: tuple[int, int]) -> bytes:
    """A JPEG of one unit of middle gray, whose brightness is sampled (across, down) times as finely as its colour.

    With the standard Huffman codes (T.81, annex K), a block of gray is 00 1010 for brightness, 00 00 for colour.
    """
    data = saved(Image.new("RGB", (8, 8), (128, 128, 128)), "JPEG", subsampling=0)
    frame, scan = data.index(b"\xff\xc0"), data.index(b"\xff\xda")
    across, down = sampling
    bits = "001010" * (across * down) + "0000" * 2
    bits += "1" * (-len(bits) % 8)
    sides = struct.pack(">HH", size[1], size[0])
    head = (
        data[: frame + 5]
        + sides
        + data[frame + 9 : frame + 11]
        + bytes((across << 4 | down,))
        + data[frame + 12 : scan + 14]
    )
    return head + int(bits, 2).to_bytes(len(bits) // 8, "big") + b"\xff\xd9"
