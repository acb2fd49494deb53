"""Parse the header and the chunks of a PNG. Source: the PNG specification (W3C, 3rd edition)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"

_HEADER = struct.Struct(">I4sIIBBBBBI").unpack_from


class PngHeader(NamedTuple):
    """The first chunk of a PNG.

    Attributes:
        kind: b"IHDR", unless the file is damaged or Apple's variant.
        width: In pixels.
        height: In pixels.
        depth: Bits per sample.
        color: 0 gray, 2 RGB, 3 palette, 4 gray with alpha, 6 RGB with alpha.
        compression: Compression method; 0 is the only one.
        filters: Filter method; 0 is the only one.
        interlace: 0, or 1 for Adam7.
        is_intact: Length and checksum are right.
    """

    kind: bytes
    width: int
    height: int
    depth: int
    color: int
    compression: int
    filters: int
    interlace: int
    is_intact: bool


class PngChunk(NamedTuple):
    """One chunk of a PNG, from its length field to its checksum."""

    kind: bytes
    start: int
    end: int

    @property
    def is_critical(self) -> bool:
        return not self.kind[0] & 0x20  # the first letter is upper case

    def body(self, data: bytes) -> bytes:
        return data[self.start + 8 : self.end - 4]

    def is_intact(self, data: bytes) -> bool:
        """Return whether the checksum is right."""
        view, body_end = memoryview(data), self.end - 4
        return zlib.crc32(view[self.start + 4 : body_end]) == int.from_bytes(
            view[body_end : self.end], "big"
        )


def png_header(data: bytes) -> PngHeader:
    """Return the header of a PNG, which may be damaged."""
    length, kind, width, height, depth, color, compression, filters, interlace, crc = _HEADER(
        data, 8
    )
    is_intact = length == 13 and zlib.crc32(data[12:29]) == crc
    return PngHeader(kind, width, height, depth, color, compression, filters, interlace, is_intact)


def png_chunks(data: bytes) -> Iterator[PngChunk]:
    """Yield the chunks up to IEND, or to the last whole one."""
    pos = len(PNG_MAGIC)
    while pos + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, pos)
        end = pos + 12 + length
        if end > len(data):
            return
        yield PngChunk(kind, pos, end)
        if kind == b"IEND":
            return
        pos = end


def png_of_chunks(data: bytes, is_kept: Callable[[PngChunk], bool]) -> bytes:
    """Return the file with some of its chunks, b"" if it ends before IEND."""
    kept, last = [PNG_MAGIC], b""
    for chunk in png_chunks(data):
        last = chunk.kind
        if is_kept(chunk):
            kept.append(data[chunk.start : chunk.end])
    return b"".join(kept) if last == b"IEND" else b""
