"""Parse image headers without a decoder: format, size and channels, and a check of the file's end.

These parsers exist because Pillow's Image.open holds the GIL 4 to 40 times as long, 10 times for a
JPEG (benchmarks/headers.py), which is the whole budget at thousands of images per second. None of
them scans the pixels in Python. tests/shardwright/images/test_decode.py compares with what
TensorFlow 2.21 rejects.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from shardwright.images.formats.bmp import (
    BITFIELDS,
    BmpHeader,
    bmp_header,
    has_bgr_masks,
    has_bmp_header,
)
from shardwright.images.formats.jpeg import (
    APP1,
    EXIF_START,
    FRAMES,
    SCAN,
    header_segments,
    jpeg_frame,
)
from shardwright.images.formats.kinds import image_format
from shardwright.images.formats.png import png_header
from shardwright.images.formats.webp import is_animated, riff_end, webp_pixels, webp_size
from shardwright.sizes import counted
from shardwright.transforms.images.gif import read_gif
from shardwright.transforms.images.kinds import (
    Header,
    ImageInfo,
    RejectedImage,
    fault_of_stranger,
    zeroed,
)
from shardwright.transforms.rejects import RejectReason

_JPEG_EOI = b"\xff\xd9"
_PNG_IEND = b"\0\0\0\0IEND\xae\x42\x60\x82"
_LIBJPEG_MAX_SIDE = 65_500  # JPEG_MAX_DIMENSION in jmorecfg.h
_LIBPNG_MAX_SIDE = 1_000_000  # PNG_USER_WIDTH_MAX in pnglibconf.h

_JPEG_FRAMES = FRAMES | {0xF7}  # of JPEG-LS
_JPEG_WANTED = _JPEG_FRAMES | {APP1}
# Huffman or arithmetic, sequential or progressive.
_JPEG_DECODABLE = frozenset((0xC0, 0xC1, 0xC2, 0xC9, 0xCA))
_NO_FRAME = ImageInfo("jpeg", 0, 0, 3)
# (color type, bit depth) -> channels. PNG specification, table 12: no other pair is allowed.
_PNG_CHANNELS = {
    **{(0, depth): 1 for depth in (1, 2, 4, 8, 16)},
    **{(3, depth): 3 for depth in (1, 2, 4, 8)},
    **{(kind, depth): channels for kind, channels in ((2, 3), (4, 2), (6, 4)) for depth in (8, 16)},
}
_GRAY_RAMP = bytes(range(256))


def read_header(data: bytes) -> Header:
    """Return the header of an image, by its content.

    Raises:
        RejectedImage: NOT_AN_IMAGE or UNSUPPORTED_FORMAT for another kind of file, TRUNCATED if the
            file ends inside its header, CORRUPT for an invalid header.
    """
    kind = true_format(data)
    if not kind:
        raise fault_of_stranger(data)
    try:
        return _PARSERS[kind](data)
    except (IndexError, ValueError, struct.error) as error:
        raise RejectedImage(
            RejectReason.TRUNCATED,
            f"the {kind} file ends early, after {counted(len(data), 'byte')}: fetch it again",
        ) from error


def true_format(data: bytes) -> str:
    """Return 'jpeg', 'png', 'gif', 'bmp' or 'webp' by the content, '' for anything else."""
    kind = image_format(data)
    return "" if kind == "bmp" and not has_bmp_header(data) else kind


def _jpeg(data: bytes) -> Header:
    info, refusal, marker, pos, exif, inks = _NO_FRAME, "", 0, 0, 0, False
    for marker, pos, _ in header_segments(data, _JPEG_WANTED):
        if marker in _JPEG_FRAMES:
            info, refusal, inks = _jpeg_frame(data, marker, pos)
        elif marker != APP1:
            break  # a scan or the end
        elif not exif and data.startswith(EXIF_START, pos + 4):
            exif = pos + 4
    else:
        raise IndexError("the segments lead beyond the end")
    if marker != SCAN or not info.width * info.height:
        return Header(info, odd="no scan, or no size before it", refusal=refusal, exif=exif)
    # Searched after the start of the scan only, because an EXIF thumbnail has an end marker too.
    # It need not be the last bytes: phones append data to it.
    whole = data.endswith(_JPEG_EOI) or data.rfind(_JPEG_EOI, pos) >= 0
    return Header(
        info, "" if whole else "no end-of-image marker after the scan", refusal, refusal, exif, inks
    )


def _jpeg_frame(data: bytes, marker: int, pos: int) -> tuple[ImageInfo, str, bool]:
    """Return the properties, why TensorFlow does not decode the image, and if it is in inks."""
    bits, height, width, components = jpeg_frame(data, pos)
    if bits != 8 or components not in (1, 3, 4):
        detail = (
            f"a JPEG of {components} x {bits} bits per pixel (1, 3 or 4 x 8 bits are supported): "
            "convert it first"
        )
        raise RejectedImage(RejectReason.UNSUPPORTED_FORMAT, detail)
    if width > _LIBJPEG_MAX_SIDE or height > _LIBJPEG_MAX_SIDE:
        detail = (
            f"a JPEG of {width:,} x {height:,} pixels "
            f"(libjpeg takes at most {_LIBJPEG_MAX_SIDE:,} per side): convert it first"
        )
        raise RejectedImage(RejectReason.UNSUPPORTED_FORMAT, detail)
    info = ImageInfo("jpeg", width, height, 1 if components == 1 else 3)
    refusal = ""
    if marker not in _JPEG_DECODABLE:
        refusal = f"a lossless or hierarchical JPEG (SOF{marker - 0xC0})"
    return info, refusal, components == 4


def _png(data: bytes) -> Header:
    kind, width, height, depth, color, compression, filters, interlace, is_intact = png_header(data)
    if kind == b"CgBI":
        detail = "an Xcode-optimized PNG (CgBI), which only Apple reads: use the original file"
        raise RejectedImage(RejectReason.UNSUPPORTED_FORMAT, detail)
    channels = _PNG_CHANNELS.get((color, depth), 0)
    valid = is_intact and kind == b"IHDR" and not compression and not filters and interlace <= 1
    if not (valid and channels and width and height):
        raise RejectedImage(RejectReason.CORRUPT, "the PNG header is damaged (checksum or values)")
    if color == 3:
        pixels = data.find(b"IDAT", 33)  # the end of IHDR, always the first chunk
        if data.find(b"PLTE", 33, pixels) < 0:
            raise RejectedImage(RejectReason.CORRUPT, "a PNG with a palette image, but no palette")
        channels += data.find(b"tRNS", 33, pixels) > 0
    refusal = ""
    if max(width, height) > _LIBPNG_MAX_SIDE:
        refusal = (
            f"a PNG of {width:,} x {height:,} pixels "
            f"(libpng takes at most {_LIBPNG_MAX_SIDE:,} per side)"
        )
    # The checksums of chunks are left to 'decode': they take 14 % of the CPU time of a build.
    whole = data.endswith(_PNG_IEND) or data.rfind(_PNG_IEND, 33) > 0
    return Header(
        ImageInfo("png", width, height, channels),
        "" if whole else "no IEND chunk at the end",
        zeroed(data, 33),
        refusal,
    )


def _webp(data: bytes) -> Header:
    width, height = webp_size(data)
    # Without its start code (RFC 6386, section 9.1) a lossy file has no pixels.
    if data[12:16] not in (b"VP8X", b"VP8L"):
        width *= data[12:16] == b"VP8 " and data[23:26] == b"\x9d\x01\x2a"
    pixels, alpha = webp_pixels(data)
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


def _bmp(data: bytes) -> Header:
    header = bmp_header(data)
    width, height, bits = header.width, header.height, header.bits
    if width <= 0 or not height or bits > 32:
        raise RejectedImage(
            RejectReason.CORRUPT, f"the BMP header says {width} x {height} pixels of {bits} bits"
        )
    num_bytes = header.pixels + (width * bits + 31) // 32 * 4 * abs(height)
    # Run lengths, or an embedded JPEG or PNG: only their total size is known.
    if header.compression not in (0, BITFIELDS, 6):
        num_bytes = int.from_bytes(data[2:6], "little")
        # A run of 255 pixels takes two bytes. Pillow would fill the rest in Python, for minutes.
        if width * abs(height) > 256 * len(data):
            raise RejectedImage(
                RejectReason.CORRUPT,
                f"a BMP of {counted(len(data), 'byte')} cannot fill {width} x {height} pixels",
            )
    gray = bits == 8 and _bmp_palette_is_gray(data, header)
    info = ImageInfo("bmp", width, abs(height), 1 if gray else 4 if bits == 32 else 3)
    refusal = _bmp_refusal(data, header, gray=gray)
    if not refusal and len(data) > num_bytes:
        refusal = f"a BMP with {counted(len(data) - num_bytes, 'byte')} after its pixels"
    return Header(info, "fewer bytes than it says" if len(data) < num_bytes else "", "", refusal)


def _bmp_refusal(data: bytes, header: BmpHeader, *, gray: bool) -> str:
    bits, compression = header.bits, header.compression
    plain = (compression == 0 and (bits in (24, 32) or gray)) or (
        compression == BITFIELDS and bits == 32 and has_bgr_masks(data)
    )
    if header.num_bytes >= 40 and plain:
        return ""
    if header.num_bytes < 40:
        return f"a BMP with a header of {header.num_bytes} bytes (40 or more are supported)"
    if bits <= 8 and compression == 0:
        return (
            f"a BMP of {bits} bits with a palette other than 256 grays (TensorFlow ignores "
            "palettes; --on palette=fix converts it)"
        )
    return (
        f"a BMP of {bits} bits with compression {compression} "
        "(gray, 24 or 32 bits in BGR order are supported)"
    )


def _bmp_palette_is_gray(data: bytes, header: BmpHeader) -> bool:
    """Return whether indices are gray values: TensorFlow ignores the palette."""
    palette = data[14 + header.num_bytes : header.pixels]
    return all(palette[channel::4] == _GRAY_RAMP for channel in range(3))


_PARSERS: dict[str, Callable[[bytes], Header]] = {
    "jpeg": _jpeg,
    "png": _png,
    "gif": read_gif,
    "webp": _webp,
    "bmp": _bmp,
}
