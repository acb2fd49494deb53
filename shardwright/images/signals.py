"""Measure the quality of a picture: brightness, contrast, sharpness, information, color, size.

Every pixel counts if the longer side has at most 256 pixels, else those on an even grid of 256. So
a value hardly depends on the resolution. Brightness is perceived brightness in 256 levels. All sums
are exact, so the same pixels have the same signals on every machine.

Sources: brightness and its percentiles, and the limits of dark, bright, odd aspect and odd size,
are those of CleanVision 0.3.7 (`cleanvision/issue_managers/image_property.py`), whose brightness is
HSP by Darel Rex Finley (https://alienryderflex.com/hsp.html). Sharpness is the Laplacian of
Pech-Pacheco et al., "Diatom autofocusing in brightfield microscopy" (ICPR 2000), divided by
contrast, so that a dim or foggy picture is not blurry. Colorfulness is Hasler and Suesstrunk,
"Measuring colourfulness in natural images" (2003). Entropy is Shannon's.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import UsageError
from shardwright.images.pixel_measures import (
    SIDE,
    ChannelSums,
    colorfulness_of,
    entropy_of,
    grid_of,
    level_at,
    levels_of,
    mean_and_deviation,
    sharpness_of,
)

BINS = 20
"""Number of bins of a signal's histogram."""


class Signals(NamedTuple):
    """The signals of one picture, in the order of `SIGNALS`, which states what each is."""

    brightness: float
    highlights: float
    shadows: float
    contrast: float
    sharpness: float
    entropy: float
    colorfulness: float
    aspect: float
    size: float


class Signal(NamedTuple):
    """The description of one signal.

    Attributes:
        name: The field of `Signals` and the column of `signals/*.parquet`.
        text: Its meaning in one line.
        bad: The bad end: "low", "high", "both", or "" if neither is bad by itself.
        limit: Values below (for "low") or above (for "high") it have the fault; None if the limits
            depend on the dataset, as for `size`, or there is no fault.
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


class PictureMeasures(NamedTuple):
    """The signals and the channel sums of a picture."""

    signals: Signals
    channels: ChannelSums


def measure_picture(
    pixels: NDArray[np.uint8], *, width: int | None = None, height: int | None = None
) -> PictureMeasures:
    """Measure signals and channels of a picture.

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
    measured = grid_of(pixels, SIDE)
    levels, channels = levels_of(measured)
    counts = np.bincount(levels.ravel(), minlength=256)
    mean, deviation = mean_and_deviation(counts)
    signals = Signals(
        brightness=mean / 255,
        highlights=level_at(counts, 99) / 255,
        shadows=level_at(counts, 5) / 255,
        contrast=deviation / 255,
        sharpness=sharpness_of(levels),
        entropy=entropy_of(counts),
        colorfulness=colorfulness_of(measured),
        aspect=min(width, height) / max(width, height),
        size=math.sqrt(width * height),
    )
    return PictureMeasures(signals, channels)
