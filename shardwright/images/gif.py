"""Find the first frame of a GIF, as TensorFlow shows it.

OpenCV composes frames on the file's canvas, and fills transparent pixels with the background color.
`tf.io.decode_image` paints the first frame on black, with transparent pixels black, on a canvas as
large as the largest frame. So OpenCV gets a file with the first frame only, and the caller places
its pixels on the canvas.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from shardwright.errors import ImageFault
from shardwright.images.formats.gif import (
    GRAPHIC_CONTROL,
    IMAGE,
    TRAILER,
    GifFrame,
    end_of_sub_blocks,
    first_gif_image,
    gif_blocks,
    gif_frame,
)

_HAS_TABLE, _INTERLACED, _HAS_TRANSPARENCY = 0x80, 0x40, 0x01


class FirstFrame(NamedTuple):
    """A GIF's first frame.

    Attributes:
        frame: Its place in the canvas and in the file.
        data: A GIF of that frame alone, without transparency, on a canvas of its size.
        codes: The part of `data` with the pixels: the code size and the blocks after it.
        table: The color table of `data`.
        height: Height of the canvas in pixels: the maximum over all frames, not the file's header.
        width: Width of the canvas, likewise.
    """

    frame: GifFrame
    data: bytes
    codes: bytes
    table: bytes
    height: int
    width: int


def first_frame(data: bytes) -> FirstFrame:
    """Find the first frame of a GIF.

    Raises:
        ImageFault: There is no frame, it has no colors, or the file ends inside it.
    """
    try:
        return _first_frame(data)
    except (IndexError, struct.error) as error:
        raise ImageFault(f"the gif image is cut short, after {len(data):,} bytes") from error


def _first_frame(data: bytes) -> FirstFrame:
    pos, extensions = first_gif_image(data)
    if data[pos] != IMAGE:
        raise ImageFault("the gif file has no image")
    frame = gif_frame(data, pos)
    table = data[frame.table : frame.table + 3 * frame.colors]
    if not table:
        raise ImageFault("the gif image has no color table: re-encode it as png or jpeg")
    end = end_of_sub_blocks(data, frame.codes + 1)
    table, codes = _blackened(table, _transparent(data, extensions)), data[frame.codes : end]
    size, flags = (frame.width, frame.height), _HAS_TABLE | frame.colors.bit_length() - 2
    screen = struct.pack("<6sHHBBB", b"GIF89a", *size, flags, 0, 0)
    descriptor = struct.pack("<BHHHHB", IMAGE, 0, 0, *size, _INTERLACED * frame.is_interlaced)
    alone = b"".join((screen, table, descriptor, codes, bytes((TRAILER,))))
    return FirstFrame(frame, alone, codes, table, *_largest_frame(data, end, frame))


def _transparent(data: bytes, extensions: list[int]) -> int | None:
    """Return the transparent color index of the image after these extensions."""
    index = None
    for pos in extensions:
        if data[pos + 1] == GRAPHIC_CONTROL and data[pos + 2] == 4:
            index = data[pos + 6] if data[pos + 3] & _HAS_TRANSPARENCY else None
    return index


def _blackened(table: bytes, index: int | None) -> bytes:
    if index is None or 3 * index >= len(table):
        return table
    return table[: 3 * index] + bytes(3) + table[3 * index + 3 :]


def _largest_frame(data: bytes, pos: int, first: GifFrame) -> tuple[int, int]:
    """Return the greatest height and width of the first frame and complete frames from `pos` on."""
    height, width = first.height, first.width
    try:
        for start, _ in gif_blocks(data, pos):
            if data[start] == IMAGE:
                frame = gif_frame(data, start)
                height, width = max(height, frame.height), max(width, frame.width)
    except (IndexError, ValueError):
        pass  # truncated or damaged in a later frame, which is not decoded
    return height, width
