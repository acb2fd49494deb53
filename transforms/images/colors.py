"""Convert decoded images between Pillow's modes."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from shardwright.transforms.images.policy import PolicyFault

if TYPE_CHECKING:
    from PIL.Image import Image

_PNG_MODES = frozenset(("1", "L", "LA", "P", "RGB", "RGBA", "I;16"))
_PLAIN_MODES = frozenset(("L", "LA", "RGB", "RGBA"))


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
