"""Which part of an image is shown, and whether mirrored: a pure function of one 64-bit number, so a resumed run draws the same.

The n-th number of a draw is `splitmix`'s n-th output from that seed. No generator is kept or passed
on, so images can be taken in any order, by any thread.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from shardwright.splitmix import GOLDEN, MASK_64, mix64

_ATTEMPTS, _NUMBERS_PER_ATTEMPT = 10, 4
_FLIP = 0  # the number that decides on the flip; those of the attempts follow


class Crop(NamedTuple):
    """A rectangle of whole pixels, inside its image: rows [top, top + height), columns [left, left + width)."""

    top: int
    left: int
    height: int
    width: int


def uniform(draw: int, number: int) -> float:
    """The `number`-th random number of a draw, even over [0, 1) with 53 bits.

    Args:
        draw: Of 0 to 2**64 - 1.
        number: From 0.
    """
    return (mix64((draw + (number + 1) * GOLDEN) & MASK_64) >> 11) * 2.0**-53


def draw_flip(draw: int) -> bool:
    """Whether to mirror: one time in two."""
    return uniform(draw, _FLIP) < 0.5


def draw_crop(
    draw: int, height: int, width: int, *, scale: tuple[float, float], ratio: tuple[float, float]
) -> Crop:
    """A random crop, drawn as torchvision's RandomResizedCrop draws it (after Szegedy et al., "Going Deeper with Convolutions").

    Ten attempts: a share of the area even over `scale`, width / height log-even over `ratio`, the place even over all that hold it.
    Where none fits inside, the largest centred crop whose shape is within `ratio`.

    Args:
        draw: Of 0 to 2**64 - 1. The same draw and size give the same crop.
        height: Of the image, in pixels.
        width: Of the image, in pixels.
        scale: Least and greatest share of the area.
        ratio: Least and greatest width / height.
    """
    low, high = math.log(ratio[0]), math.log(ratio[1])
    for attempt in range(_ATTEMPTS):
        first = _FLIP + 1 + attempt * _NUMBERS_PER_ATTEMPT
        area = height * width * (scale[0] + (scale[1] - scale[0]) * uniform(draw, first))
        shape = math.exp(low + (high - low) * uniform(draw, first + 1))
        crop_height, crop_width = round(math.sqrt(area / shape)), round(math.sqrt(area * shape))
        if 0 < crop_height <= height and 0 < crop_width <= width:
            top = int((height - crop_height + 1) * uniform(draw, first + 2))
            left = int((width - crop_width + 1) * uniform(draw, first + 3))
            return Crop(top, left, crop_height, crop_width)
    crop_height = min(height, max(1, round(width / ratio[0])))
    crop_width = min(width, max(1, round(height * ratio[1])))
    return centred(height, width, crop_height, crop_width)


def centred(height: int, width: int, crop_height: int, crop_width: int) -> Crop:
    """The crop of that size in the middle; an odd pixel stays below and to the right of it."""
    return Crop((height - crop_height) // 2, (width - crop_width) // 2, crop_height, crop_width)


def evaluation_crop(height: int, width: int, *, size: tuple[int, int], resize: int) -> Crop:
    """What is left of an image when its shorter side is resized to `resize` and the middle `size` is cut out of it.

    In pixels of the original, so that one resize gives the result: as `_decode_and_center_crop` in TensorFlow's reference ResNet.
    Where the image does not hold that much, the largest centred crop of the same shape.

    Args:
        height: Of the image, in pixels.
        width: Of the image, in pixels.
        size: (height, width) of the result.
        resize: What the shorter side is resized to.
    """
    scale = min(min(height, width) / resize, height / size[0], width / size[1])
    crop_height = min(height, max(1, round(size[0] * scale)))
    crop_width = min(width, max(1, round(size[1] * scale)))
    return centred(height, width, crop_height, crop_width)
