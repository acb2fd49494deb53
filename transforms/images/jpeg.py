"""Walk the segments of a JPEG, and drop metadata that Pillow may fail on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from transforms.images.kinds import ImageFault
from transforms.rejects import RejectReason

SCAN, END = 0xDA, 0xD9
_START = 0xD8
# Stuffing, fill bytes and restart markers: no length follows.
_NO_SEGMENT = frozenset((0x00, 0x01, 0xFF, *range(0xD0, 0xD8)))
# Colors depend on two application segments, JFIF's 0xE0 and Adobe's 0xEE. The others and comments
# are metadata.
METADATA = frozenset((*range(0xE1, 0xEE), 0xEF, 0xFE))
# In entropy-coded data 0xFF is followed by 0x00 or is a restart marker (ITU-T T.81, B.1.1.5).
_next_marker = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]").search


def check_jpeg(data: bytes) -> None:
    """Follow the segments to the end of the image; takes about 1 microsecond per KB.

    Pillow stops reading once it has its rows. TensorFlow's libjpeg reads on to the end, and fails
    if a flipped byte in a scan looks like a segment that reaches beyond the file.

    Raises:
        ImageFault: CORRUPT if the segments do not lead to an end marker.
    """
    if not any(marker == END for marker, _, _ in jpeg_segments(data)):
        raise ImageFault(
            RejectReason.CORRUPT, "the segments of the JPEG lead beyond its end: a scan is damaged"
        )


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


def jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (marker, start, end) of each segment up to the end marker or the end of the data."""
    pos = 2
    while 0 <= pos < len(data) - 1:
        marker = data[pos + 1]
        if data[pos] == 0xFF and marker == _START:
            return  # decoders reject a second start marker
        if data[pos] != 0xFF or marker in _NO_SEGMENT:
            pos = data.find(b"\xff", pos + 1)  # decoders skip stray bytes
            continue
        end = pos + 2 if marker == END else pos + 2 + int.from_bytes(data[pos + 2 : pos + 4], "big")
        yield marker, pos, end
        if marker == END:
            return
        if marker == SCAN:
            found = _next_marker(data, end)
            end = found.start() if found else len(data)
        pos = end
