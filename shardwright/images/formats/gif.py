"""Walk the blocks of a GIF. Format: GIF89a (CompuServe, 1990)."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

IMAGE, EXTENSION, TRAILER = 0x2C, 0x21, 0x3B
GRAPHIC_CONTROL, APPLICATION, PLAIN_TEXT = 0xF9, 0xFF, 0x01

_SCREEN_BYTES, _DESCRIPTOR_BYTES = 13, 10
_DESCRIPTOR = struct.Struct("<HHHHB").unpack_from


class GifFrame(NamedTuple):
    """The descriptor of a frame; sizes and offsets in pixels.

    Attributes:
        left: Offset in the canvas.
        top: Offset in the canvas.
        width: Width of the frame.
        height: Height of the frame.
        is_interlaced: Rows are stored in four passes.
        colors: Number of colors in its table, which may be that of the file; 0 without a table.
        table: Where in the file the table starts.
        codes: Where the pixels start: the code size, then blocks of codes.
    """

    left: int
    top: int
    width: int
    height: int
    is_interlaced: bool
    colors: int
    table: int
    codes: int


def gif_frame(data: bytes, pos: int) -> GifFrame:
    """Return the frame whose block starts at `pos`."""
    left, top, width, height, flags = _DESCRIPTOR(data, pos + 1)
    table, own = pos + _DESCRIPTOR_BYTES, _table_bytes(flags)
    codes, num_bytes = table + own, own
    if not own:
        table, num_bytes = _SCREEN_BYTES, _table_bytes(data[10])
    return GifFrame(left, top, width, height, bool(flags & 0x40), num_bytes // 3, table, codes)


def first_gif_image(data: bytes) -> tuple[int, list[int]]:
    """Return where the first image should start, and where the extensions before it do."""
    pos, extensions = first_gif_block(data), []
    while data[pos] == EXTENSION:
        extensions.append(pos)
        pos = end_of_sub_blocks(data, pos + 2)
    return pos, extensions


def gif_blocks(data: bytes, pos: int = 0) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each image and extension up to the trailer, which some writers omit.

    Args:
        data: The whole file.
        pos: The start of a block; 0 for the first.

    Raises:
        IndexError: The data ends inside a block.
        ValueError: There is unknown data between two blocks.
    """
    pos = pos or first_gif_block(data)
    if pos > len(data):
        raise IndexError("the data ends inside the first color table")
    while pos < len(data) and data[pos] != TRAILER:
        if data[pos] == IMAGE:
            end = end_of_sub_blocks(data, pos + _DESCRIPTOR_BYTES + _table_bytes(data[pos + 9]) + 1)
        elif data[pos] == EXTENSION:
            end = end_of_sub_blocks(data, pos + 2)
        else:
            raise ValueError("unknown data between the blocks")
        yield pos, end
        pos = end


def first_gif_block(data: bytes) -> int:
    """Return where the first block begins: after the header and its color table."""
    return _SCREEN_BYTES + _table_bytes(data[10])


def end_of_sub_blocks(data: bytes, pos: int) -> int:
    """Return where the sub-blocks that start at `pos` end.

    Raises:
        IndexError: The data ends before.
    """
    while data[pos]:
        pos += data[pos] + 1
    return pos + 1


def _table_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0
