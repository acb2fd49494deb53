"""Summarize the signals of pictures, and the mean and deviation of their channels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardwright.format.stats_keys import CHANNELS
from shardwright.format.stats_keys import SIGNALS as PICTURES
from shardwright.images.pixel_measures import NO_PIXELS, ChannelSums
from shardwright.images.signals import SIGNALS
from shardwright.transforms.publish.number_sums import describe_numbers, joined, published

ALL = "all"
_FAULTS = "faults"  # number of images beyond the limit of a signal


def describe_pictures(values: NDArray[np.float32], channels: ChannelSums) -> dict[str, Any]:
    """Return the statistics of a shard's signals and channels, {} if none was measured.

    Args:
        values: Their signals, float32 [pictures, signals].
        channels: Their channel sums.
    """
    if not channels.pixels:
        return {}
    parts = {
        signal.name: {
            **describe_numbers([values[:, number]], signal.edges)[0],
            _FAULTS: sum(map(signal.is_fault, values[:, number].tolist())),
        }
        for number, signal in enumerate(SIGNALS)
    }
    return {
        PICTURES: parts,
        CHANNELS: [channels.pixels, *channels.sums, *channels.squares],
    }


class PictureSum:
    """The sum of parts of `describe_pictures`.

    Args:
        part: The first part, the statistics of a shard.
    """

    def __init__(self, part: Mapping[str, Any]) -> None:
        found = part.get(PICTURES, {})
        self._signals: dict[str, Mapping[str, Any]] = dict(found)
        self._faults = Counter({name: numbers[_FAULTS] for name, numbers in found.items()})
        self._channels = NO_PIXELS
        if CHANNELS in part:
            pixels, *sums = part[CHANNELS]
            self._channels = ChannelSums(pixels, tuple(sums[:3]), tuple(sums[3:]))

    def add(self, other: PictureSum) -> None:
        """Add another sum."""
        for name, numbers in other._signals.items():
            self._signals[name] = joined(self._signals.get(name, {}), numbers)
        self._faults.update(other._faults)
        self._channels += other._channels

    def to_json(self, basis: str = ALL) -> dict[str, Any]:
        """Return the statistics as published, {} if nothing was measured.

        Args:
            basis: "all", or "sample of N".
        """
        if not self._channels.pixels:
            return {}
        told = {
            signal.name: {
                "basis": basis,
                **published(self._signals.get(signal.name, {}), signal.edges),
                **({} if signal.limit is None else {_FAULTS: self._faults[signal.name]}),
            }
            for signal in SIGNALS
        }
        return {PICTURES: told, CHANNELS: {"basis": basis, **_channels_json(self._channels)}}


def _channels_json(channels: ChannelSums) -> dict[str, Any]:
    """Return mean and standard deviation of red, green and blue, on a scale of 0 to 1."""
    pixels = channels.pixels
    # Whole numbers: the difference below the root is exact, and never below 0.
    pairs = list(zip(channels.sums, channels.squares, strict=True))
    return {
        "pixels": pixels,
        "mean": [total / (pixels * 255) for total, _ in pairs],
        "std": [
            math.sqrt(squares * pixels - total * total) / (pixels * 255) for total, squares in pairs
        ],
    }
