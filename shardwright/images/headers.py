"""Read the size of an image file before decoding: it may claim more pixels than fit in memory.

See `jpeg` and `gif` for those formats.
"""

from __future__ import annotations

import struct

from shardwright.errors import ImageFault
from shardwright.images.formats.bmp import BITFIELDS, bmp_header, has_bgr_masks, has_bmp_header
from shardwright.images.formats.kinds import MAX_PIXELS
from shardwright.images.formats.png import png_header, png_of_chunks
from shardwright.images.formats.webp import webp_size
from shardwright.sizes import counted


def check_size(kind: str, height: int, width: int) -> None:
    """Check the size of an image, in pixels.

    Raises:
        ImageFault: There are no pixels, or more than MAX_PIXELS.
    """
    if height < 1 or width < 1:
        raise ImageFault(f"the {kind} image has no pixels: its size is {width} x {height}")
    if height * width > MAX_PIXELS:
        raise ImageFault(
            f"the {kind} image has {width:,} x {height:,} pixels, more than the maximum of "
            f"{MAX_PIXELS:,}: scale it down"
        )


def read_size(kind: str, data: bytes) -> tuple[int, int]:
    """Return (height, width) of a PNG, BMP or WebP file from its header.

    Raises:
        ImageFault: The file ends inside its header, or the header is invalid.
    """
    try:
        width, height = {"png": _png_size, "bmp": _bmp_size, "webp": webp_size}[kind](data)
    except (struct.error, IndexError) as error:
        raise ImageFault(
            f"the {kind} image ends in its header, after {counted(len(data), 'byte')}"
        ) from error
    check_size(kind, height, width)
    return height, width


def _png_size(data: bytes) -> tuple[int, int]:
    header = png_header(data)
    if header.kind != b"IHDR":
        raise ImageFault("the png image does not begin with its header (IHDR)")
    return header.width, header.height


def _bmp_size(data: bytes) -> tuple[int, int]:
    if not has_bmp_header(data):
        raise ImageFault("not a bmp image, although it starts with 'BM'")
    header = bmp_header(data)
    # 32-bit decoders assume this byte order; colors in another one would be wrong.
    if header.bits == 32 and header.compression == BITFIELDS and not has_bgr_masks(data):
        raise ImageFault(
            "the 32-bit bmp image has unusual color masks: re-encode it as png or jpeg"
        )
    return header.width, abs(header.height)


def essential_png(data: bytes) -> bytes:
    """Return the file without its ancillary chunks: text, profiles, transparency, animation.

    They do not affect the colors, and libpng prints a line to stderr for each profile it dislikes,
    which are common. Chunk lengths are checked here, because OpenCV would allocate as much memory
    as a damaged length claims, up to 2 GB.

    Raises:
        ImageFault: A chunk reaches beyond the file, or the last one is missing.
    """
    essential = png_of_chunks(data, lambda chunk: chunk.is_critical)
    if not essential:
        raise ImageFault(
            "the png image is cut short or has a damaged length: no end in "
            f"{counted(len(data), 'byte')}"
        )
    return essential
