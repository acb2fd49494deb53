"""Find the statistics that the shards' own sums lack: shared images, and signals of a sample.

They follow from the finished shards, so two builds of the same shards find the same.

"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardwright.errors import StorageError
from shardwright.format.manifest import Manifest
from shardwright.format.splits import SplitInfo
from shardwright.images.pixel_measures import NO_PIXELS
from shardwright.images.signals import PictureMeasures
from shardwright.report.data import sample_pictures
from shardwright.report.pictures import Picture
from shardwright.storage.folder import Folder
from shardwright.transforms.publish.leaks import LEAKS, find_leaks
from shardwright.transforms.publish.near_duplicates import NEAR_KEYS
from shardwright.transforms.publish.picture_statistics import (
    CHANNELS,
    PICTURES,
    PictureSum,
    describe_pictures,
)

_KEYS = frozenset({LEAKS, *NEAR_KEYS})
_SAMPLED_KEYS = (PICTURES, CHANNELS)


def with_found(root: Folder, manifest: Manifest, pictures: Sequence[Picture]) -> Manifest:
    """Return the manifest with shared images and signals; reads the index and some images.

    Args:
        root: The folder of the finished shards.
        manifest: Their manifest.
        pictures: A sample of their images.

    Raises:
        StorageError: A sidecar or a shard cannot be read.
    """
    by_size = sorted(manifest.splits.values(), key=lambda split: (split.num_records, split.name))
    leaks = find_leaks(root, {split.name: manifest.shard_names(split.name) for split in by_size})
    told = {
        split: {other: leak.to_json() for other, leak in sorted(found.items())}
        for split, found in leaks.items()
    }
    sampled = describe_sample(manifest, [(one.split, one.measured) for one in pictures])
    splits = with_stats(manifest.splits, LEAKS, told)
    splits = {
        name: replace(split, stats={**split.stats, **sampled.get(name, {})})
        for name, split in splits.items()
    }
    return replace(manifest, splits=splits)


def without_found(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Return a split's statistics without those of `with_found` and of near-duplicates."""
    return without_sampled({key: value for key, value in stats.items() if key not in _KEYS})


def sample_of(root: Folder, manifest: Manifest) -> list[Picture]:
    """Return the pictures of a sample, read once for the statistics and the report."""
    try:
        return sample_pictures(root, manifest)
    except StorageError:  # publishing checks all files next, and names the damaged one
        return []


def with_stats(
    splits: Mapping[str, SplitInfo], key: str, found: Mapping[str, Any]
) -> dict[str, SplitInfo]:
    """Return the splits with one more key of statistics, for those that it was found for."""
    return {
        name: replace(split, stats={**split.stats, key: found[name]}) if name in found else split
        for name, split in splits.items()
    }


def without_sampled(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Return a split's statistics without those of a sample."""
    return {
        key: found
        for key, found in stats.items()
        if key not in _SAMPLED_KEYS or not _is_of_sample(key, found)
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
