"""Check PNG files as strictly, and open them as leniently, as libpng does.

Pillow stops reading once it has the pixels: a wrong checksum, a missing end, or missing rows pass.
TensorFlow's libpng rejects all of these. In turn, Pillow fails on damaged metadata that libpng
skips.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from transforms.images.headers import PNG_MAGIC
from transforms.images.kinds import ImageFault, ImageInfo
from transforms.rejects import RejectReason

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


class PngChunk(NamedTuple):
    """One chunk of a PNG, by its place in the file."""

    kind: bytes
    start: int  # of the length field
    end: int  # after the checksum
    intact: bool  # the checksum is right

    def body(self, data: bytes) -> bytes:
        return data[self.start + 8 : self.end - 4]


def check_png(data: bytes, info: ImageInfo) -> None:
    """Check every byte that libpng would check; this inflates the pixels, without the GIL.

    Raises:
        ImageFault: TRUNCATED if the file ends early, CORRUPT for anything that libpng stops at.
    """
    chunks = list(png_chunks(data))
    for chunk in chunks:
        _check_chunk(chunk)
    if chunks[-1].kind != b"IEND":
        raise ImageFault(
            RejectReason.TRUNCATED,
            f"the PNG ends after {len(data):,} bytes without an IEND chunk: fetch it again",
        )
    kinds = [chunk.kind for chunk in chunks]
    if b"IDAT" not in kinds or (data[25] == 3 and b"PLTE" not in kinds[: kinds.index(b"IDAT")]):
        raise ImageFault(RejectReason.CORRUPT, "the PNG has no pixels, or no palette for them")
    first = kinds.index(b"IDAT")
    # libpng ends the pixels at the first other chunk.
    last = next(number for number in range(first, len(kinds)) if kinds[number] != b"IDAT")
    _check_pixels(b"".join(chunk.body(data) for chunk in chunks[first:last]), data, info)


def essential_png(data: bytes) -> bytes:
    """Return the file without metadata that Pillow may fail on; a truncated file is unchanged."""
    chunks = list(png_chunks(data))
    if not chunks or chunks[-1].kind != b"IEND":
        return data
    kept = (
        c
        for c in chunks
        if c.kind in _KNOWN_CRITICAL or (c.kind in _NEEDED_FOR_PIXELS and c.intact)
    )
    return PNG_MAGIC + b"".join(data[chunk.start : chunk.end] for chunk in kept)


def png_chunks(data: bytes) -> Iterator[PngChunk]:
    """Yield the chunks up to IEND, or to the last whole one."""
    pos, view = len(PNG_MAGIC), memoryview(data)
    while pos + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, pos)
        end = pos + 12 + length
        if end > len(data):
            return
        crc = int.from_bytes(view[end - 4 : end], "big")
        yield PngChunk(kind, pos, end, zlib.crc32(view[pos + 4 : end - 4]) == crc)
        if kind == b"IEND":
            return
        pos = end


def _check_chunk(chunk: PngChunk) -> None:
    critical = not chunk.kind[0] & 0x20
    if not chunk.kind.isalpha() or (critical and chunk.kind not in _KNOWN_CRITICAL):
        raise ImageFault(
            RejectReason.CORRUPT,
            f"the PNG has an unknown critical chunk, {chunk.kind!r}",
        )
    if critical and not chunk.intact:
        raise ImageFault(
            RejectReason.CORRUPT, f"the checksum of a PNG chunk ({chunk.kind.decode()}) is wrong"
        )


def _check_pixels(compressed: bytes, data: bytes, info: ImageInfo) -> None:
    rows = list(_row_layout(info, bits=_SAMPLES[data[25]] * data[24], interlaced=bool(data[28])))
    expected = sum(stride * count for stride, count in rows)
    inflate = zlib.decompressobj()
    try:
        raw = inflate.decompress(compressed, expected)
        # Extra rows are allowed if they inflate to the end.
        while not inflate.eof and (tail := inflate.unconsumed_tail):
            inflate.decompress(tail, 1 << 20)
    except zlib.error as error:
        raise ImageFault(
            RejectReason.CORRUPT, f"the pixels of the PNG do not inflate ({error})"
        ) from error
    if not inflate.eof:
        raise ImageFault(RejectReason.CORRUPT, "the compressed pixels of the PNG do not end")
    if len(raw) < expected:
        raise ImageFault(
            RejectReason.CORRUPT, f"the PNG holds {len(raw):,} of {expected:,} bytes of pixels"
        )
    pos = 0
    for stride, count in rows:
        if max(raw[pos : pos + stride * count : stride]) > 4:
            raise ImageFault(RejectReason.CORRUPT, "the PNG uses a row filter that does not exist")
        pos += stride * count


def _row_layout(info: ImageInfo, *, bits: int, interlaced: bool) -> Iterator[tuple[int, int]]:
    """Yield (bytes per row with its filter byte, rows) of each pass that has pixels."""
    for left, top, step_x, step_y in _ADAM7 if interlaced else ((0, 0, 1, 1),):
        columns, rows = -(-(info.width - left) // step_x), -(-(info.height - top) // step_y)
        if columns > 0 and rows > 0:
            yield 1 + (columns * bits + 7) // 8, rows
