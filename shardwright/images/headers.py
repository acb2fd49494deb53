"""Read the header of an image without a decoder: all that a build must know, or a reader's size.

These parsers exist because Pillow's Image.open holds the GIL 4 to 40 times as long, 10 times for a
JPEG (benchmarks/headers.py), which is the whole budget at thousands of images per second. None of
them scans the pixels in Python. A shard may hold images that a build rejects, so a reader accepts
more. tests/shardwright/images/test_decode.py compares with what TensorFlow 2.21 rejects.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from shardwright.errors import ImageFault
from shardwright.images.bmp import bmp_size, has_bmp_header, read_bmp
from shardwright.images.gif import read_gif
from shardwright.images.jpeg import read_jpeg
from shardwright.images.kinds import Header, check_size, fault_of_stranger, image_format
from shardwright.images.png import png_size, read_png
from shardwright.images.webp import read_webp, webp_size
from shardwright.sizes import counted

# They raise IndexError, ValueError or struct.error where a file ends inside what they parse.
_PARSERS: Mapping[str, Callable[[bytes], Header]] = {
    "jpeg": read_jpeg,
    "png": read_png,
    "gif": read_gif,
    "webp": read_webp,
    "bmp": read_bmp,
}
# Of the others, `jpeg` and `gif` find the size on the way to the pixels.
_SIZES: Mapping[str, Callable[[bytes], tuple[int, int]]] = {
    "png": png_size,
    "bmp": bmp_size,
    "webp": webp_size,
}


def read_header(data: bytes) -> Header:
    """Return the header of an image, by its content.

    Raises:
        ImageFault: NOT_AN_IMAGE or UNSUPPORTED_FORMAT for another kind of file, TRUNCATED if the
            file ends inside its header, CORRUPT for an invalid header.
    """
    kind = true_format(data)
    if not kind:
        raise fault_of_stranger(data)
    try:
        return _PARSERS[kind](data)
    except (IndexError, ValueError, struct.error) as error:
        raise ImageFault(
            f"the {kind} file ends early, after {counted(len(data), 'byte')}: fetch it again",
            "truncated",
        ) from error


def true_format(data: bytes) -> str:
    """Return 'jpeg', 'png', 'gif', 'bmp' or 'webp' by the content, '' for anything else."""
    kind = image_format(data)
    return "" if kind == "bmp" and not has_bmp_header(data) else kind


def read_size(kind: str, data: bytes) -> tuple[int, int]:
    """Return (height, width) of a PNG, BMP or WebP file: it may claim more than fits in memory.

    Raises:
        ImageFault: The file ends inside its header, or the header is invalid.
    """
    try:
        width, height = _SIZES[kind](data)
    except (struct.error, IndexError) as error:
        raise ImageFault(
            f"the {kind} image ends in its header, after {counted(len(data), 'byte')}", "truncated"
        ) from error
    check_size(kind, height, width)
    return height, width
