"""Find the first frame of a GIF, as TensorFlow shows it. Format: GIF89a (CompuServe, 1990).

OpenCV composes frames on the file's canvas, and fills transparent pixels with the background color.
`tf.io.decode_image` paints the first frame on black, with transparent pixels black, on a canvas as
large as the largest frame. So OpenCV gets a file with the first frame only, and the caller places
its pixels on the canvas.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from shardwright.errors import ImageFault

_EXTENSION, _IMAGE, _TRAILER, _GRAPHIC_CONTROL = 0x21, 0x2C, 0x3B, 0xF9
_HAS_TABLE, _INTERLACED, _HAS_TRANSPARENCY = 0x80, 0x40, 0x01
_SCREEN_BYTES, _DESCRIPTOR_BYTES = 13, 10


class FirstFrame(NamedTuple):
    """A GIF's first frame; sizes and offsets in pixels.

    Attributes:
        data: A GIF of that frame alone, without transparency, on a canvas of its size.
        codes: The part of `data` with the pixels: the code size and the blocks after it.
        table: The color table of `data`.
        is_interlaced: Whether rows are stored in four passes.
        top: Offset of the frame in the canvas.
        left: Offset of the frame in the canvas.
        frame_height: Height of the frame.
        frame_width: Width of the frame.
        height: Height of the canvas: the maximum over all frames, not the file's header.
        width: Width of the canvas, likewise.
    """

    data: bytes
    codes: bytes
    table: bytes
    is_interlaced: bool
    top: int
    left: int
    frame_height: int
    frame_width: int
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
    flags = data[10]
    pos = _SCREEN_BYTES + _table_bytes(flags)
    pos, transparent = _skip_extensions(data, pos)
    if data[pos] != _IMAGE:
        raise ImageFault("the gif file has no image")
    left, top, width, height, frame_flags = struct.unpack_from("<HHHHB", data, pos + 1)
    pixels = pos + _DESCRIPTOR_BYTES + _table_bytes(frame_flags)
    if frame_flags & _HAS_TABLE:
        table, table_flags = data[pos + _DESCRIPTOR_BYTES : pixels], frame_flags
    else:
        table, table_flags = data[_SCREEN_BYTES : _SCREEN_BYTES + _table_bytes(flags)], flags
    if not table:
        raise ImageFault("the gif image has no color table: re-encode it as png or jpeg")
    end = _skip_blocks(data, pixels + 1)
    table = _blackened(table, transparent)
    screen = struct.pack("<6sHHBBB", b"GIF89a", width, height, _HAS_TABLE | table_flags & 7, 0, 0)
    descriptor = struct.pack("<BHHHHB", _IMAGE, 0, 0, width, height, frame_flags & _INTERLACED)
    codes = data[pixels:end]
    alone = b"".join((screen, table, descriptor, codes, bytes((_TRAILER,))))
    canvas = _largest_frame(data, end, height, width)
    return FirstFrame(
        alone, codes, table, bool(frame_flags & _INTERLACED), top, left, height, width, *canvas
    )


def _table_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & _HAS_TABLE else 0


def _skip_blocks(data: bytes, pos: int) -> int:
    while data[pos]:
        pos += data[pos] + 1
    return pos + 1


def _skip_extensions(data: bytes, pos: int) -> tuple[int, int | None]:
    """Return the position of the next image or trailer, and its transparent color index."""
    transparent = None
    while data[pos] == _EXTENSION:
        if data[pos + 1] == _GRAPHIC_CONTROL and data[pos + 2] == 4:
            transparent = data[pos + 6] if data[pos + 3] & _HAS_TRANSPARENCY else None
        pos = _skip_blocks(data, pos + 2)
    return pos, transparent


def _blackened(table: bytes, index: int | None) -> bytes:
    if index is None or 3 * index >= len(table):
        return table
    return table[: 3 * index] + bytes(3) + table[3 * index + 3 :]


def _largest_frame(data: bytes, pos: int, height: int, width: int) -> tuple[int, int]:
    """Return the greatest height and width of the first frame and complete frames from `pos` on."""
    try:
        while True:
            pos, _ = _skip_extensions(data, pos)
            if data[pos] != _IMAGE:
                return height, width
            frame_width, frame_height, flags = struct.unpack_from("<HHB", data, pos + 5)
            pos = _skip_blocks(data, pos + _DESCRIPTOR_BYTES + _table_bytes(flags) + 1)
            height, width = max(height, frame_height), max(width, frame_width)
    except (IndexError, struct.error):
        return height, width  # truncated in a later frame, which is not decoded
