"""Summarize the signals of pictures, and the mean and deviation of their channels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardwright.format.stats_keys import CHANNELS
from shardwright.format.stats_keys import SIGNALS as PICTURES
from shardwright.images.pixel_measures import ChannelSums
from shardwright.images.signals import SIGNALS
from shardwright.transforms.publish.number_sums import describe_numbers, published

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


def pictures_json(total: Mapping[str, Any], basis: str = ALL) -> dict[str, Any]:
    """Return the statistics as published, of a sum of parts; {} if nothing was measured.

    Args:
        total: The sum.
        basis: "all", or "sample of N".
    """
    if CHANNELS not in total:
        return {}
    found = total[PICTURES]
    told = {
        signal.name: {
            "basis": basis,
            **published(found.get(signal.name, {}), signal.edges),
            **({} if signal.limit is None else {_FAULTS: found[signal.name][_FAULTS]}),
        }
        for signal in SIGNALS
    }
    return {PICTURES: told, CHANNELS: {"basis": basis, **_channels_json(*total[CHANNELS])}}


def _channels_json(pixels: int, *sums: int) -> dict[str, Any]:
    """Return mean and standard deviation of red, green and blue, on a scale of 0 to 1."""
    # Whole numbers: the difference below the root is exact, and never below 0.
    pairs = list(zip(sums[:3], sums[3:], strict=True))
    return {
        "pixels": pixels,
        "mean": [total / (pixels * 255) for total, _ in pairs],
        "std": [
            math.sqrt(squares * pixels - total * total) / (pixels * 255) for total, squares in pairs
        ],
    }
