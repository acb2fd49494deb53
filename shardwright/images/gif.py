"""Decode the first frame of a GIF, as TensorFlow shows it.

`tf.io.decode_image` paints the first frame on black, with transparent pixels black, on a canvas as
large as the largest frame. OpenCV and Pillow compose frames in other ways, so this module finds the
frame and its colors, and Pillow only decodes the frame's codes (GIF89a, appendix F).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import ImageFault
from shardwright.images.formats.gif import (
    GRAPHIC_CONTROL,
    IMAGE,
    GifFrame,
    end_of_sub_blocks,
    first_gif_image,
    gif_blocks,
    gif_frame,
)
from shardwright.images.libraries import load_library
from shardwright.sizes import counted

_HAS_TRANSPARENCY = 0x01


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
    colors = _blackened(table, _transparent(data, extensions))
    return FirstFrame(frame, data[frame.codes : end], colors, *_largest_frame(data, end, frame))


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
        if data[pos + 1] == GRAPHIC_CONTROL and data[pos + 2] == 4:
            index = data[pos + 6] if data[pos + 3] & _HAS_TRANSPARENCY else None
    return index


def _blackened(table: bytes, index: int | None) -> NDArray[np.uint8]:
    colors = np.frombuffer(table[: len(table) // 3 * 3], np.uint8).reshape(-1, 3).copy()
    if index is not None:
        colors[index : index + 1] = 0  # nothing, if there is no such color
    return colors


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
