"""Decode GIF frames that OpenCV rejects: with data after the last pixel, as some tools write.

An unknown code, or an end before the last pixel, is a fault; giflib, TensorFlow's decoder, renders
some unknown codes as noise. Source: GIF89a (CompuServe, 1990), appendix F.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import ImageFault
from shardwright.images.gif import FirstFrame

# In Python, because the reader does not depend on Pillow, whose decoder gives the same pixels 10 to
# 150 times faster (1 ms for 500 x 375 pixels). Such files are rare.
_MAX_CODES, _MAX_CODE_BITS = 4096, 12
_PASSES = ((0, 8), (4, 8), (2, 4), (1, 2))  # of interlaced rows: first row, step


def decode_frame(first: FirstFrame) -> NDArray[np.uint8]:
    """Return the pixels of a frame, uint8 [height, width, 3], RGB.

    Raises:
        ImageFault: The codes are damaged or end early, or a color is not in the table.
    """
    height, width, data = first.frame.height, first.frame.width, first.codes
    indices = np.frombuffer(_decode_codes(_join_blocks(data), data[0], height * width), np.uint8)
    colors = np.frombuffer(first.table, np.uint8).reshape(-1, 3)
    if indices.max() >= len(colors):
        raise ImageFault(
            f"the gif image has a pixel of color {indices.max()}, but only {len(colors)} colors"
        )
    pixels = colors[indices].reshape(height, width, 3)
    if first.frame.is_interlaced:
        order = [row for first_row, step in _PASSES for row in range(first_row, height, step)]
        pixels = pixels[np.argsort(order)]
    return pixels


def _join_blocks(data: bytes) -> bytes:
    pos, parts = 1, []
    while data[pos]:
        parts.append(data[pos + 1 : pos + 1 + data[pos]])
        pos += 1 + data[pos]
    return b"".join(parts)


def _decode_codes(data: bytes, size_bits: int, num_pixels: int) -> bytes:
    """Decode LZW codes of growing width; return the first `num_pixels` bytes."""
    if not 1 <= size_bits <= 8:
        raise ImageFault(f"the gif image has a code size of {size_bits}, not 1 to 8")
    clear, end = 1 << size_bits, (1 << size_bits) + 1
    first_table = [bytes((value,)) for value in range(clear)] + [b"", b""]
    table, code_bits, before, parts, num_found = first_table.copy(), size_bits + 1, b"", [], 0
    bits = num_bits = 0
    for byte in data:
        bits |= byte << num_bits
        num_bits += 8
        while num_bits >= code_bits:
            code = bits & (1 << code_bits) - 1
            bits, num_bits = bits >> code_bits, num_bits - code_bits
            if code == clear:
                table, code_bits, before = first_table.copy(), size_bits + 1, b""
                continue
            if code == end or code > len(table) or (code == len(table) and not before):
                raise ImageFault(
                    "the gif image is damaged: it ends before its last pixel or has an unknown code"
                )
            # A code may refer to the entry that it is about to define.
            entry = table[code] if code < len(table) else before + before[:1]
            parts.append(entry)
            num_found += len(entry)
            if num_found >= num_pixels:
                return b"".join(parts)[:num_pixels]
            if before and len(table) < _MAX_CODES:
                table.append(before + entry[:1])
                if len(table) == 1 << code_bits and code_bits < _MAX_CODE_BITS:
                    code_bits += 1
            before = entry
    raise ImageFault("the gif image is cut short: it ends before its last pixel")
