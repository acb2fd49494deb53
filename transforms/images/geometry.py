"""Plan the crop, scaled size and canvas of an image or mask, in numbers, and apply them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.policy import Action, ImagePolicy, PolicyFault

if TYPE_CHECKING:
    from PIL.Image import Image

Size = tuple[int, int]  # width, height
Box = tuple[float, float, float, float]  # left, top, right, bottom
SIDEWAYS = 5  # the least orientation of an image that lies on its side


class Geometry(NamedTuple):
    """The crop, scaled size and canvas of an upright image, each (width, height) in pixels.

    Attributes:
        crop: The part in the middle that is taken; whole numbers if nothing is scaled.
        scaled: The size of that part in the result.
        canvas: The size of the result, with that part in its middle.
    """

    crop: tuple[float, float]
    scaled: Size
    canvas: Size

    def turned(self) -> Geometry:
        """Return the same for an image that lies on its side."""
        return Geometry(self.crop[::-1], self.scaled[::-1], self.canvas[::-1])

    def box(self, size: Size, source: Size) -> Box:
        """Return the crop's rectangle in an image of `size` pixels, a scaled `source`."""
        sides = [
            (min(now, crop * now / whole), now)
            for crop, now, whole in zip(self.crop, size, source, strict=True)
        ]
        (width, full_width), (height, full_height) = sides
        left, top = (full_width - width) / 2, (full_height - height) / 2
        return (left, top, left + width, top + height)

    def needed(self, source: Size) -> Size:
        """Return the smallest size to decode at: twice the result, to hide coarse scaling."""
        width, height = (
            math.ceil(2 * to * whole / crop)
            for to, crop, whole in zip(self.scaled, self.crop, source, strict=True)
        )
        return (width, height)


def may_show_all_of(size: Sequence[float], original: Sequence[float]) -> bool:
    """Return whether an image of a size may show all of one of the original size.

    It was then scaled, with each side rounded to a pixel, or stretched to a square, as the images
    of many training sets are.
    """
    (height, width), (old_height, old_width) = size, original
    return height == width or max((height - 1) / old_height, (width - 1) / old_width) < min(
        (height + 1) / old_height, (width + 1) / old_width
    )


def plan_geometry(size: Size, options: EncodeOptions) -> Geometry:
    """Return the geometry of an upright image of `size` in pixels."""
    crop = _within_aspect(size, options)
    if options.resize is None:
        scaled = _scaled(crop, options)
        return Geometry(crop, scaled, scaled)
    width, height = options.resize
    if options.fit == "cover":
        scale = min(crop[0] / width, crop[1] / height)
        return Geometry((width * scale, height * scale), options.resize, options.resize)
    if options.fit == "contain":
        scale = min(width / crop[0], height / crop[1])
        return Geometry(crop, (_side(crop[0] * scale), _side(crop[1] * scale)), options.resize)
    return Geometry(crop, options.resize, options.resize)


def _within_aspect(size: Size, options: EncodeOptions) -> Size:
    limit = options.policy.max_aspect
    if limit is None or options.actions[PolicyFault.ASPECT] != "fix":
        return size
    width, height = size
    return (
        min(width, max(1, math.floor(height * limit))),
        min(height, max(1, math.floor(width * limit))),
    )


def _scaled(size: Size, options: EncodeOptions) -> Size:
    size = _within_limits(size, options.policy, options.actions)
    if options.max_side is None or max(size) <= options.max_side:
        return size
    scale = options.max_side / max(size)
    return (_side(size[0] * scale), _side(size[1] * scale))


def _within_limits(size: Size, policy: ImagePolicy, actions: Mapping[PolicyFault, Action]) -> Size:
    """Scale down to the most pixels, else up to the shortest side, where the policy fixes these."""
    width, height = size
    if actions[PolicyFault.BOMB] == "fix" and width * height > policy.max_pixels:
        scale = math.sqrt(policy.max_pixels / (width * height))
        width, height = (max(1, math.floor(side * scale)) for side in size)
        longest = policy.max_pixels // min(width, height)  # of a side beside one of a single pixel
        return (min(width, longest), min(height, longest))
    if actions[PolicyFault.SMALL] == "fix" and min(size) < (policy.min_side or 0):
        scale = (policy.min_side or 0) / min(size)
        return (_side(width * scale), _side(height * scale))
    return size


def _side(length: float) -> int:
    return max(1, round(length))


def sized(image: Image, source: Size, geometry: Geometry, *, nearest: bool = False) -> Image:
    """Return the crop of an image, scaled bicubically with antialiasing, or by nearest pixels.

    Args:
        image: Decoded, perhaps at a reduced size.
        source: Its full size.
        geometry: The geometry of the image before rotation.
        nearest: Take nearest pixels, so that none are blended.
    """
    from PIL import Image as Pil

    box = geometry.box(image.size, source)
    if image.size == geometry.crop == geometry.scaled:
        return image
    # Nothing is scaled, so pixels are copied: a resize by 1 would blend them at half pixels.
    if geometry.crop == geometry.scaled:
        left, top = int(box[0]), int(box[1])
        return image.crop((left, top, left + geometry.scaled[0], top + geometry.scaled[1]))
    return image.resize(
        geometry.scaled, Pil.Resampling.NEAREST if nearest else Pil.Resampling.BICUBIC, box=box
    )


def shaped(
    image: Image, source: Size, geometry: Geometry, orientation: int, *, nearest: bool = False
) -> Image:
    """Return the image in the geometry, upright; other arguments as of `sized`."""
    # It is scaled as it lies in the file, and turned when it is small.
    lying = geometry.turned() if orientation >= SIDEWAYS else geometry
    image = upright(sized(image, source, lying, nearest=nearest), orientation)
    return on_canvas(image, geometry.canvas)


def on_canvas(image: Image, size: Size) -> Image:
    """Return the image in the middle of a black (or number 0, or transparent) canvas."""
    from PIL import Image as Pil

    if image.size == size:
        return image
    canvas = Pil.new(image.mode, size)
    canvas.paste(image, ((size[0] - image.width) // 2, (size[1] - image.height) // 2))
    return canvas


def upright(image: Image, orientation: int) -> Image:
    """Return the image with the EXIF orientation applied, as the new file has no EXIF."""
    from PIL.Image import Transpose

    turn = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }.get(orientation)
    return image if turn is None else image.transpose(turn)
