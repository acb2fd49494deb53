"""Find an image's faults under the policy from its bytes, without decoding it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from shardwright.images.formats.bmp import bmp_header
from shardwright.images.formats.gif import GRAPHIC_CONTROL, IMAGE, gif_blocks
from shardwright.images.formats.png import png_header
from shardwright.images.formats.webp import is_animated
from shardwright.transforms.images.exif import orientation_of
from shardwright.transforms.images.kinds import Header
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.policy import ImagePolicy, PolicyFault

_EXTENSIONS = {
    **dict.fromkeys(("jpg", "jpeg", "jpe", "jfif"), "jpeg"),
    **dict.fromkeys(("png", "apng"), "png"),
    **dict.fromkeys(("bmp", "dib"), "bmp"),
    **dict.fromkeys(("tif", "tiff"), "tiff"),
    **dict.fromkeys(("heic", "heif"), "heic"),
    **{name: name for name in ("gif", "webp", "avif", "jp2", "j2k", "ico", "psd", "svg")},
}


class Look(NamedTuple):
    """One image, as the tests for faults need it."""

    data: bytes
    header: Header
    name: str
    policy: ImagePolicy


def find_faults(
    data: bytes, header: Header, name: str, options: EncodeOptions
) -> dict[PolicyFault, str]:
    """Return the faults that `options` watches for, each with what was found.

    Args:
        name: The image's name, for its extension; "" for none.
    """
    look = Look(data, header, name, options.policy)
    found = ((fault, _TESTS[fault](look)) for fault in options.watched)
    return {fault: text for fault, text in found if text}


def named_format(name: str) -> str:
    """Return the format that a name's extension stands for, "" if unknown."""
    return _EXTENSIONS.get(name.rpartition(".")[2].lower(), "") if "." in name else ""


def _exif(look: Look) -> str:
    orientation = orientation_of(look.data, look.header)
    return "" if orientation == 1 else f"EXIF orientation {orientation}"


def _cmyk(look: Look) -> str:
    return "a JPEG of four inks" if look.header.inks else ""


def _deep(look: Look) -> str:
    is_deep = look.header.info.format == "png" and png_header(look.data).depth == 16
    return "16 bits a sample" if is_deep else ""


def _palette(look: Look) -> str:
    data, info = look.data, look.header.info
    if info.format == "png":
        return "a palette" if png_header(data).color == 3 else ""
    if info.format != "bmp":  # a GIF always has one
        return ""
    # A BMP of gray needs none.
    return "a palette" if bmp_header(data).bits <= 8 and info.channels == 3 else ""


def _alpha(look: Look) -> str:
    data, info = look.data, look.header.info
    if info.channels in (2, 4):
        return "an alpha channel"
    if info.format == "png":
        return "a transparent color" if data.find(b"tRNS", 33, data.find(b"IDAT", 33)) > 0 else ""
    return "a transparent color" if info.format == "gif" and _gif_is_transparent(data) else ""


def _gif_is_transparent(data: bytes) -> bool:
    """Return whether the first frame is transparent; its graphic control extension precedes it."""
    for start, end in _gif_blocks(data):
        if data[start] == IMAGE:
            return False
        if data[start + 1] == GRAPHIC_CONTROL and end > start + 3 and data[start + 3] & 1:
            return True
    return False


def _grayscale(look: Look) -> str:
    return "gray" if look.header.info.channels in (1, 2) else ""


def _animation(look: Look) -> str:
    data, image_format = look.data, look.header.info.format
    if image_format == "gif":
        frames = sum(data[start] == IMAGE for start, _ in _gif_blocks(data))
        return f"{frames} frames" if frames > 1 else ""
    if image_format == "webp":
        return "an animation" if is_animated(data) else ""
    return (
        "an animation"
        if image_format == "png" and data.find(b"acTL", 33, data.find(b"IDAT", 33)) > 0
        else ""
    )


def _bomb(look: Look) -> str:
    info, limit = look.header.info, look.policy.max_pixels
    return (
        f"{info.width:,} x {info.height:,} pixels, above the limit of {limit:,}"
        if info.width * info.height > limit
        else ""
    )


def _aspect(look: Look) -> str:
    info, limit = look.header.info, look.policy.max_aspect or 1
    sides = sorted((info.width, info.height))
    return (
        f"{info.width:,} x {info.height:,} pixels, an aspect ratio above {limit:g}"
        if sides[1] > limit * sides[0]
        else ""
    )


def _small(look: Look) -> str:
    info, limit = look.header.info, look.policy.min_side or 1
    return (
        f"{info.width:,} x {info.height:,} pixels, a side below {limit:,}"
        if min(info.width, info.height) < limit
        else ""
    )


def _extension(look: Look) -> str:
    said, found = named_format(look.name), look.header.info.format
    return f"the name says {said}, the content is {found}" if said and said != found else ""


def _gif_blocks(data: bytes) -> list[tuple[int, int]]:
    """Return the blocks up to any damage, which the check of the pixels reports."""
    blocks = []
    try:
        for block in gif_blocks(data):
            blocks.append(block)
    except (IndexError, ValueError):
        pass
    return blocks


_TESTS: Mapping[PolicyFault, Callable[[Look], str]] = {
    PolicyFault.EXIF: _exif,
    PolicyFault.CMYK: _cmyk,
    PolicyFault.DEEP: _deep,
    PolicyFault.PALETTE: _palette,
    PolicyFault.ALPHA: _alpha,
    PolicyFault.GRAYSCALE: _grayscale,
    PolicyFault.ANIMATION: _animation,
    PolicyFault.BOMB: _bomb,
    PolicyFault.ASPECT: _aspect,
    PolicyFault.SMALL: _small,
    PolicyFault.EXTENSION: _extension,
}
