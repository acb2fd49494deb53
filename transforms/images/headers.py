"""Parse image headers without a decoder: format, size and channels, and a check of the file's end.

These parsers exist because Pillow's Image.open holds the GIL 4 to 40 times as long, 10 times for a
JPEG (benchmarks/headers.py), which is the whole budget at thousands of images per second. None of
them scans the pixels in Python.

Sources: ITU-T T.81 annex B (JPEG), the PNG specification (W3C, 3rd edition), GIF89a (CompuServe
1990), RFC 9649 (WebP), BITMAPFILEHEADER to BITMAPV5HEADER in Microsoft's documentation (BMP).
tests/shardwright/images/test_decode.py compares with what TensorFlow 2.21 rejects.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator

from transforms.images.gif import read_gif
from transforms.images.kinds import Header, ImageFault, ImageInfo, fault_of_stranger
from transforms.rejects import RejectReason

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"

EXIF_START = b"Exif\0\0"

_JPEG_EOI = b"\xff\xd9"
_PNG_IEND = b"\0\0\0\0IEND\xae\x42\x60\x82"
_LIBJPEG_MAX_SIDE = 65_500  # JPEG_MAX_DIMENSION in jmorecfg.h
_LIBPNG_MAX_SIDE = 1_000_000  # PNG_USER_WIDTH_MAX in pnglibconf.h

# Marker -> step of the walk over a JPEG (T.81 table B.1); one table lookup per marker is fast.
_SEGMENT, _EXIF, _FRAME, _BARE, _FILL, _SCAN, _END = range(7)
_JPEG_STEP = bytearray(256)  # _SEGMENT: a length follows
_JPEG_STEP[0xE1] = _EXIF
for _code in (*range(0xC0, 0xC4), *range(0xC5, 0xC8), *range(0xC9, 0xCC), *range(0xCD, 0xD0), 0xF7):
    _JPEG_STEP[_code] = _FRAME
for _code in (0x00, 0x01, *range(0xD0, 0xD8)):
    _JPEG_STEP[_code] = _BARE
_JPEG_STEP[0xD8] = _JPEG_STEP[0xD9] = _END  # a second start: the walk has strayed into a thumbnail
_JPEG_STEP[0xDA], _JPEG_STEP[0xFF] = _SCAN, _FILL

# Huffman or arithmetic, sequential or progressive.
_JPEG_DECODABLE = frozenset((0xC0, 0xC1, 0xC2, 0xC9, 0xCA))
_NO_FRAME = ImageInfo("jpeg", 0, 0, 3)
# (color type, bit depth) -> channels. PNG specification, table 12: no other pair is allowed.
_PNG_CHANNELS = {
    **{(0, depth): 1 for depth in (1, 2, 4, 8, 16)},
    **{(3, depth): 3 for depth in (1, 2, 4, 8)},
    **{(kind, depth): channels for kind, channels in ((2, 3), (4, 2), (6, 4)) for depth in (8, 16)},
}
_WEBP_PIXELS = frozenset((b"VP8 ", b"VP8L", b"ANMF"))
_BMP_HEADER_SIZES = frozenset((12, 16, 40, 52, 56, 64, 108, 124))
_GRAY_RAMP = bytes(range(256))

_JPEG_FRAME = struct.Struct(">BHHB").unpack_from  # bits per sample, height, width, components
_PNG_HEADER = struct.Struct(">I4sIIBBBBBI").unpack_from  # length, 'IHDR', width, ..., CRC
_U16_PAIR = struct.Struct("<HH").unpack_from
_U16_QUAD = struct.Struct("<HHHH").unpack_from
_U32 = struct.Struct("<I").unpack_from


def read_header(data: bytes) -> Header:
    """Return the header of an image, by its content.

    Raises:
        ImageFault: NOT_AN_IMAGE or UNSUPPORTED_FORMAT for another kind of file, TRUNCATED if the
            file ends inside its header, CORRUPT for an invalid header.
    """
    kind = true_format(data)
    if not kind:
        raise fault_of_stranger(data)
    try:
        return _PARSERS[kind](data)
    except (IndexError, ValueError, struct.error) as error:
        raise ImageFault(
            RejectReason.TRUNCATED,
            f"the {kind} file ends early, after {len(data):,} bytes: fetch it again",
        ) from error


def true_format(data: bytes) -> str:
    """Return 'jpeg', 'png', 'gif', 'bmp' or 'webp' by the magic bytes, '' for anything else."""
    if data.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if data.startswith(PNG_MAGIC):
        return "png"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "webp"
    # Text may start with these two letters, so the size of the header must be valid, too.
    if data.startswith(b"BM") and (len(data) < 18 or _U32(data, 14)[0] in _BMP_HEADER_SIZES):
        return "bmp"
    return ""


def _jpeg(data: bytes) -> Header:
    pos, frame, info, refusal, exif = 2, 0, _NO_FRAME, "", 0
    while True:
        if data[pos] != 0xFF:
            pos = data.index(b"\xff", pos)  # decoders skip stray bytes between segments
        step = _JPEG_STEP[data[pos + 1]]
        if step <= _FRAME:
            if step == _FRAME:
                frame, (info, refusal) = pos, _jpeg_frame(data, pos)
            elif step == _EXIF and not exif and data.startswith(EXIF_START, pos + 4):
                exif = pos + 4
            pos += 2 + (data[pos + 2] << 8 | data[pos + 3])
        elif step >= _SCAN:
            break
        else:
            pos += 2 if step == _BARE else 1
    if step == _END or not info.width * info.height:
        return Header(info, odd="no scan, or no size before it", refusal=refusal, exif=exif)
    # Searched after the start of the scan only, because an EXIF thumbnail has an end marker too.
    # It need not be the last bytes: phones append data to it.
    whole = data.endswith(_JPEG_EOI) or data.rfind(_JPEG_EOI, pos) >= 0
    return Header(
        info,
        "" if whole else "no end-of-image marker after the scan",
        refusal,
        refusal,
        exif,
        data[frame + 9] == 4,
    )


def _jpeg_frame(data: bytes, pos: int) -> tuple[ImageInfo, str]:
    bits, height, width, components = _JPEG_FRAME(data, pos + 4)
    if bits != 8 or components not in (1, 3, 4):
        detail = (
            f"a JPEG of {components} x {bits} bits per pixel (1, 3 or 4 x 8 bits are supported): "
            "convert it first"
        )
        raise ImageFault(RejectReason.UNSUPPORTED_FORMAT, detail)
    if width > _LIBJPEG_MAX_SIDE or height > _LIBJPEG_MAX_SIDE:
        detail = (
            f"a JPEG of {width:,} x {height:,} pixels "
            f"(libjpeg takes at most {_LIBJPEG_MAX_SIDE:,} per side): convert it first"
        )
        raise ImageFault(RejectReason.UNSUPPORTED_FORMAT, detail)
    info = ImageInfo("jpeg", width, height, 1 if components == 1 else 3)
    if data[pos + 1] in _JPEG_DECODABLE:
        return info, ""
    return info, f"a lossless or hierarchical JPEG (SOF{data[pos + 1] - 0xC0})"


def _png(data: bytes) -> Header:
    length, kind, width, height, depth, color, method, filters, interlace, crc = _PNG_HEADER(
        data, 8
    )
    if kind == b"CgBI":
        detail = "an Xcode-optimized PNG (CgBI), which only Apple reads: use the original file"
        raise ImageFault(RejectReason.UNSUPPORTED_FORMAT, detail)
    channels = _PNG_CHANNELS.get((color, depth), 0)
    valid = length == 13 and kind == b"IHDR" and zlib.crc32(data[12:29]) == crc
    if not (valid and channels and width and height) or method or filters or interlace > 1:
        raise ImageFault(RejectReason.CORRUPT, "the PNG header is damaged (checksum or values)")
    if color == 3:
        pixels = data.find(b"IDAT", 33)
        if data.find(b"PLTE", 33, pixels) < 0:
            raise ImageFault(RejectReason.CORRUPT, "a PNG with a palette image, but no palette")
        channels += data.find(b"tRNS", 33, pixels) > 0
    refusal = ""
    if max(width, height) > _LIBPNG_MAX_SIDE:
        refusal = (
            f"a PNG of {width:,} x {height:,} pixels "
            f"(libpng takes at most {_LIBPNG_MAX_SIDE:,} per side)"
        )
    whole = data.endswith(_PNG_IEND) or data.rfind(_PNG_IEND, 33) > 0
    return Header(
        ImageInfo("png", width, height, channels),
        "" if whole else "no IEND chunk at the end",
        "",
        refusal,
    )


def _webp(data: bytes) -> Header:
    kind = data[12:16]
    if kind == b"VP8X":
        _ = data[29]  # raises for a short file, where the slices below would be short silently
        width, height = (
            int.from_bytes(data[start : start + 3], "little") + 1 for start in (24, 27)
        )
    elif kind == b"VP8L":
        bits = _U32(data, 21)[0]
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    else:
        width, height = (side & 0x3FFF for side in _U16_PAIR(data, 26))
        width *= kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a"
    pixels, alpha = _webp_pixels(data)
    refusal = ""
    if kind == b"VP8X" and data[20] & 2:
        refusal = (
            "an animated WebP (TensorFlow 2.21 crashes on some, with a double free; "
            "--on animation=fix stores the first frame)"
        )
    elif alpha:
        refusal = (
            "a WebP with alpha (decode_image with channels=3 rejects it; "
            "--on alpha=fix shows it on white)"
        )
    cut = "" if _U32(data, 4)[0] + 8 <= len(data) else "fewer bytes than it says"
    odd = "" if pixels and width * height else "no pixels"
    return Header(ImageInfo("webp", width, height, 3 + alpha), cut, odd, refusal)


def _webp_pixels(data: bytes) -> tuple[bytes, bool]:
    """Return the kind of the first chunk that holds pixels (b"" for none), and if there is alpha.

    As in libwebp's WebPGetFeatures, the bit in a VP8L bitstream overrides the VP8X chunk's flag.
    """
    kind, pos = data[12:16], 12
    alpha = kind == b"VP8X" and bool(data[20] & 0x10)
    while kind not in _WEBP_PIXELS:
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
    pos, stop = 12, min(len(data), 8 + _U32(data, 4)[0])
    while pos + 8 <= stop:
        end = pos + 8 + _U32(data, pos + 4)[0]
        if end > stop:
            return
        yield data[pos : pos + 4], pos, end
        pos = end + (end & 1)


def _bmp(data: bytes) -> Header:
    offset, header_size = struct.unpack_from("<II", data, 10)
    if header_size == 12:
        width, height, _, bits = _U16_QUAD(data, 18)
        compression = 0
    else:
        width, height, _, bits, compression = struct.unpack_from("<iiHHI", data, 18)
    if width <= 0 or not height or bits > 32:
        raise ImageFault(
            RejectReason.CORRUPT, f"the BMP header says {width} x {height} pixels of {bits} bits"
        )
    num_bytes = offset + (width * bits + 31) // 32 * 4 * abs(height)
    # Run lengths, or an embedded JPEG or PNG: only their total size is known.
    if compression not in (0, 3, 6):
        num_bytes = _U32(data, 2)[0]
        # Pillow would fill the missing pixels in Python, for minutes.
        if width * abs(height) > 256 * len(data):
            raise ImageFault(
                RejectReason.CORRUPT,
                f"a BMP of {len(data):,} bytes cannot fill {width} x {height} pixels",
            )
    gray = bits == 8 and _bmp_palette_is_gray(data, 14 + header_size, offset)
    info = ImageInfo("bmp", width, abs(height), 1 if gray else 4 if bits == 32 else 3)
    plain = (compression == 0 and (bits in (24, 32) or gray)) or (
        compression == 3 and _bmp_masks_are_bgr(data, bits)
    )
    refusal = ""
    if header_size < 40 or not plain:
        refusal = (
            f"a BMP of {bits} bits with compression {compression} "
            "(gray, 24 or 32 bits in BGR order are supported)"
        )
    elif len(data) > num_bytes:
        refusal = f"a BMP with {len(data) - num_bytes:,} bytes after its pixels"
    return Header(info, "fewer bytes than it says" if len(data) < num_bytes else "", "", refusal)


def _bmp_palette_is_gray(data: bytes, start: int, end: int) -> bool:
    """Return whether indices are gray values: TensorFlow ignores the palette."""
    palette = data[start:end]
    return all(palette[channel::4] == _GRAY_RAMP for channel in range(3))


def _bmp_masks_are_bgr(data: bytes, bits: int) -> bool:
    return bits == 32 and struct.unpack_from("<III", data, 54) == (0xFF0000, 0xFF00, 0xFF)


_PARSERS: dict[str, Callable[[bytes], Header]] = {
    "jpeg": _jpeg,
    "png": _png,
    "gif": read_gif,
    "webp": _webp,
    "bmp": _bmp,
}
