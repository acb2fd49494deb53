"""Walk the blocks of a GIF, check it, and decode its first frame, as TensorFlow shows it.

`tf.io.decode_image` paints the first frame on black, with transparent pixels black, on a canvas as
large as the largest frame. OpenCV and Pillow compose frames in other ways, so this module finds the
frame and its colors, and Pillow only decodes the frame's codes (GIF89a, CompuServe, 1990).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import ImageFault
from shardwright.images.kinds import Header, ImageInfo, zeroed
from shardwright.images.libraries import load_library
from shardwright.sizes import counted

IMAGE, EXTENSION, TRAILER = 0x2C, 0x21, 0x3B
GRAPHIC_CONTROL, APPLICATION, PLAIN_TEXT = 0xF9, 0xFF, 0x01

_SCREEN_BYTES, _DESCRIPTOR_BYTES = 13, 10
_DESCRIPTOR = struct.Struct("<HHHHB").unpack_from
_U16_PAIR = struct.Struct("<HH").unpack_from
_MAX_CODE_SIZE = 8  # giflib's limit, and the format's: an index into 256 colors
_HAS_TRANSPARENCY = 0x01


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


def whole_gif_blocks(data: bytes, pos: int = 0) -> list[tuple[int, int]]:
    """Return the blocks as `gif_blocks`, up to any damage, which a check of the pixels reports."""
    blocks = []
    with suppress(IndexError, ValueError):
        for block in gif_blocks(data, pos):
            blocks.append(block)
    return blocks


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


def read_gif(data: bytes) -> Header:
    """Return the header of a GIF, going up to its first image."""
    width, height = _U16_PAIR(data, 6)
    pos, extensions = first_gif_image(data)
    refusal = ""
    # After an extension without sub-blocks, giflib 5.2's DGifSlurp reads one more, and so takes the
    # next block for data.
    if 0 in [data[start + 2] for start in extensions]:
        refusal = "a GIF with an empty extension before its first image"
    # Only extensions came before it.
    if data[pos] == TRAILER:
        raise ImageFault("a GIF without an image")
    if data[pos] != IMAGE:
        strange = f"a GIF with byte 0x{data[pos]:02x} where its first image should start"
        return Header(ImageInfo("gif", width, height, 3), "", strange, strange)
    left, top, frame_width, frame_height, _, colors, _, codes = gif_frame(data, pos)
    info = ImageInfo("gif", max(width, left + frame_width), max(height, top + frame_height), 3)
    if not colors:
        refusal = "a GIF without a color table"
    elif (code_size := data[codes]) > _MAX_CODE_SIZE:
        refusal = f"a GIF with codes of {code_size} bits (at most {_MAX_CODE_SIZE} are supported)"
    # With the block terminator, because the trailer's byte alone would pass one cut in 256.
    odd = zeroed(data, codes) if data.endswith(b"\0;") else _walk(data, pos)[0]
    return Header(
        info, "", odd if frame_width * frame_height else "a first image without pixels", refusal
    )


def check_gif(data: bytes, highest_index: float) -> None:
    """Check what TensorFlow's giflib requires of a GIF with an image, and Pillow does not.

    Raises:
        ImageFault: TRUNCATED if a block reaches beyond the file, or the trailer is missing;
            UNSUPPORTED_FORMAT if a pixel of the first frame has a higher index than its color
            table.
    """
    pos, _ = first_gif_image(data)
    num_colors = gif_frame(data, pos).colors
    if highest_index >= num_colors:
        detail = (
            f"a GIF with color index {highest_index} in a table of {num_colors} colors: "
            "TensorFlow rejects it; encode to png or jpeg"
        )
        raise ImageFault(detail, "unsupported_format")
    try:
        odd, end = _walk(data, pos)
    except IndexError as error:
        raise ImageFault(
            "the blocks of the GIF reach beyond its end: fetch it again", "truncated"
        ) from error
    if not odd and end == len(data):
        what = "the GIF lacks its end, the trailer: fetch it again, or use --check header"
        raise ImageFault(what, "truncated")


def _walk(data: bytes, pos: int) -> tuple[str, int]:
    """Return what is odd about the blocks of a GIF, or "", and where the last block ends.

    Raises:
        IndexError: The data ends inside a block.
    """
    end = pos
    try:
        for block in gif_blocks(data, pos):
            end = block[1]
    except ValueError as error:
        return str(error), end
    return "", end


class FirstFrame(NamedTuple):
    """A GIF's first frame.

    Attributes:
        frame: Its place in the canvas and in the file.
        codes: The part of the file with the pixels: the code size and the blocks after it.
        colors: The color table, uint8 [colors, 3], RGB; the transparent color is black.
        height: Height of the canvas in pixels: the maximum over all frames, not the file's header.
        width: Width of the canvas, likewise.
    """

    frame: GifFrame
    codes: bytes
    colors: NDArray[np.uint8]
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
        raise ImageFault(
            f"the gif image is cut short, after {counted(len(data), 'byte')}"
        ) from error


def _first_frame(data: bytes) -> FirstFrame:
    pos, extensions = first_gif_image(data)
    if data[pos] != IMAGE:
        raise ImageFault("the gif file has no image")
    frame = gif_frame(data, pos)
    table = data[frame.table : frame.table + 3 * frame.colors]
    if not table:
        raise ImageFault("the gif image has no color table: re-encode it as png or jpeg")
    end = end_of_sub_blocks(data, frame.codes + 1)
    colors = np.frombuffer(table[: len(table) // 3 * 3], np.uint8).reshape(-1, 3).copy()
    if (index := _transparent(data, extensions)) is not None:
        colors[index : index + 1] = 0  # nothing, if there is no such color
    later = [start for start, _ in whole_gif_blocks(data, end) if data[start] == IMAGE]
    frames = [frame, *(gif_frame(data, start) for start in later)]
    height, width = max(each.height for each in frames), max(each.width for each in frames)
    return FirstFrame(frame, data[frame.codes : end], colors, height, width)


def decode_frame(first: FirstFrame) -> NDArray[np.uint8]:
    """Return the pixels of a frame, uint8 [height, width, 3], RGB.

    Raises:
        ImageFault: The codes are damaged or end early, or a color is not in the table.
    """
    frame, codes = first.frame, first.codes
    if not 1 <= codes[0] <= 8:
        raise ImageFault(f"the gif image has a code size of {codes[0]}, not 1 to 8")
    # As GifImagePlugin of Pillow 12 calls it. -1: no color is transparent.
    arguments = (codes[0], frame.is_interlaced, -1)
    size = (frame.width, frame.height)
    try:
        # The codes alone, so that none of Pillow's rules for canvas, palette and disposal apply.
        image = load_library("PIL.Image").frombytes("P", size, codes[1:], "gif", *arguments)
    except ValueError as error:
        raise ImageFault(
            "the gif image is damaged: it ends before its last pixel or has an unknown code"
        ) from error
    indices = np.asarray(image)
    if indices.max() >= len(first.colors):
        raise ImageFault(
            f"the gif image has a pixel of color {indices.max()}, "
            f"but only {len(first.colors)} colors"
        )
    return first.colors[indices]


def _transparent(data: bytes, extensions: list[int]) -> int | None:
    """Return the transparent color index of the image after these extensions."""
    index = None
    for pos in extensions:
        # The last one before the image counts.
        if data[pos + 1] == GRAPHIC_CONTROL and data[pos + 2] == 4:
            index = data[pos + 6] if data[pos + 3] & _HAS_TRANSPARENCY else None
    return index
