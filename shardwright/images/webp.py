"""Parse the header and the chunks of a WebP. Format: RFC 9649."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from shardwright.images.kinds import Header, ImageInfo

_PIXELS = frozenset((b"VP8 ", b"VP8L", b"ANMF"))
_HAS_ALPHA, _IS_ANIMATED = 0x10, 0x02  # flags of VP8X

_U16_PAIR = struct.Struct("<HH").unpack_from
_U32 = struct.Struct("<I").unpack_from


def webp_size(data: bytes) -> tuple[int, int]:
    """Return (width, height) of the canvas."""
    kind = data[12:16]
    if kind == b"VP8X":
        _ = data[29]  # raises for a short file, where the slices below would be short silently
        width, height = (
            int.from_bytes(data[start : start + 3], "little") + 1 for start in (24, 27)
        )
        return width, height
    if kind == b"VP8L":
        bits = _U32(data, 21)[0]
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = _U16_PAIR(data, 26)
    return width & 0x3FFF, height & 0x3FFF


def is_animated(data: bytes) -> bool:
    """Return whether the header says that the file is an animation."""
    return data[12:16] == b"VP8X" and bool(data[20] & _IS_ANIMATED)


def read_webp(data: bytes) -> Header:
    """Return what a build must know of a WebP. Raises as `read_header`."""
    width, height = webp_size(data)
    # Without its start code (RFC 6386, section 9.1) a lossy file has no pixels.
    if data[12:16] not in (b"VP8X", b"VP8L"):
        width *= data[12:16] == b"VP8 " and data[23:26] == b"\x9d\x01\x2a"
    pixels, alpha = _pixels(data)
    refusal = ""
    if is_animated(data):
        refusal = (
            "an animated WebP (TensorFlow 2.21 crashes on some, with a double free; "
            "--on animation=fix stores the first frame)"
        )
    elif alpha:
        refusal = (
            "a WebP with alpha (decode_image with channels=3 rejects it; "
            "--on alpha=fix shows it on white)"
        )
    cut = "" if riff_end(data) <= len(data) else "fewer bytes than it says"
    odd = "" if pixels and width * height else "no pixels"
    return Header(ImageInfo("webp", width, height, 3 + alpha), cut, odd, refusal)


def _pixels(data: bytes) -> tuple[bytes, bool]:
    """Return the kind of the first chunk that holds pixels (b"" for none), and if there is alpha.

    As in libwebp's WebPGetFeatures, the bit in a VP8L bitstream overrides the VP8X chunk's flag.
    """
    kind, pos = data[12:16], 12
    alpha = kind == b"VP8X" and bool(data[20] & _HAS_ALPHA)
    while kind not in _PIXELS:
        # No pixels in any chunk; a damaged length ends the walk in the same way.
        if pos >= len(data):
            return b"", alpha
        alpha |= kind == b"ALPH"
        pos += 8 + (_U32(data, pos + 4)[0] + 1 & ~1)  # chunks are padded to an even size
        kind = data[pos : pos + 4]
    return kind, bool(data[pos + 12] & 0x10) if kind == b"VP8L" else alpha


def riff_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield (kind, start, end) of each whole chunk of a WebP, within the length in its header.

    `end` excludes the padding of odd chunks to an even size.
    """
    pos, stop = 12, min(len(data), riff_end(data))
    while pos + 8 <= stop:
        end = pos + 8 + _U32(data, pos + 4)[0]
        if end > stop:
            return
        yield data[pos : pos + 4], pos, end
        pos = end + (end & 1)


def riff_end(data: bytes) -> int:
    """Return where the file ends according to its header."""
    return 8 + _U32(data, 4)[0]
