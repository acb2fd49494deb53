"""Check JPEG files as strictly, and open them as leniently, as libjpeg does."""

from __future__ import annotations

from shardwright.images.formats.jpeg import END, SCAN, jpeg_segments
from transforms.images.kinds import RejectedImage
from transforms.rejects import RejectReason

# Colors depend on two application segments, JFIF's 0xE0 and Adobe's 0xEE. The others and comments
# are metadata.
METADATA = frozenset((*range(0xE1, 0xEE), 0xEF, 0xFE))


def check_jpeg(data: bytes) -> None:
    """Follow the segments to the end of the image; takes about 1 microsecond per KB.

    Pillow stops reading once it has its rows. TensorFlow's libjpeg reads on to the end, and fails
    if a flipped byte in a scan looks like a segment that reaches beyond the file.

    Raises:
        RejectedImage: CORRUPT if the segments do not lead to an end marker.
    """
    if not any(marker == END for marker, _, _ in jpeg_segments(data)):
        raise RejectedImage(
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
