"""Read the header of an image without a decoder: all that a build must know, and a reader.

These parsers exist because Pillow's Image.open holds the GIL 4 to 40 times as long, 10 times for a
JPEG (benchmarks/headers.py), which is the whole budget at thousands of images per second. None of
them scans the pixels in Python. tests/shardwright/images/test_decode.py compares with what
TensorFlow 2.21 rejects.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from shardwright.errors import ImageFault
from shardwright.images.bmp import has_bmp_header, read_bmp
from shardwright.images.gif import read_gif
from shardwright.images.jpeg import read_jpeg
from shardwright.images.kinds import Header, fault_of_stranger, image_format
from shardwright.images.png import read_png
from shardwright.images.webp import read_webp
from shardwright.sizes import counted

# They raise IndexError, ValueError or struct.error where a file ends inside what they parse.
_PARSERS: Mapping[str, Callable[[bytes], Header]] = {
    "jpeg": read_jpeg,
    "png": read_png,
    "gif": read_gif,
    "webp": read_webp,
    "bmp": read_bmp,
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
