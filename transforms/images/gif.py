"""Parse GIF files block by block (GIF89a, CompuServe 1990), and check what TensorFlow requires."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from transforms.images.kinds import Header, ImageFault, ImageInfo
from transforms.rejects import RejectReason

IMAGE, EXTENSION, TRAILER = 0x2C, 0x21, 0x3B
GRAPHIC_CONTROL, APPLICATION = 0xF9, 0xFF

_MAX_CODE_SIZE = 8  # giflib's limit, and the format's: an index into 256 colors

_U16_PAIR = struct.Struct("<HH").unpack_from
_U16_QUAD = struct.Struct("<HHHH").unpack_from


def read_gif(data: bytes) -> Header:
    """Return the header of a GIF, going up to its first image."""
    width, height = _U16_PAIR(data, 6)
    pos, refusal = _first_image(data)
    if data[pos] == TRAILER:
        raise ImageFault(RejectReason.CORRUPT, "a GIF without an image")
    if data[pos] != IMAGE:
        strange = f"a GIF with byte 0x{data[pos]:02x} where its first image should start"
        return Header(ImageInfo("gif", width, height, 3), "", strange, strange)
    left, top, frame_width, frame_height = _U16_QUAD(data, pos + 1)
    info = ImageInfo("gif", max(width, left + frame_width), max(height, top + frame_height), 3)
    if not (data[10] | data[pos + 9]) & 0x80:
        refusal = "a GIF without a color table"
    elif (code_size := data[pos + 10 + _table_size(data[pos + 9])]) > _MAX_CODE_SIZE:
        refusal = f"a GIF with codes of {code_size} bits (at most {_MAX_CODE_SIZE} are supported)"
    # With the block terminator, because the trailer's byte alone would pass one cut in 256.
    odd = "" if data.endswith(b"\0;") else _odd(data, pos)
    return Header(
        info, "", odd if frame_width * frame_height else "a first image without pixels", refusal
    )


def check_gif(data: bytes, highest_index: float) -> None:
    """Check what TensorFlow's giflib requires of a GIF with an image, and Pillow does not.

    Raises:
        ImageFault: TRUNCATED if a block reaches beyond the file, UNSUPPORTED_FORMAT if a pixel of
            the first frame has a higher index than its color table.
    """
    pos, _ = _first_image(data)
    num_colours = (_table_size(data[pos + 9]) or _table_size(data[10])) // 3
    if highest_index >= num_colours:
        detail = (
            f"a GIF with color index {highest_index} in a table of {num_colours} colors: "
            "TensorFlow rejects it; encode to png or jpeg"
        )
        raise ImageFault(RejectReason.UNSUPPORTED_FORMAT, detail)
    try:
        _odd(data, pos)
    except IndexError as error:
        raise ImageFault(
            RejectReason.TRUNCATED, "the blocks of the GIF reach beyond its end: fetch it again"
        ) from error


def _first_image(data: bytes) -> tuple[int, str]:
    """Return where the first image should start, and why giflib does not get there, or "".

    After an extension without sub-blocks, giflib 5.2's DGifSlurp reads one more, and so takes the
    next block for data.
    """
    pos, refusal = first_gif_block(data), ""
    while data[pos] == EXTENSION:
        if not data[pos + 2]:
            refusal = "a GIF with an empty extension before its first image"
        pos = _behind_blocks(data, pos + 2)
    return pos, refusal


def _table_size(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _behind_blocks(data: bytes, pos: int) -> int:
    while data[pos]:
        pos += data[pos] + 1
    return pos + 1


def _odd(data: bytes, pos: int) -> str:
    """Return what is odd about the blocks of a GIF without a trailer at its very end, or "".

    Raises:
        IndexError: The data ends inside a block.
    """
    try:
        for _ in gif_blocks(data, pos):
            pass
    except ValueError as error:
        return str(error)
    return ""


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
            end = _behind_blocks(data, pos + 11 + _table_size(data[pos + 9]))
        elif data[pos] == EXTENSION:
            end = _behind_blocks(data, pos + 2)
        else:
            raise ValueError("unknown data between the blocks")
        yield pos, end
        pos = end


def first_gif_block(data: bytes) -> int:
    """Return where the first block begins: after the header and its color table."""
    return 13 + _table_size(data[10])
