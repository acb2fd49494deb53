"""JPEG by libjpeg-turbo (simplejpeg), with the same pixels as `tf.io.decode_image`, or faster with nearly the same.

TensorFlow takes libjpeg's fast DCT and its smooth ("fancy") upsampling of colour; asked for these, simplejpeg gives its pixels bit for
bit. Every warning of libjpeg is a fault (a file that is cut short would be gray from there on), but for two that lose no pixel and
that TensorFlow overlooks as well: stray bytes between segments or at the end, and an unknown revision of JFIF.
Source of the format: ITU-T T.81, annex B.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import ImageFault
from shardwright.images.headers import check_size
from shardwright.images.libraries import cv2, simplejpeg

MAX_REDUCTION = 8
"""libjpeg decodes at 1/2, 1/4 and 1/8 of the size for a fraction of the work."""

_SOS, _EOI, _APP0, _ADOBE = 0xDA, 0xD9, 0xE0, 0xEE
_BARE = frozenset((0x01, *range(0xD0, 0xD9)))
_STRAY_BYTES, _REVISION = "extraneous bytes before marker", "unknown JFIF revision"
_ODD_SAMPLING = "Could not determine subsampling"
# Each scan of a progressive file runs over all pixels, and a scan may be a dozen bytes: a small file can take hours.
_MAX_SCANS, _PIXELS_OF_A_SLOW_SCAN = 500, 1 << 20


class JpegHeader(NamedTuple):
    """What the header of a JPEG tells.

    Attributes:
        data: The file, where need be repaired so that the decoder takes it.
        height: In pixels.
        width: In pixels.
        space: "YCbCr", "RGB", "Gray", "CMYK" or "YCCK"; "" for what simplejpeg cannot decode and OpenCV may.
    """

    data: bytes | memoryview
    height: int
    width: int
    space: str

    @property
    def max_reduction(self) -> int:
        return MAX_REDUCTION if self.space else 1


def read_jpeg_header(data: bytes | memoryview) -> JpegHeader:
    """Size and colours of a JPEG, without its pixels.

    Raises:
        ImageFault: The header is damaged, or the image too large.
    """
    simplejpeg()  # whether it is there is no question of the data
    try:
        header = _read(data)
    except ValueError as error:
        header = _read_unusual(bytes(data), error)
    check_size("jpeg", header.height, header.width)
    _check_scans(header)
    return header


def decode_jpeg(header: JpegHeader, *, fast: bool, reduction: int = 1) -> NDArray[np.uint8]:
    """The pixels, RGB.

    Args:
        header: As read.
        fast: Repeat colour where it is stored coarser than brightness, instead of smoothing it.
        reduction: 1, 2, 4 or 8: decode at this part of the size, rounded up.

    Returns:
        [height, width, 3].

    Raises:
        ImageFault: The pixels are damaged, or cut short.
    """
    if not header.space:
        return _decode_odd(header.data)
    options: dict[str, Any] = {"fastdct": True, "fastupsample": fast}
    if reduction > 1:  # simplejpeg takes the largest reduction that leaves this much
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
    height, width, space, _ = simplejpeg().decode_jpeg_header(data)
    return JpegHeader(data, height, width, space)


def _read_unusual(data: bytes, error: ValueError) -> JpegHeader:
    if _STRAY_BYTES in str(error) or _REVISION in str(error):
        data = _repaired(data)
        try:
            return _read(data)
        except ValueError as another:
            error = another
    if _ODD_SAMPLING in str(error):
        return _read_odd(data)
    raise _fault(error) from error


def _decode(data: bytes | memoryview, options: dict[str, Any]) -> NDArray[np.uint8]:
    decode = simplejpeg().decode_jpeg
    try:
        return decode(data, **options)
    except ValueError as error:
        if _STRAY_BYTES not in str(error) or not _has_end(bytes(data)):
            raise _fault(error) from error
    try:
        return decode(
            data, strict=False, **options
        )  # up to here, nothing was wrong with the pixels
    except ValueError as error:
        raise _fault(error) from error


def _fault(error: ValueError) -> ImageFault:
    return ImageFault(f"the jpeg image is damaged or cut short: {error}")


def _check_scans(header: JpegHeader) -> None:
    if header.height * header.width > _PIXELS_OF_A_SLOW_SCAN:
        scans = bytes(header.data).count(b"\xff\xda")
        if scans > _MAX_SCANS:
            raise ImageFault(
                f"a jpeg image of {scans:,} scans; up to {_MAX_SCANS} are decoded: encode it anew"
            )


class _Segment(NamedTuple):
    """One segment of a header, at bytes [start, end); of a scan only its header."""

    marker: int
    start: int
    end: int


def _segments(data: bytes) -> Iterator[_Segment]:
    """Segments up to the first scan, skipping stray bytes as libjpeg does."""
    pos = 2
    while 0 <= (pos := data.find(b"\xff", pos)) < len(data) - 3:
        marker = data[pos + 1]
        if marker in (0x00, 0xFF):  # a stray byte, or fill
            pos += 1
            continue
        end = (
            pos + 2 if marker in _BARE else pos + 2 + int.from_bytes(data[pos + 2 : pos + 4], "big")
        )
        yield _Segment(marker, pos, end)
        if marker == _SOS:
            return
        pos = end


def _repaired(data: bytes) -> bytes:
    """Without stray bytes between the segments of the header, and with a revision of JFIF that libjpeg knows."""
    kept, end = [data[:2]], 2
    for segment in _segments(data):
        body = data[segment.start : segment.end]
        if segment.marker == _APP0 and body[4:9] == b"JFIF\0":
            body = body[:9] + b"\1" + body[10:]
        kept.append(body)
        end = segment.end
    return b"".join((*kept, data[end:]))


def _has_end(data: bytes) -> bool:
    """The end-of-image marker is there, after the first scan began: not a thumbnail's."""
    scan = next((segment.end for segment in _segments(data) if segment.marker == _SOS), len(data))
    return data.find(bytes((0xFF, _EOI)), scan) >= 0


def _rgb_of_cmyk(cmyk: NDArray[np.uint8], data: bytes) -> NDArray[np.uint8]:
    """As TensorFlow converts: Adobe's files hold ink inverted."""
    adobe = any(
        segment.marker == _ADOBE and data[segment.start + 4 : segment.start + 9] == b"Adobe"
        for segment in _segments(data)
    )
    wide = (cmyk if adobe else ~cmyk).astype(np.uint16)
    return (wide[..., :3] * wide[..., 3:] // 255).astype(np.uint8)


def _read_odd(data: bytes) -> JpegHeader:
    """A JPEG that turbojpeg has no name for: other samplings of colour than the usual six."""
    for segment in _segments(data):
        if 0xC0 <= segment.marker <= 0xCF and segment.marker not in (0xC4, 0xC8, 0xCC):
            height, width = (
                int.from_bytes(data[segment.start + at : segment.start + at + 2], "big")
                for at in (5, 7)
            )
            return JpegHeader(data, height, width, "")
    raise ImageFault("the jpeg image is damaged or cut short: it has no frame header")


def _decode_odd(data: bytes | memoryview) -> NDArray[np.uint8]:
    pixels = cv2().imdecode(
        np.frombuffer(data, np.uint8), cv2().IMREAD_COLOR_RGB | cv2().IMREAD_IGNORE_ORIENTATION
    )
    if pixels is None:
        raise ImageFault(
            "the jpeg image is damaged, cut short, or of a kind that is not read (lossless, 12 bits)"
        )
    return pixels
