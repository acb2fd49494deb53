"""Walk the segments of a JPEG (ITU-T T.81, annex B), and decode it with libjpeg-turbo (simplejpeg).

The pixels are exactly TensorFlow's, or similar ones faster. `tf.io.decode_image` uses libjpeg's
fast DCT and smooth ("fancy") color upsampling; with the same settings simplejpeg returns the same
pixels bit for bit. Every libjpeg warning is a fault, because a truncated file would be gray from
there on. Two warnings lose no pixel, and TensorFlow ignores them too: stray bytes between segments
or at the end, and an unknown JFIF revision.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Container, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import ImageFault
from shardwright.images.kinds import Header, ImageInfo, check_size
from shardwright.images.libraries import simplejpeg

START, END, SCAN = 0xD8, 0xD9, 0xDA
APP0, APP1, APP2, APP14 = 0xE0, 0xE1, 0xE2, 0xEE
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
EXIF_START = b"Exif\0\0"

# Colors depend on two application segments, JFIF's 0xE0 and Adobe's 0xEE. The others and comments
# are metadata.
METADATA = frozenset((*range(0xE1, 0xEE), 0xEF, 0xFE))

_BARE = frozenset((0x00, 0x01, 0xFF, *range(0xD0, 0xD8)))  # stuffing, fill bytes and restarts
_LONG = frozenset(range(256)) - _BARE - {START, END, SCAN}
# In entropy-coded data 0xFF is followed by 0x00 or is a restart marker (T.81, B.1.1.5).
_next_marker = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]").search
_FRAME = struct.Struct(">BHHB").unpack_from
_ALL_FRAMES = FRAMES | {0xF7}  # of JPEG-LS
_WANTED = _ALL_FRAMES | {APP1}
# Huffman or arithmetic, sequential or progressive.
_SEQUENTIAL = frozenset((0xC0, 0xC1, 0xC9))
_DECODABLE = _SEQUENTIAL | {0xC2, 0xCA}
_EOI = bytes((0xFF, END))
MAX_JPEG_SIDE = 65_500  # JPEG_MAX_DIMENSION in jmorecfg.h of libjpeg
MAX_REDUCTION = 8
"""The largest reduction: libjpeg decodes at 1/2, 1/4 and 1/8 of the size for much less work."""

_STRAY_BYTES, _REVISION = "extraneous bytes before marker", "unknown JFIF revision"
# Of an interval that damage has ended early: the rest of its pixels is gray.
_before_restart = re.compile(f"{_STRAY_BYTES} 0xd[0-7]").search
_ODD_SAMPLING = "Could not determine subsampling"
# Each scan of a progressive file covers all pixels but may take a dozen bytes, so that a small file
# could take hours to decode.
_MAX_SCANS, _PIXELS_OF_A_SLOW_SCAN = 500, 1 << 20


def header_segments(
    data: bytes, wanted: Container[int] = _LONG, pos: int = 2
) -> list[tuple[int, int, int]]:
    """Return (marker, start, end) of each segment from `pos` up to the header of the next scan.

    The last is the scan, an end marker, or a second start marker, which decoders reject, unless
    the data ends before.

    Args:
        data: The whole file.
        wanted: Markers of the segments to return besides the last one.
        pos: Where to start.
    """
    found = []
    try:
        while True:
            marker = data[pos + 1]
            if marker in _LONG and data[pos] == 0xFF:
                # The length counts its own two bytes, but not the marker's.
                end = pos + 2 + (data[pos + 2] << 8 | data[pos + 3])
                if marker in wanted:
                    found.append((marker, pos, end))
                pos = end
            elif data[pos] != 0xFF or marker in _BARE:
                pos = data.index(b"\xff", pos + 1)  # decoders skip stray bytes
            else:
                length = int.from_bytes(data[pos + 2 : pos + 4], "big") if marker == SCAN else 0
                found.append((marker, pos, pos + 2 + length))
                return found
    except (IndexError, ValueError):
        return found


def jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield (marker, start, end) of all segments as `header_segments`; of scans, only headers."""
    pos = 2
    while segments := header_segments(data, pos=pos):
        yield from segments
        marker, _, end = segments[-1]
        # Behind a scan's header there is entropy-coded data without a length: the next marker is
        # searched.
        following = _next_marker(data, end) if marker == SCAN else None
        if not following:
            return
        pos = following.start()


def jpeg_frame(data: bytes, start: int) -> tuple[int, int, int, int]:
    """Return bits per sample, height, width and number of components of a frame header."""
    return _FRAME(data, start + 4)


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


def read_jpeg(data: bytes) -> Header:
    """Return what a build must know of a JPEG. Raises as `read_header`."""
    info, refusal, inks = ImageInfo("jpeg", 0, 0, 3), "", False
    marker = pos = exif = 0
    for marker, pos, _ in header_segments(data, _WANTED):
        if marker in _ALL_FRAMES:
            info, refusal, inks = _frame_info(data, marker, pos)
        elif marker != APP1:
            break  # a scan or the end
        # The first one; APP1 also holds XMP.
        elif not exif and data.startswith(EXIF_START, pos + 4):
            exif = pos + 4
    else:
        raise IndexError("the segments lead beyond the end")
    if marker != SCAN or not info.width * info.height:
        return Header(info, odd="no scan, or no size before it", refusal=refusal, exif=exif)
    # Searched after the start of the scan only, because an EXIF thumbnail has an end marker too.
    # It need not be the last bytes: phones append data to it.
    whole = data.endswith(_EOI) or data.rfind(_EOI, pos) >= 0
    return Header(
        info, "" if whole else "no end-of-image marker after the scan", refusal, refusal, exif, inks
    )


def _frame_info(data: bytes, marker: int, pos: int) -> tuple[ImageInfo, str, bool]:
    """Return the properties, why TensorFlow does not decode the image, and if it is in inks."""
    bits, height, width, components = jpeg_frame(data, pos)
    if bits != 8 or components not in (1, 3, 4):
        detail = (
            f"a JPEG of {components} x {bits} bits per pixel (1, 3 or 4 x 8 bits are supported): "
            "convert it first"
        )
        raise ImageFault(detail, "unsupported_format")
    if width > MAX_JPEG_SIDE or height > MAX_JPEG_SIDE:
        detail = (
            f"a JPEG of {width:,} x {height:,} pixels "
            f"(libjpeg takes at most {MAX_JPEG_SIDE:,} per side): convert it first"
        )
        raise ImageFault(detail, "unsupported_format")
    info = ImageInfo("jpeg", width, height, 1 if components == 1 else 3)
    refusal = ""
    if marker not in _DECODABLE:
        refusal = f"a lossless or hierarchical JPEG (SOF{marker - 0xC0})"
    return info, refusal, components == 4


def check_jpeg(data: bytes) -> None:
    """Follow the segments to the end of the image; takes about 1 microsecond per KB.

    Pillow stops reading once it has its rows. TensorFlow's libjpeg reads on to the end, and fails
    if a flipped byte in a scan looks like a segment that reaches beyond the file.

    Raises:
        ImageFault: CORRUPT if the segments do not lead to an end marker.
    """
    if not any(marker == END for marker, _, _ in jpeg_segments(data)):
        raise ImageFault("the segments of the JPEG lead beyond its end: a scan is damaged")


class JpegHeader(NamedTuple):
    """The header of a JPEG.

    Attributes:
        data: The file, repaired if the decoder would reject it.
        height: In pixels.
        width: In pixels.
        space: "YCbCr", "RGB", "Gray", "CMYK" or "YCCK"; "" if simplejpeg cannot decode the file
            and OpenCV may.
    """

    data: bytes | memoryview
    height: int
    width: int
    space: str


def read_jpeg_header(data: bytes | memoryview) -> JpegHeader:
    """Read the size and color space of a JPEG.

    Raises:
        ImageFault: The header is damaged, or the image is too large.
    """
    simplejpeg()  # outside `try`: a missing library is not a fault of the image
    try:
        header = _read(data)
    except ValueError as error:
        header = _read_unusual(bytes(data), error)
    check_size("jpeg", header.height, header.width)
    check_scans(header.data, header.height, header.width)
    return header


def decode_jpeg(header: JpegHeader, *, fast: bool, reduction: int = 1) -> NDArray[np.uint8]:
    """Decode the pixels.

    Args:
        header: The result of `read_jpeg_header`, with a space.
        fast: Repeat subsampled color instead of smoothing it.
        reduction: 1, 2, 4 or 8: divide height and width by this, rounding up.

    Returns:
        uint8 [height, width, 3], RGB.

    Raises:
        ImageFault: The pixels are damaged or truncated.
    """
    options: dict[str, Any] = {"fastdct": True, "fastupsample": fast}
    if reduction > 1:  # simplejpeg takes the largest reduction that keeps this size
        least = {
            "min_height": -(-header.height // reduction),
            "min_width": -(-header.width // reduction),
        }
        options.update(least, min_factor=reduction)
    if header.space in ("CMYK", "YCCK"):
        return _rgb_of_cmyk(
            _decode(header.data, {**options, "colorspace": "CMYK"}), bytes(header.data)
        )
    return _decode(header.data, {**options, "colorspace": "RGB"})


def _read(data: bytes | memoryview) -> JpegHeader:
    try:
        height, width, space, _ = simplejpeg().decode_jpeg_header(data)
    except KeyError as error:  # of 4:4:1, which turbojpeg knows and simplejpeg 1.9 does not
        raise ValueError(_ODD_SAMPLING) from error
    return JpegHeader(data, height, width, space)


def _read_unusual(data: bytes, error: ValueError) -> JpegHeader:
    if _STRAY_BYTES in str(error) or _REVISION in str(error):
        data = _repaired(data)
        try:
            return _read(data)
        except ValueError as another:
            error = another
    if _ODD_SAMPLING not in str(error):
        raise _fault(error) from error
    try:
        info = read_jpeg(data).info  # other chroma subsampling than the six that turbojpeg knows
    except (IndexError, struct.error) as cut:
        raise ImageFault("the jpeg image is damaged or cut short, in its header") from cut
    return JpegHeader(data, info.height, info.width, "")


def _decode(data: bytes | memoryview, options: dict[str, Any]) -> NDArray[np.uint8]:
    decode = simplejpeg().decode_jpeg
    try:
        return decode(data, **options)
    except ValueError as error:
        # libjpeg's first warning is raised as the error: of a damaged scan it would be another one.
        lost = _STRAY_BYTES not in str(error) or _before_restart(str(error))
        whole = bytes(data)
        # An end marker behind the first scan, not that of a thumbnail.
        scan = next(
            (end for marker, _, end in header_segments(whole) if marker == SCAN), len(whole)
        )
        if lost or whole.find(_EOI, scan) < 0:
            raise _fault(error) from error
    try:
        # The first warning was of stray bytes at the end: no pixel before them was damaged.
        return decode(data, strict=False, **options)
    except ValueError as error:
        raise _fault(error) from error


def _fault(error: ValueError) -> ImageFault:
    return ImageFault(f"the jpeg image is damaged or cut short: {error}")


def check_scans(data: bytes | memoryview, height: int, width: int) -> None:
    """Check that a JPEG does not take hours to decode.

    Raises:
        ImageFault: The image is large and has too many scans.
    """
    if height * width > _PIXELS_OF_A_SLOW_SCAN and not _has_one_scan(data):
        # Those of thumbnails count, too. Inside of a scan, a zero byte follows each 0xFF of data.
        scans = bytes(data).count(b"\xff\xda")
        if scans > _MAX_SCANS:
            raise ImageFault(
                f"the jpeg image has {scans:,} scans, more than the maximum of {_MAX_SCANS}: "
                "re-encode it",
                "unsupported_format",
            )


def _has_one_scan(data: bytes | memoryview) -> bool:
    """Return whether the first scan has all components, so that libjpeg refuses any other.

    To look for the others takes a twelfth of the time of decoding.
    """
    segments = header_segments(bytes(data), FRAMES)
    if len(segments) != 2:
        return False
    (marker, frame, _), (end, scan, _) = segments
    # Compares the numbers of components.
    same = data[frame + 9 : frame + 10] == data[scan + 4 : scan + 5]
    return marker in _SEQUENTIAL and end == SCAN and same


def _repaired(data: bytes) -> bytes:
    """Return the file without stray bytes in its header, and with a JFIF revision libjpeg knows."""
    kept, end = [data[:2]], 2
    for marker, start, end in header_segments(data):
        body = data[start:end]
        if marker == APP0 and body[4:9] == b"JFIF\0":
            body = body[:9] + b"\1" + body[10:]
        kept.append(body)
    return b"".join((*kept, data[end:]))


def _rgb_of_cmyk(cmyk: NDArray[np.uint8], data: bytes) -> NDArray[np.uint8]:
    """Convert CMYK as TensorFlow does: files by Adobe hold inverted ink."""
    adobe = any(
        marker == APP14 and data.startswith(b"Adobe", start + 4)
        for marker, start, _ in header_segments(data)
    )
    # 16 bits: the product of two levels does not fit into 8.
    wide = (cmyk if adobe else ~cmyk).astype(np.uint16)
    return (wide[..., :3] * wide[..., 3:] // 255).astype(np.uint8)
