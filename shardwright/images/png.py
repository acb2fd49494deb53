"""Parse and check the header and the chunks of a PNG.

Pillow stops reading once it has the pixels: a wrong checksum, a missing end, or missing rows pass.
TensorFlow's libpng rejects all of these, and so does `check_png`. In turn, Pillow fails on damaged
metadata that libpng skips. Source: the PNG specification (W3C, 3rd edition).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from shardwright.errors import ImageFault
from shardwright.images.kinds import PNG_MAGIC, Header, ImageInfo, zeroed
from shardwright.sizes import counted

_IEND = b"\0\0\0\0IEND\xae\x42\x60\x82"
_LIBPNG_MAX_SIDE = 1_000_000  # PNG_USER_WIDTH_MAX in pnglibconf.h
# (color type, bit depth) -> channels. PNG specification, table 12: no other pair is allowed.
_CHANNELS = {
    **{(0, depth): 1 for depth in (1, 2, 4, 8, 16)},
    **{(3, depth): 3 for depth in (1, 2, 4, 8)},
    **{(kind, depth): channels for kind, channels in ((2, 3), (4, 2), (6, 4)) for depth in (8, 16)},
}
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # color type -> samples per pixel
_KNOWN_CRITICAL = frozenset((b"IHDR", b"PLTE", b"IDAT", b"IEND"))
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
_HEADER = struct.Struct(">I4sIIBBBBBI").unpack_from


class PngHeader(NamedTuple):
    """The first chunk of a PNG.

    Attributes:
        kind: b"IHDR", unless the file is damaged or Apple's variant.
        width: In pixels.
        height: In pixels.
        depth: Bits per sample.
        color: 0 gray, 2 RGB, 3 palette, 4 gray with alpha, 6 RGB with alpha.
        interlace: 0, or 1 for Adam7.
        is_valid: Kind, length and checksum are right, and the methods are those that there are.
    """

    kind: bytes
    width: int
    height: int
    depth: int
    color: int
    interlace: int
    is_valid: bool


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
    is_intact = (length, kind, zlib.crc32(data[12:29])) == (13, b"IHDR", crc)
    is_valid = is_intact and not compression and not filters and interlace <= 1
    return PngHeader(kind, width, height, depth, color, interlace, is_valid)


def png_chunks(data: bytes) -> Iterator[PngChunk]:
    """Yield the chunks up to IEND, or to the last whole one."""
    pos = len(PNG_MAGIC)
    while pos + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, pos)
        end = pos + 12 + length
        # A length beyond the file, of a cut or damaged one.
        if end > len(data):
            return
        yield PngChunk(kind, pos, end)
        if kind == b"IEND":
            return
        pos = end


def precedes_pixels(data: bytes, kind: bytes) -> bool:
    """Return whether the name of a chunk is in front of the pixels: a search, without a walk."""
    return data.find(kind, 33, data.find(b"IDAT", 33)) > 0  # 33: the end of IHDR, always the first


def _of_chunks(data: bytes, is_kept: Callable[[PngChunk], bool]) -> bytes:
    """Return the file with some of its chunks, b"" if it ends before IEND."""
    kept, last = [PNG_MAGIC], b""
    for chunk in png_chunks(data):
        last = chunk.kind
        if is_kept(chunk):
            kept.append(data[chunk.start : chunk.end])
    return b"".join(kept) if last == b"IEND" else b""


def read_png(data: bytes) -> Header:
    """Return what a build must know of a PNG. Raises as `read_header`."""
    kind, width, height, depth, color, _, is_valid = png_header(data)
    if kind == b"CgBI":
        detail = "an Xcode-optimized PNG (CgBI), which only Apple reads: use the original file"
        raise ImageFault(detail, "unsupported_format")
    channels = _CHANNELS.get((color, depth), 0)
    if not (is_valid and channels and width and height):
        raise ImageFault("the PNG header is damaged (checksum or values)")
    if color == 3:
        if not precedes_pixels(data, b"PLTE"):
            raise ImageFault("a PNG with a palette image, but no palette")
        channels += precedes_pixels(data, b"tRNS")
    refusal = ""
    if max(width, height) > _LIBPNG_MAX_SIDE:
        refusal = (
            f"a PNG of {width:,} x {height:,} pixels "
            f"(libpng takes at most {_LIBPNG_MAX_SIDE:,} per side)"
        )
    # The checksums of chunks are left to 'decode': they take 14 % of the CPU time of a build.
    whole = data.endswith(_IEND) or data.rfind(_IEND, 33) > 0
    return Header(
        ImageInfo("png", width, height, channels),
        "" if whole else "no IEND chunk at the end",
        zeroed(data, 33),
        refusal,
    )


def essential_png(data: bytes) -> bytes:
    """Return the file without its ancillary chunks: text, profiles, transparency, animation.

    They do not affect the colors, and libpng prints a line to stderr for each profile it dislikes,
    which are common. Chunk lengths are checked here, because OpenCV would allocate as much memory
    as a damaged length claims, up to 2 GB.

    Raises:
        ImageFault: A chunk reaches beyond the file, or the last one is missing.
    """
    essential = _of_chunks(data, lambda chunk: chunk.is_critical)
    if not essential:
        raise ImageFault(
            "the png image is cut short or has a damaged length: no end in "
            f"{counted(len(data), 'byte')}",
            "truncated",
        )
    return essential


def png_for_pillow(data: bytes) -> bytes:
    """Return the file without metadata that Pillow may fail on; a truncated file is unchanged."""

    def is_kept(chunk: PngChunk) -> bool:
        return chunk.kind in _KNOWN_CRITICAL or (
            chunk.kind in (b"tRNS", b"eXIf") and chunk.is_intact(data)
        )

    return _of_chunks(data, is_kept) or data


def check_png(data: bytes) -> None:
    """Check every byte that libpng would check; this inflates the pixels, without the GIL.

    Raises:
        ImageFault: TRUNCATED if the file ends early, CORRUPT for anything that libpng stops at.
    """
    header, chunks = png_header(data), list(png_chunks(data))
    for chunk in chunks:
        if not chunk.kind.isalpha() or (chunk.is_critical and chunk.kind not in _KNOWN_CRITICAL):
            raise ImageFault(f"the PNG has an unknown critical chunk, {chunk.kind!r}")
        if chunk.is_critical and not chunk.is_intact(data):
            raise ImageFault(f"the checksum of a PNG chunk ({chunk.kind.decode()}) is wrong")
    if chunks[-1].kind != b"IEND":
        raise ImageFault(
            f"the PNG ends after {counted(len(data), 'byte')} without an IEND chunk: "
            "fetch it again",
            "truncated",
        )
    kinds = [chunk.kind for chunk in chunks]
    if b"IDAT" not in kinds or (header.color == 3 and b"PLTE" not in kinds[: kinds.index(b"IDAT")]):
        raise ImageFault("the PNG has no pixels, or no palette for them")
    first = kinds.index(b"IDAT")
    # libpng ends the pixels at the first other chunk.
    last = next(number for number in range(first, len(kinds)) if kinds[number] != b"IDAT")
    _check_pixels(b"".join(chunk.body(data) for chunk in chunks[first:last]), header)


def _check_pixels(compressed: bytes, header: PngHeader) -> None:
    rows = list(_row_layout(header))
    expected = sum(stride * count for stride, count in rows)
    inflate = zlib.decompressobj()
    try:
        # At most what the header promises: a bomb of zeros must not be inflated into memory.
        raw = inflate.decompress(compressed, expected)
        # Extra rows are allowed if they inflate to the end: in pieces, as there may be gigabytes.
        while not inflate.eof and (tail := inflate.unconsumed_tail):
            inflate.decompress(tail, 1 << 20)
    except zlib.error as error:
        raise ImageFault(f"the pixels of the PNG do not inflate ({error})") from error
    if not inflate.eof:
        raise ImageFault("the compressed pixels of the PNG do not end")
    if len(raw) < expected:
        raise ImageFault(f"the PNG holds {len(raw):,} of {expected:,} bytes of pixels")
    pos = 0
    for stride, count in rows:
        # Each row begins with the number of its filter (PNG specification, section 9.2).
        if max(raw[pos : pos + stride * count : stride]) > 4:
            raise ImageFault("the PNG uses a row filter that does not exist")
        pos += stride * count


def _row_layout(header: PngHeader) -> Iterator[tuple[int, int]]:
    """Yield (bytes per row with its filter byte, rows) of each pass that has pixels."""
    bits = _SAMPLES[header.color] * header.depth
    for left, top, step_x, step_y in _ADAM7 if header.interlace else ((0, 0, 1, 1),):
        columns, rows = -(-(header.width - left) // step_x), -(-(header.height - top) // step_y)
        if columns > 0 and rows > 0:
            yield 1 + (columns * bits + 7) // 8, rows
