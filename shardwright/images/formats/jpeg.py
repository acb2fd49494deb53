"""Walk the segments of a JPEG. Format: ITU-T T.81, annex B."""

from __future__ import annotations

import re
import struct
from collections.abc import Container, Iterator

START, END, SCAN = 0xD8, 0xD9, 0xDA
APP0, APP1, APP2, APP14 = 0xE0, 0xE1, 0xE2, 0xEE
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
EXIF_START = b"Exif\0\0"

# Colors depend on two application segments, JFIF's 0xE0 and Adobe's 0xEE. The others and comments
# are metadata.
METADATA = frozenset((*range(0xE1, 0xEE), 0xEF, 0xFE))

_BARE = frozenset((0x00, 0x01, 0xFF, *range(0xD0, 0xD8)))  # stuffing, fill bytes and restarts
_LONG = frozenset(range(256)) - _BARE - {START, END, SCAN}
# In entropy-coded data 0xFF is followed by 0x00 or is a restart marker (T.81, B.1.1.5).
_next_marker = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]").search
_FRAME = struct.Struct(">BHHB").unpack_from


def header_segments(
    data: bytes, wanted: Container[int] = _LONG, pos: int = 2
) -> list[tuple[int, int, int]]:
    """Return (marker, start, end) of each segment from `pos` up to the header of the next scan.

    The last is the scan, an end marker, or a second start marker, which decoders reject, unless
    the data ends before.

    Args:
        data: The whole file.
        wanted: Markers of the segments to return besides the last one.
        pos: Where to start.
    """
    found = []
    try:
        while True:
            marker = data[pos + 1]
            if marker in _LONG and data[pos] == 0xFF:
                end = pos + 2 + (data[pos + 2] << 8 | data[pos + 3])
                if marker in wanted:
                    found.append((marker, pos, end))
                pos = end
            elif data[pos] != 0xFF or marker in _BARE:
                pos = data.index(b"\xff", pos + 1)  # decoders skip stray bytes
            else:
                length = int.from_bytes(data[pos + 2 : pos + 4], "big") if marker == SCAN else 0
                found.append((marker, pos, pos + 2 + length))
                return found
    except (IndexError, ValueError):
        return found


def jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (marker, start, end) of all segments as `header_segments`; of scans, only headers."""
    pos = 2
    while segments := header_segments(data, pos=pos):
        yield from segments
        marker, _, end = segments[-1]
        following = _next_marker(data, end) if marker == SCAN else None
        if not following:
            return
        pos = following.start()


def jpeg_frame(data: bytes, start: int) -> tuple[int, int, int, int]:
    """Return bits per sample, height, width and number of components of a frame header."""
    return _FRAME(data, start + 4)


def essential_jpeg(data: bytes) -> bytes:
    """Return the file without the metadata in front of its pixels.

    Pillow parses metadata when it opens a file, and fails or prints warnings if it is damaged.
    """
    kept = [data[:2]]
    for marker, start, end in jpeg_segments(data):
        if marker in (SCAN, END):
            return b"".join((*kept, data[start:]))
        if marker not in METADATA:
            kept.append(data[start:end])
    return data
