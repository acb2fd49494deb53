"""Tell image formats by their first bytes."""

from __future__ import annotations

from shardwright.images.formats.png import PNG_MAGIC

MAX_PIXELS = 178_956_970
"""Maximum pixels of an image: Pillow's limit for decompression bombs (2 * MAX_IMAGE_PIXELS)."""

JPEG_MAGIC = b"\xff\xd8\xff"
GIF_MAGICS = (b"GIF87a", b"GIF89a")
RIFF_MAGIC = b"RIFF"


def image_format(start: bytes) -> str:
    """Return 'jpeg', 'png', 'gif', 'bmp' or 'webp' from the first 16 bytes of a file, else ''.

    A text may start with the two letters of a BMP: see `bmp.has_bmp_header`.
    """
    if start.startswith(JPEG_MAGIC):
        return "jpeg"
    if start.startswith(PNG_MAGIC):
        return "png"
    if start.startswith(GIF_MAGICS):
        return "gif"
    if start.startswith(RIFF_MAGIC) and start[8:12] == b"WEBP":
        return "webp"
    return "bmp" if start.startswith(b"BM") else ""
