"""Decode JPEG with libjpeg-turbo (simplejpeg): TensorFlow's exact pixels, or similar ones faster.

`tf.io.decode_image` uses libjpeg's fast DCT and smooth ("fancy") color upsampling; with the same
settings simplejpeg returns the same pixels bit for bit. Every libjpeg warning is a fault, because a
truncated file would be gray from there on. Two warnings lose no pixel, and TensorFlow ignores them
too: stray bytes between segments or at the end, and an unknown JFIF revision.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import ImageFault
from shardwright.images.formats.jpeg import (
    APP0,
    APP14,
    END,
    FRAMES,
    SCAN,
    header_segments,
    jpeg_frame,
)
from shardwright.images.headers import check_size
from shardwright.images.libraries import cv2, simplejpeg

MAX_REDUCTION = 8
"""The largest reduction: libjpeg decodes at 1/2, 1/4 and 1/8 of the size for much less work."""

_STRAY_BYTES, _REVISION = "extraneous bytes before marker", "unknown JFIF revision"
_ODD_SAMPLING = "Could not determine subsampling"
# Each scan of a progressive file covers all pixels but may take a dozen bytes, so that a small file
# could take hours to decode.
_MAX_SCANS, _PIXELS_OF_A_SLOW_SCAN = 500, 1 << 20


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

    @property
    def max_reduction(self) -> int:
        return MAX_REDUCTION if self.space else 1


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
        header: The result of `read_jpeg_header`.
        fast: Repeat subsampled color instead of smoothing it.
        reduction: 1, 2, 4 or 8: divide height and width by this, rounding up.

    Returns:
        uint8 [height, width, 3], RGB.

    Raises:
        ImageFault: The pixels are damaged or truncated.
    """
    if not header.space:
        return _decode_odd(header.data)
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
    if height * width > _PIXELS_OF_A_SLOW_SCAN:
        # Those of thumbnails count, too. Inside of a scan, a zero byte follows each 0xFF of data.
        scans = bytes(data).count(b"\xff\xda")
        if scans > _MAX_SCANS:
            raise ImageFault(
                f"the jpeg image has {scans:,} scans, more than the maximum of {_MAX_SCANS}: "
                "re-encode it"
            )


def _repaired(data: bytes) -> bytes:
    """Return the file without stray bytes in its header, and with a JFIF revision libjpeg knows."""
    kept, end = [data[:2]], 2
    for marker, start, end in header_segments(data):
        body = data[start:end]
        if marker == APP0 and body[4:9] == b"JFIF\0":
            body = body[:9] + b"\1" + body[10:]
        kept.append(body)
    return b"".join((*kept, data[end:]))


def _has_end(data: bytes) -> bool:
    """Return whether an end-of-image marker, not a thumbnail's, follows the first scan."""
    scan = next((end for marker, _, end in header_segments(data) if marker == SCAN), len(data))
    return data.find(bytes((0xFF, END)), scan) >= 0


def _rgb_of_cmyk(cmyk: NDArray[np.uint8], data: bytes) -> NDArray[np.uint8]:
    """Convert CMYK as TensorFlow does: files by Adobe hold inverted ink."""
    adobe = any(
        marker == APP14 and data.startswith(b"Adobe", start + 4)
        for marker, start, _ in header_segments(data)
    )
    wide = (cmyk if adobe else ~cmyk).astype(np.uint16)
    return (wide[..., :3] * wide[..., 3:] // 255).astype(np.uint8)


def _read_odd(data: bytes) -> JpegHeader:
    """Read the header of a JPEG with other chroma subsampling than the six that turbojpeg knows."""
    starts = (start for marker, start, _ in header_segments(data) if marker in FRAMES)
    try:
        _, height, width, _ = jpeg_frame(data, next(starts, len(data)))
    except struct.error as error:
        raise ImageFault(
            "the jpeg image is damaged or cut short: it has no frame header"
        ) from error
    return JpegHeader(data, height, width, "")


def _decode_odd(data: bytes | memoryview) -> NDArray[np.uint8]:
    pixels = cv2().imdecode(
        np.frombuffer(data, np.uint8), cv2().IMREAD_COLOR_RGB | cv2().IMREAD_IGNORE_ORIENTATION
    )
    if pixels is None:
        raise ImageFault(
            "the jpeg image is damaged, cut short or of an unsupported kind (lossless, 12-bit)"
        )
    return pixels
