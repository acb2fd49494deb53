"""Draw random crops and flips as a pure function of one 64-bit number.

The n-th random number of a draw is `splitmix`'s n-th output from that seed. There is no generator
state, so any thread may process any image in any order, and a resumed run draws the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from shardwright.splitmix import GOLDEN, MASK_64, mix64

_ATTEMPTS, _NUMBERS_PER_ATTEMPT = 10, 4
_FLIP = 0  # number of the draw that decides on the flip; those of the attempts follow


class Crop(NamedTuple):
    """A rectangle inside an image: rows [top, top + height), columns [left, left + width)."""

    top: int
    left: int
    height: int
    width: int


class View(NamedTuple):
    """The part of an image that a result shows.

    Attributes:
        image_size: (height, width) of the image in pixels.
        crop: The rectangle shown.
        size: (height, width) of the result.
        flip: Mirror left and right, last.
        frame: The rectangle of the result to which the crop is resized, between black bars; None
            for all of it.
    """

    image_size: tuple[int, int]
    crop: Crop
    size: tuple[int, int]
    flip: bool = False
    frame: Crop | None = None


def uniform(draw: int, number: int) -> float:
    """Return the `number`-th random number of a draw, uniform over [0, 1) with 53 bits.

    Args:
        draw: 0 to 2**64 - 1.
        number: From 0.
    """
    return (mix64((draw + (number + 1) * GOLDEN) & MASK_64) >> 11) * 2.0**-53


def draw_of_crop(draw: int, number: int) -> int:
    """Return the draw of one of several crops of an image; the first has the image's own.

    The others are numbers of the stream before those of `uniform`.
    """
    return draw if number == 0 else mix64((draw - number * GOLDEN) & MASK_64)


def draw_flip(draw: int) -> bool:
    """Return whether to flip the image, with probability 1/2."""
    return uniform(draw, _FLIP) < 0.5


def draw_crop(
    draw: int, height: int, width: int, *, scale: tuple[float, float], ratio: tuple[float, float]
) -> Crop:
    """Draw a random crop as torchvision's RandomResizedCrop does.

    Makes up to ten attempts: the share of the area uniform over `scale`, width / height log-uniform
    over `ratio`, the position uniform. If none fits, returns the largest centered crop with an
    aspect ratio within `ratio`. Source: Szegedy et al., "Going Deeper with Convolutions".

    Args:
        draw: 0 to 2**64 - 1. The same draw and image size give the same crop.
        height: Image height in pixels.
        width: Image width in pixels.
        scale: Minimum and maximum share of the area.
        ratio: Minimum and maximum width / height.
    """
    low, high = math.log(ratio[0]), math.log(ratio[1])
    for attempt in range(_ATTEMPTS):
        first = _FLIP + 1 + attempt * _NUMBERS_PER_ATTEMPT
        area = height * width * (scale[0] + (scale[1] - scale[0]) * uniform(draw, first))
        shape = math.exp(low + (high - low) * uniform(draw, first + 1))
        # Python's round, to even, as torchvision has it.
        crop_height, crop_width = round(math.sqrt(area / shape)), round(math.sqrt(area * shape))
        if 0 < crop_height <= height and 0 < crop_width <= width:
            top = int((height - crop_height + 1) * uniform(draw, first + 2))
            left = int((width - crop_width + 1) * uniform(draw, first + 3))
            return Crop(top, left, crop_height, crop_width)
    crop_height = min(height, max(1, round(width / ratio[0])))
    crop_width = min(width, max(1, round(height * ratio[1])))
    return centred(height, width, crop_height, crop_width)


def centred(height: int, width: int, crop_height: int, crop_width: int) -> Crop:
    """Return the centered crop of a size; an odd pixel is left at the bottom and right."""
    return Crop((height - crop_height) // 2, (width - crop_width) // 2, crop_height, crop_width)


def bounds_of(crops: Sequence[Crop]) -> Crop:
    """Return the smallest rectangle that has all crops in it."""
    top, left = min(crop.top for crop in crops), min(crop.left for crop in crops)
    bottom = max(crop.top + crop.height for crop in crops)
    right = max(crop.left + crop.width for crop in crops)
    return Crop(top, left, bottom - top, right - left)


def evaluation_crop(height: int, width: int, *, size: tuple[int, int], resize: int) -> Crop:
    """Return the centered crop for evaluation, in pixels of the original image.

    Equals resizing the shorter side to `resize` and cutting out the middle `size`, but needs only
    one resize, as `_decode_and_center_crop` in TensorFlow's reference ResNet. If the image is too
    small for that, returns the largest centered crop with the aspect ratio of `size`.

    Args:
        height: Image height in pixels.
        width: Image width in pixels.
        size: (height, width) of the result.
        resize: Length of the shorter side after resizing.
    """
    scale = min(min(height, width) / resize, height / size[0], width / size[1])
    crop_height = min(height, max(1, round(size[0] * scale)))
    crop_width = min(width, max(1, round(size[1] * scale)))
    return centred(height, width, crop_height, crop_width)


def inside(pixels: NDArray[Any], crop: Crop) -> NDArray[Any]:
    """Return the part of pixels [height, width, ...] that is in a rectangle, not copied."""
    return pixels[crop.top : crop.top + crop.height, crop.left : crop.left + crop.width]


def letterbox(height: int, width: int, *, size: tuple[int, int]) -> Crop:
    """Return the centered rectangle of a result that a whole image fills, at its aspect ratio.

    Args:
        height: Image height in pixels.
        width: Image width in pixels.
        size: (height, width) of the result.
    """
    scale = min(size[0] / height, size[1] / width)
    return centred(*size, max(1, round(height * scale)), max(1, round(width * scale)))
