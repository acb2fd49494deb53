"""Read ICC color profiles (ICC.1) from each format, and convert pixels to sRGB."""

from __future__ import annotations

import functools
import zlib
from io import BytesIO
from typing import TYPE_CHECKING, Any

from shardwright.images.formats.jpeg import APP2, header_segments
from shardwright.images.formats.png import png_chunks, png_header
from shardwright.images.formats.webp import riff_chunks
from shardwright.transforms.images.kinds import Header

if TYPE_CHECKING:
    from PIL.Image import Image

JPEG_PROFILE = b"ICC_PROFILE\0"  # then number and count of the part, a byte each (ICC.1, annex B.4)
_MAX_PROFILE_BYTES = 16 << 20  # of a PNG's, which is compressed and may inflate to gigabytes
_SRGB_NAMES = (b"sRGB", "sRGB".encode("utf-16-be"))
_MODES = {b"GRAY": "L", b"RGB ": "RGB", b"CMYK": "CMYK"}
_SPACES = {"L": b"GRAY", "LA": b"GRAY", "RGB": b"RGB ", "RGBA": b"RGB ", "CMYK": b"CMYK"}


def profile_of(data: bytes, image_format: str) -> bytes:
    """Return the image's embedded ICC profile, b"" if there is none or it is damaged."""
    if image_format == "jpeg":
        profile = _of_jpeg(data)
    elif image_format == "png" and data.find(b"iCCP", 33, data.find(b"IDAT", 33)) > 0:
        profile = next(
            (
                _inflated(chunk.body(data))
                for chunk in png_chunks(data)
                if chunk.kind == b"iCCP" and chunk.is_intact(data)
            ),
            b"",
        )
    elif image_format == "webp":
        profile = next(
            (data[start + 8 : end] for kind, start, end in riff_chunks(data) if kind == b"ICCP"),
            b"",
        )
    else:
        profile = b""
    return profile if profile[36:40] == b"acsp" else b""


def needs_conversion(profile: bytes, space: bytes) -> bool:
    """Return whether a profile applies to colors of a space and, by its name, is not sRGB."""
    return (
        profile[16:20] == space
        and not any(name in profile for name in _SRGB_NAMES)
        and _opened(profile) is not None
    )


def space_of(data: bytes, header: Header) -> bytes:
    """Return the ICC.1 name of the color space; b"" for 16-bit gray, which is not converted."""
    if header.info.channels not in (1, 2):
        return b"CMYK" if header.inks else b"RGB "
    return b"" if header.info.format == "png" and png_header(data).depth == 16 else b"GRAY"


def fits(profile: bytes, mode: str) -> bool:
    """Return whether a profile describes pixels of this mode, and not CMYK that is RGB by now."""
    return profile[16:20] == _SPACES.get(mode)


def to_srgb(image: Image, profile: bytes) -> Image:
    """Return the image in sRGB, with perceptual intent (Pillow's default); alpha is kept.

    The image stays as it is if the profile does not describe its colors.
    """
    if image.mode not in _SPACES or not needs_conversion(profile, _SPACES[image.mode]):
        return image
    alpha = image.getchannel("A") if image.mode.endswith("A") else None
    colors = image.convert(image.mode[:-1]) if alpha else image
    converted: Any = _transform(profile, colors.mode).apply(colors)
    converted.info = {key: value for key, value in image.info.items() if key != "icc_profile"}
    converted = converted.convert("L") if colors.mode == "L" else converted
    if alpha is not None:
        converted.putalpha(alpha)
    return converted


@functools.lru_cache(maxsize=64)  # files of one camera share one
def _opened(profile: bytes) -> Any:
    """Return the opened profile, None if it is damaged or cannot produce colors."""
    from PIL import ImageCms

    try:
        opened = ImageCms.ImageCmsProfile(BytesIO(profile))
        ImageCms.buildTransform(opened, _srgb(), _MODES[profile[16:20]], "RGB")
    except (OSError, KeyError, ImageCms.PyCMSError):
        return None
    return opened


@functools.lru_cache(maxsize=64)
def _transform(profile: bytes, mode: str) -> Any:
    from PIL import ImageCms

    return ImageCms.buildTransform(_opened(profile), _srgb(), mode, "RGB")


@functools.cache
def _srgb() -> Any:
    from PIL import ImageCms

    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))


def _of_jpeg(data: bytes) -> bytes:
    parts = {}
    for marker, start, end in header_segments(data):
        if marker == APP2 and data.startswith(JPEG_PROFILE, start + 4) and end - start > 18:
            parts[data[start + 16]] = data[start + 18 : end]
    return b"".join(parts[number] for number in sorted(parts))


def _inflated(body: bytes) -> bytes:
    """Return the profile of an iCCP chunk: a name, a zero byte, the method, the profile."""
    name, _, rest = body.partition(b"\0")
    try:
        return zlib.decompressobj().decompress(rest[1:], _MAX_PROFILE_BYTES) if name else b""
    except zlib.error:
        return b""
