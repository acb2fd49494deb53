"""Compute brightness, contrast, sharpness, entropy and colorfulness of pixels, in exact sums.

`signals` names the sources of the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SIDE = 256
"""The longer side of the grid of pixels that is measured."""

_SMALL = 128  # the longer side of the picture on which sharpness is measured
_FLAT = 8  # added to the contrast, in quarters of a level: rounding alone is no sharpness
_VALUES = np.arange(256)
_WEIGHTS = np.array([0.241, 0.691, 0.068], np.float32)


class ChannelSums(NamedTuple):
    """Sums over the measured pixels of pictures, for the mean and deviation of each channel.

    Attributes:
        pixels: Number of pixels.
        sums: Of the values 0 to 255 of red, green and blue; gray counts as all three.
        squares: Of their squares.
    """

    pixels: int
    sums: tuple[int, int, int]
    squares: tuple[int, int, int]

    def __add__(self, other: object) -> ChannelSums:
        """Return the sums over the pictures of both."""
        if not isinstance(other, ChannelSums):
            return NotImplemented
        sums, squares = map(add, self.sums, other.sums), map(add, self.squares, other.squares)
        return ChannelSums(self.pixels + other.pixels, _three(sums), _three(squares))


def _three(values: Iterable[int]) -> tuple[int, int, int]:
    red, green, blue = values
    return red, green, blue


NO_PIXELS = ChannelSums(0, (0, 0, 0), (0, 0, 0))


def grid_of(pixels: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Return evenly spaced pixels, at most `side` in a row or column."""
    longer = max(pixels.shape[:2])
    if longer <= side:
        return pixels
    rows, columns = (
        _places(length, max(1, round(length * side / longer))) for length in pixels.shape[:2]
    )
    return pixels.take(rows, 0).take(columns, 1)


def _places(length: int, count: int) -> NDArray[np.intp]:
    """Return the middles of `count` equal parts of `length` pixels."""
    return (np.arange(count) * 2 + 1) * length // (2 * count)


def levels_of(pixels: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], ChannelSums]:
    """Return the perceived brightness in levels of 0 to 255, [height, width], and the sums."""
    if pixels.shape[2] == 1:
        levels = pixels[..., 0]
        counts = np.bincount(levels.ravel(), minlength=256)
        total, squares = (int((counts * _VALUES**power).sum()) for power in (1, 2))
        return levels, ChannelSums(levels.size, (total,) * 3, (squares,) * 3)
    # One row a color: NumPy is several times as fast along contiguous memory.
    colors = pixels[..., :3].reshape(-1, 3).T.astype(np.float32, order="C")
    sums = _exact_sums(colors, pixels.shape[:2])
    colors *= colors
    channels = ChannelSums(colors.shape[1], sums, _exact_sums(colors, pixels.shape[:2]))
    colors *= _WEIGHTS[:, None]
    levels = colors[0]
    levels += colors[1]
    levels += colors[2]
    np.sqrt(levels, out=levels)
    levels += np.float32(0.5)
    return levels.astype(np.uint8).reshape(pixels.shape[:2]), channels


def _exact_sums(colors: NDArray[np.float32], shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the sum of each color, [3, height * width] of whole numbers up to 255 ** 2."""
    # In float32, whole numbers below 2 ** 24 are exact, and so is a row of at most 256 squares.
    rows = colors.reshape(3, *shape).sum(2)
    return _three(map(int, rows.sum(1, dtype=np.float64).tolist()))


def mean_and_deviation(counts: NDArray[np.intp]) -> tuple[float, float]:
    """Return mean and standard deviation of levels with these counts."""
    number, total, squares = (int((counts * _VALUES**power).sum()) for power in range(3))
    return total / number, math.sqrt(squares * number - total * total) / number


def level_at(counts: NDArray[np.intp], percent: int) -> int:
    """Return the level that a percentage of the pixels is at or below."""
    below = np.cumsum(counts)
    return int(np.searchsorted(below * 100, int(below[-1]) * percent))


def entropy_of(counts: NDArray[np.intp]) -> float:
    """Return Shannon's entropy of levels with these counts, in bits."""
    number = int(counts.sum())
    terms = (count / number for count in counts.tolist() if count)
    return max(0.0, -math.fsum(part * math.log2(part) for part in terms))


def sharpness_of(levels: NDArray[np.uint8]) -> float:
    """Return the deviation of the Laplacian by that of brightness, on at most 128 pixels."""
    height, width = (length // 2 for length in levels.shape)
    if max(levels.shape) < SIDE or not min(height, width):
        small = grid_of(levels[..., None], _SMALL)[..., 0].astype(np.int32) * 4
    else:  # the sum of each 2 x 2 pixels; ten times as fast as a sum over an axis of 2
        even = levels[: height * 2, : width * 2]
        rows = even[::2].astype(np.int32)
        rows += even[1::2]
        small = rows[:, ::2] + rows[:, 1::2]
    padded = np.pad(small, 1, mode="edge")
    around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
    return _spread(4 * small - around)[1] / (_spread(small)[1] + _FLAT)


def colorfulness_of(pixels: NDArray[np.uint8]) -> float:
    """Return the colorfulness of pixels [height, width, 1, 3 or 4]."""
    if pixels.shape[2] == 1:
        return 0.0
    # Every second pixel: color varies slowly.
    some = pixels[::2, ::2]
    red, green, blue = (some[..., channel].astype(np.int32) for channel in range(3))
    opponents = (red - green, red + green - 2 * blue)  # the second one twice as large
    (mean, spread), (mean_2, spread_2) = map(_spread, opponents)
    return math.hypot(spread, spread_2 / 2) + 0.3 * math.hypot(mean, mean_2 / 2)


def _spread(values: NDArray[np.int32]) -> tuple[float, float]:
    """Return mean and standard deviation."""
    number, flat = values.size, values.ravel().astype(np.int64)
    total, squares = int(flat.sum()), int((flat * flat).sum())
    return total / number, math.sqrt(squares * number - total * total) / number
