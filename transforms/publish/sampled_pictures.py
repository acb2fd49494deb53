"""Measure signals and channels on a sample of a finished dataset, unless the build measured all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from shardwright.format.manifest import Manifest
from shardwright.images.pixel_measures import NO_PIXELS
from shardwright.images.signals import PictureMeasures
from shardwright.transforms.publish.picture_statistics import (
    CHANNELS,
    PICTURES,
    PictureSum,
    describe_pictures,
)

_KEYS = (PICTURES, CHANNELS)


def without_sampled(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Return a split's statistics without those of a sample."""
    return {
        key: found
        for key, found in stats.items()
        if key not in _KEYS or not _is_of_sample(key, found)
    }


def _is_of_sample(key: str, found: dict[str, Any]) -> bool:
    each = found if key == CHANNELS else next(iter(found.values()), {})
    return str(each.get("basis", "")).startswith("sample")


def describe_sample(
    manifest: Manifest, sample: Iterable[tuple[str, PictureMeasures | None]]
) -> dict[str, dict[str, Any]]:
    """Return statistics of signals and channels by split; {} if all or no images are measured.

    Args:
        manifest: The manifest, perhaps not yet written.
        sample: The split and the measurements of each picture of a sample.
    """
    if any(PICTURES in split.stats for split in manifest.splits.values()):
        return {}
    by_split: defaultdict[str, list[PictureMeasures]] = defaultdict(list)
    for split, measured in sample:
        if measured is not None:
            by_split[split].append(measured)
    return {split: _described(found) for split, found in sorted(by_split.items())}


def _described(found: Sequence[PictureMeasures]) -> dict[str, Any]:
    values = np.array([measured.signals.values() for measured in found], np.float32)
    total = PictureSum()
    total.add(describe_pictures(values, sum((each.channels for each in found), NO_PIXELS)))
    return total.to_json(f"sample of {len(found)}")
