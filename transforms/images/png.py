"""Check PNG files as strictly, and open them as leniently, as libpng does.

Pillow stops reading once it has the pixels: a wrong checksum, a missing end, or missing rows pass.
TensorFlow's libpng rejects all of these. In turn, Pillow fails on damaged metadata that libpng
skips.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from shardwright.images.formats.png import (
    PngChunk,
    PngHeader,
    png_chunks,
    png_header,
    png_of_chunks,
)
from shardwright.sizes import counted
from shardwright.transforms.images.kinds import RejectedImage
from shardwright.transforms.rejects import RejectReason

_KNOWN_CRITICAL = frozenset((b"IHDR", b"PLTE", b"IDAT", b"IEND"))
_NEEDED_FOR_PIXELS = _KNOWN_CRITICAL | {b"tRNS", b"eXIf"}
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # color type -> samples per pixel
# Adam7 (PNG specification, section 8.1): first column, first row, column and row step of a pass.
_ADAM7 = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)


def check_png(data: bytes) -> None:
    """Check every byte that libpng would check; this inflates the pixels, without the GIL.

    Raises:
        RejectedImage: TRUNCATED if the file ends early, CORRUPT for anything that libpng stops at.
    """
    header, chunks = png_header(data), list(png_chunks(data))
    for chunk in chunks:
        _check_chunk(data, chunk)
    if chunks[-1].kind != b"IEND":
        raise RejectedImage(
            RejectReason.TRUNCATED,
            f"the PNG ends after {counted(len(data), 'byte')} without an IEND chunk: "
            "fetch it again",
        )
    kinds = [chunk.kind for chunk in chunks]
    if b"IDAT" not in kinds or (header.color == 3 and b"PLTE" not in kinds[: kinds.index(b"IDAT")]):
        raise RejectedImage(RejectReason.CORRUPT, "the PNG has no pixels, or no palette for them")
    first = kinds.index(b"IDAT")
    # libpng ends the pixels at the first other chunk.
    last = next(number for number in range(first, len(kinds)) if kinds[number] != b"IDAT")
    _check_pixels(b"".join(chunk.body(data) for chunk in chunks[first:last]), header)


def essential_png(data: bytes) -> bytes:
    """Return the file without metadata that Pillow may fail on; a truncated file is unchanged."""

    def is_kept(chunk: PngChunk) -> bool:
        known = chunk.kind in _KNOWN_CRITICAL
        return known or (chunk.kind in _NEEDED_FOR_PIXELS and chunk.is_intact(data))

    return png_of_chunks(data, is_kept) or data


def _check_chunk(data: bytes, chunk: PngChunk) -> None:
    if not chunk.kind.isalpha() or (chunk.is_critical and chunk.kind not in _KNOWN_CRITICAL):
        raise RejectedImage(
            RejectReason.CORRUPT,
            f"the PNG has an unknown critical chunk, {chunk.kind!r}",
        )
    if chunk.is_critical and not chunk.is_intact(data):
        raise RejectedImage(
            RejectReason.CORRUPT, f"the checksum of a PNG chunk ({chunk.kind.decode()}) is wrong"
        )


def _check_pixels(compressed: bytes, header: PngHeader) -> None:
    rows = list(_row_layout(header))
    expected = sum(stride * count for stride, count in rows)
    inflate = zlib.decompressobj()
    try:
        raw = inflate.decompress(compressed, expected)
        # Extra rows are allowed if they inflate to the end: in pieces, as there may be gigabytes.
        while not inflate.eof and (tail := inflate.unconsumed_tail):
            inflate.decompress(tail, 1 << 20)
    except zlib.error as error:
        raise RejectedImage(
            RejectReason.CORRUPT, f"the pixels of the PNG do not inflate ({error})"
        ) from error
    if not inflate.eof:
        raise RejectedImage(RejectReason.CORRUPT, "the compressed pixels of the PNG do not end")
    if len(raw) < expected:
        raise RejectedImage(
            RejectReason.CORRUPT, f"the PNG holds {len(raw):,} of {expected:,} bytes of pixels"
        )
    pos = 0
    for stride, count in rows:
        # Each row begins with the number of its filter (PNG specification, section 9.2).
        if max(raw[pos : pos + stride * count : stride]) > 4:
            raise RejectedImage(
                RejectReason.CORRUPT, "the PNG uses a row filter that does not exist"
            )
        pos += stride * count


def _row_layout(header: PngHeader) -> Iterator[tuple[int, int]]:
    """Yield (bytes per row with its filter byte, rows) of each pass that has pixels."""
    bits = _SAMPLES[header.color] * header.depth
    for left, top, step_x, step_y in _ADAM7 if header.interlace else ((0, 0, 1, 1),):
        columns, rows = -(-(header.width - left) // step_x), -(-(header.height - top) // step_y)
        if columns > 0 and rows > 0:
            yield 1 + (columns * bits + 7) // 8, rows
