"""Convert pixels of 0 to 255 to the float32 values that records store, and back."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_RANGES = {"0..1": ("0", "1"), "-1..1": ("0.5", "0.5")}


class Normalization(NamedTuple):
    """Stored values are (pixel / 255 - mean) / deviation.

    Attributes:
        mean: One number for all channels, or one each, as fractions of 255.
        deviation: The same for the divisor.
    """

    mean: tuple[float, ...] = (0.0,)
    deviation: tuple[float, ...] = (1.0,)

    @classmethod
    def parse(cls, text: str) -> Normalization:
        """Return the normalization of "0..1" (as is ""), "-1..1" or "MEAN/DEVIATION".

        Raises:
            ValueError: The text is none of them.
        """
        mean, _, deviation = text.partition("/")
        try:
            made = cls(*map(_numbers, _RANGES.get(text or "0..1", (mean, deviation))))
            if min(made.deviation) <= 0 or len(made.mean) != len(made.deviation):
                raise ValueError("a deviation must be above 0, and there must be one per mean")
        except ValueError as error:
            raise ValueError(
                "normalize must be 0..1, -1..1 or MEAN/DEVIATION of each channel as fractions, "
                f"such as 0.485,0.456,0.406/0.229,0.224,0.225, got {text!r} ({error})"
            ) from error
        return made

    def to_values(self, pixels: NDArray[Any]) -> NDArray[np.float32]:
        """Return the values of pixels [height, width, channels]."""
        mean, deviation = self._arrays()
        return (pixels.astype(np.float32) / np.float32(255) - mean) / deviation

    def to_pixels(self, values: NDArray[Any]) -> NDArray[np.uint8]:
        """Return the nearest pixels of values; those out of range become 0 or 255."""
        mean, deviation = self._arrays()
        return np.rint((values * deviation + mean).clip(0, 1) * 255).astype(np.uint8)

    def _arrays(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return np.array(self.mean, np.float32), np.array(self.deviation, np.float32)


def _numbers(text: str) -> tuple[float, ...]:
    numbers = tuple(map(float, text.split(",")))
    if len(numbers) not in (1, 3) or not all(map(math.isfinite, numbers)):
        raise ValueError("1 or 3 finite numbers")
    return numbers
