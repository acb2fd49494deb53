"""Convert decoded images between Pillow's modes, and to sRGB by their ICC profiles (ICC.1)."""

from __future__ import annotations

import functools
from collections.abc import Collection
from io import BytesIO
from typing import TYPE_CHECKING, Any

from shardwright.images.kinds import Header
from shardwright.images.png import png_header
from shardwright.transforms.images.policy import PolicyFault

if TYPE_CHECKING:
    from PIL.Image import Image

_PNG_MODES = frozenset(("1", "L", "LA", "P", "RGB", "RGBA", "I;16"))
_PLAIN_MODES = frozenset(("L", "LA", "RGB", "RGBA"))
_SRGB_NAMES = (b"sRGB", "sRGB".encode("utf-16-be"))
_MODES = {b"GRAY": "L", b"RGB ": "RGB", b"CMYK": "CMYK"}
_SPACES = {"L": b"GRAY", "LA": b"GRAY", "RGB": b"RGB ", "RGBA": b"RGB ", "CMYK": b"CMYK"}


def plain(image: Image) -> Image:
    """Return the image as gray or RGB, with alpha or 16-bit gray: modes whose pixels can blend."""
    if image.mode == "I;16" or (image.mode in _PLAIN_MODES and "transparency" not in image.info):
        return image
    if image.has_transparency_data:
        return image.convert("RGBA")
    return image.convert("L" if image.mode == "1" else "RGB")


def for_png(image: Image, fixes: Collection[str], *, grayscale: bool) -> Image:
    """Return the image in a mode that PNG can hold, lossless except for the fixes."""
    if PolicyFault.ALPHA in fixes and image.has_transparency_data and image.mode != "I;16":
        image = on_white(image, gray=image.mode in ("L", "LA"))
    if PolicyFault.DEEP in fixes and image.mode == "I;16":
        image = eight_bits(image)
    if image.mode not in _PNG_MODES or (PolicyFault.PALETTE in fixes and image.mode == "P"):
        image = plain(image)
    if grayscale and image.mode != "I;16":
        return in_mode(image, "L")
    if PolicyFault.GRAYSCALE in fixes and image.mode in ("1", "L", "LA", "I;16"):
        image = plain(eight_bits(image))
        return in_mode(image, "RGBA" if image.mode in ("LA", "RGBA") else "RGB")
    return image


def opaque(image: Image) -> Image:
    """Return the image as 8-bit gray (L) or RGB, with transparent areas white, as in a browser.

    16-bit gray keeps its high byte, as in TensorFlow's decoders.
    """
    if image.mode == "I;16":
        return eight_bits(image)
    if image.has_transparency_data:
        return on_white(image, gray=False)
    return in_mode(image, "L" if image.mode in ("1", "L") else "RGB")


def in_mode(image: Image, mode: str) -> Image:
    """Return the image in a mode, uncopied if it has it: Pillow's `convert` always copies."""
    return image if image.mode == mode else image.convert(mode)


def on_white(image: Image, *, gray: bool) -> Image:
    """Return the image without alpha, on white: L or RGB."""
    from PIL import Image as Pil

    mode = "L" if gray else "RGB"
    # Pillow has no direct way from each mode with transparency to this one.
    if image.mode != mode + "A":
        image = image.convert("RGBA").convert(mode + "A")
    page = Pil.new(mode, image.size, "white")
    page.paste(image.convert(mode) if gray else image, mask=image.getchannel("A"))
    return page


def eight_bits(image: Image) -> Image:
    """Return the high bytes of 16-bit gray, and other images unchanged."""
    from PIL import Image as Pil

    if image.mode != "I;16":
        return image
    return Pil.frombytes("L", image.size, image.tobytes()[1::2])  # little-endian in memory


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
    # A profile is of colors: lcms would not take the alpha channel.
    alpha = image.getchannel("A") if image.mode.endswith("A") else None
    colors = image.convert(image.mode[:-1]) if alpha else image
    converted: Any = _transform(profile, colors.mode).apply(colors)
    # The pixels no longer are of that profile, and a viewer would apply it again.
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
