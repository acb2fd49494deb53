"""Measure the quality of a picture: brightness, contrast, sharpness, information, color, size.

A picture is sampled on a grid whose longer side has at most 256 pixels, so a value hardly depends
on the resolution. Brightness is perceived brightness in 256 levels. All sums are of integers, so
the same pixels have the same signals on every machine.

Sources: brightness and its percentiles, and the limits of dark, bright, odd aspect and odd size,
are those of CleanVision 0.3.7 (`cleanvision/issue_managers/image_property.py`), whose brightness is
HSP by Darel Rex Finley (https://alienryderflex.com/hsp.html). Sharpness is the Laplacian of
Pech-Pacheco et al., "Diatom autofocusing in brightfield microscopy" (ICPR 2000), divided by
contrast, so that a dim or foggy picture is not blurry. Colorfulness is Hasler and Suesstrunk,
"Measuring colourfulness in natural images" (2003). Entropy is Shannon's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import UsageError

BINS = 20
"""Number of bins of a signal's histogram."""

_SIDE = 128  # the longer side of the picture on which sharpness is measured
_SAMPLES = 2  # samples for a pixel of it in each direction, if the picture has as many
_FLAT = 2 * _SAMPLES**2  # added to the contrast: rounding alone is no sharpness
_WEIGHTS = np.array([0.241, 0.691, 0.068], np.float32)


@dataclass(frozen=True, slots=True)
class Signals:
    """The signals of one picture; `SIGNALS` states range, meaning and limit of each."""

    brightness: float
    highlights: float
    shadows: float
    contrast: float
    sharpness: float
    entropy: float
    colorfulness: float
    aspect: float
    size: float

    def values(self) -> tuple[float, ...]:
        """Return the values in the order of `SIGNALS`."""
        return astuple(self)


class Signal(NamedTuple):
    """The description of one signal.

    Attributes:
        name: The field of `Signals` and the column of `signals/*.parquet`.
        text: Its meaning in one line.
        bad: The bad end: "low", "high", "both", or "" if neither is bad by itself.
        limit: Values below (for "low") or above (for "high") it have the fault; None if the limits
            depend on the dataset (`size_limits`) or there is no fault.
        fault: The name of the fault, "" if there is none.
        edges: The `BINS` + 1 edges of its histogram; values outside count in the first or last bin.
    """

    name: str
    text: str
    bad: Literal["low", "high", "both", ""]
    limit: float | None
    fault: str
    edges: tuple[float, ...]

    def is_fault(self, value: float) -> bool:
        """Return whether a value is beyond the limit."""
        if self.limit is None:
            return False
        return value < self.limit if self.bad == "low" else value > self.limit


def _linear(top: float) -> tuple[float, ...]:
    return tuple(top * step / BINS for step in range(BINS + 1))


_SIZES = tuple(float(f"{2 ** (4 + step / 2):.6g}") for step in range(BINS + 1))

SIGNALS = (
    Signal("brightness", "mean brightness, 0 (black) to 1 (white)", "", None, "", _linear(1)),
    Signal(
        "highlights", "brightness that 1% of pixels exceed, 0 to 1", "low", 0.32, "dark", _linear(1)
    ),
    Signal(
        "shadows",
        "brightness that 95% of pixels exceed, 0 to 1",
        "high",
        0.95,
        "bright",
        _linear(1),
    ),
    Signal(
        "contrast",
        "standard deviation of brightness, 0 to 0.5",
        "low",
        0.04,
        "low_contrast",
        _linear(0.5),
    ),
    Signal(
        "sharpness",
        "deviation of the Laplacian by that of brightness, at 128 pixels, 0 to 8",
        "low",
        0.1,
        "blurry",
        _linear(2),
    ),
    Signal(
        "entropy",
        "information of brightness, 0 to 8 bits a pixel",
        "low",
        1.5,
        "low_information",
        _linear(8),
    ),
    Signal(
        "colorfulness",
        "colorfulness, 0 (gray) to about 150",
        "low",
        0.5,
        "gray",
        _linear(150),
    ),
    Signal(
        "aspect", "shorter side by longer side, above 0 to 1", "low", 0.35, "odd_aspect", _linear(1)
    ),
    Signal("size", "square root of the number of pixels", "both", None, "odd_size", _SIZES),
)
"""All signals, in the order of the fields of `Signals`."""


def measure_signals(
    pixels: NDArray[np.uint8], *, width: int | None = None, height: int | None = None
) -> Signals:
    """Measure a picture.

    Args:
        pixels: uint8 [height, width, channels] with 1 (gray), 3 (RGB) or 4 channels (RGB and alpha,
            which is ignored), perhaps decoded at a reduced size.
        width: Width of the stored picture; None is that of `pixels`.
        height: Height of the stored picture; None is that of `pixels`.

    Raises:
        UsageError: `pixels` has another shape or type, or no pixel.
    """
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4):
        raise UsageError(
            "pixels must be uint8 [height, width, 1, 3 or 4], "
            f"got {pixels.dtype} {list(pixels.shape)}"
        )
    if not pixels.size:
        raise UsageError(f"pixels must not be empty, got {list(pixels.shape)}")
    width, height = width or pixels.shape[1], height or pixels.shape[0]
    sampled, samples = _sampled(pixels)
    levels = _brightness(sampled)
    counts = np.bincount(levels.ravel(), minlength=256)
    mean, deviation = _moments(counts)
    return Signals(
        brightness=mean / 255,
        highlights=_level_at(counts, 99) / 255,
        shadows=_level_at(counts, 5) / 255,
        contrast=deviation / 255,
        sharpness=_sharpness(levels, samples),
        entropy=_entropy(counts),
        colorfulness=_colorfulness(sampled),
        aspect=min(width, height) / max(width, height),
        size=math.sqrt(width * height),
    )


def size_limits(sizes: Sequence[float] | NDArray[Any]) -> tuple[float, float]:
    """Return the least and largest `size` that is not odd, given all sizes of a dataset.

    They are three times the interquartile range away from the quartiles, as in CleanVision.
    """
    low, high = np.percentile(np.asarray(sizes, np.float64), [25, 75]).tolist()
    return low - 3 * (high - low), high + 3 * (high - low)


def _sampled(pixels: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], int]:
    """Return evenly spaced pixels, at most 256 in a row, and the samples a side of `_sharpness`."""
    height, width = pixels.shape[:2]
    longer = max(height, width)
    samples = _SAMPLES if longer >= _SIDE * _SAMPLES else 1
    side = _SIDE * samples
    if longer <= side:
        return pixels, samples
    rows, columns = (
        _places(length, max(samples, round(length * side / longer))) for length in (height, width)
    )
    return pixels.take(rows, 0).take(columns, 1), samples


def _places(length: int, count: int) -> NDArray[np.intp]:
    """Return the middles of `count` equal parts of `length` pixels."""
    return (np.arange(count) * 2 + 1) * length // (2 * count)


def _brightness(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the perceived brightness in levels of 0 to 255, [height, width]."""
    if pixels.shape[2] == 1:
        return pixels[..., 0]
    colors = pixels[..., :3].reshape(-1, 3).T.astype(np.float32, order="C")
    colors *= colors
    colors *= _WEIGHTS[:, None]
    squared = colors[0]
    squared += colors[1]
    squared += colors[2]
    levels = np.sqrt(squared, out=squared)
    levels += np.float32(0.5)
    return levels.astype(np.uint8).reshape(pixels.shape[:2])


def _moments(counts: NDArray[np.intp]) -> tuple[float, float]:
    """Return mean and standard deviation of levels with these counts."""
    levels = np.arange(len(counts))
    number, total = int(counts.sum()), int((counts * levels).sum())
    squares = int((counts * levels * levels).sum())
    return total / number, math.sqrt(squares * number - total * total) / number


def _level_at(counts: NDArray[np.intp], percent: int) -> int:
    """Return the level that a percentage of the pixels is at or below."""
    below = np.cumsum(counts)
    return int(np.searchsorted(below * 100, int(below[-1]) * percent))


def _entropy(counts: NDArray[np.intp]) -> float:
    number = int(counts.sum())
    terms = (count / number for count in counts.tolist() if count)
    return max(0.0, -math.fsum(part * math.log2(part) for part in terms))


def _sharpness(levels: NDArray[np.uint8], samples: int) -> float:
    height, width = (length // samples for length in levels.shape)
    small = levels[: height * samples, : width * samples].astype(np.int32)
    if samples > 1:
        small = small.reshape(height, samples, width * samples).sum(1, dtype=np.int32)
        small = small.reshape(height, width, samples).sum(2, dtype=np.int32)
    else:
        small *= _SAMPLES**2
    padded = np.pad(small, 1, mode="edge")
    around = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
    return _deviation(4 * small - around) / (_deviation(small) + _FLAT)


def _colorfulness(pixels: NDArray[np.uint8]) -> float:
    if pixels.shape[2] == 1:
        return 0.0
    # Every second pixel: color varies slowly.
    some = pixels[::2, ::2]
    red, green, blue = (some[..., channel].astype(np.int32) for channel in range(3))
    opponents = (red - green, red + green - 2 * blue)  # the second one twice as large
    means = [abs(int(values.sum())) / values.size for values in opponents]
    spreads = [_deviation(values) for values in opponents]
    return math.hypot(spreads[0], spreads[1] / 2) + 0.3 * math.hypot(means[0], means[1] / 2)


def _deviation(values: NDArray[np.int32]) -> float:
    number, flat = values.size, values.ravel().astype(np.int64)
    total, squares = int(flat.sum()), int((flat * flat).sum())
    return math.sqrt(squares * number - total * total) / number
