"""Find the statistics that the shards' own sums lack: shared images, and signals of a sample.

They follow from the finished shards, so two builds of the same shards find the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from shardwright.errors import StorageError
from shardwright.format.manifest import Manifest
from shardwright.format.stats_keys import LEAKS, SIGNALS
from shardwright.images.pixel_measures import NO_PIXELS
from shardwright.images.signals import PictureMeasures
from shardwright.report.data import sample_pictures
from shardwright.report.pictures import Picture
from shardwright.storage.folder import Folder
from shardwright.transforms.publish.leaks import find_leaks
from shardwright.transforms.publish.picture_statistics import describe_pictures, pictures_json
from shardwright.transforms.publish.statistics import with_stats


def with_found(root: Folder, manifest: Manifest, pictures: Sequence[Picture]) -> Manifest:
    """Return the manifest with all of them; reads the index and some images.

    Args:
        root: The folder of the finished shards.
        manifest: Their manifest.
        pictures: A sample of their images.

    Raises:
        StorageError: A sidecar or a shard cannot be read.
    """
    by_size = sorted(manifest.splits.values(), key=lambda split: (split.num_records, split.name))
    leaks = find_leaks(root, {split.name: manifest.shard_names(split.name) for split in by_size})
    found: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for split, others in leaks.items():
        found[split][LEAKS] = {other: leak.to_json() for other, leak in sorted(others.items())}
    if not any(SIGNALS in split.stats for split in manifest.splits.values()):
        for split, sampled in _describe_sample(pictures):
            found[split] |= sampled
    return with_stats(manifest, found)


def sample_of(root: Folder, manifest: Manifest) -> list[Picture]:
    """Return the pictures of a sample, read once for the statistics and the report."""
    try:
        return sample_pictures(root, manifest)
    except StorageError:  # publishing checks all files next, and names the damaged one
        return []


def _describe_sample(pictures: Iterable[Picture]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield splits with the statistics of signals and channels of a sample of their images."""
    by_split: defaultdict[str, list[PictureMeasures]] = defaultdict(list)
    for each in pictures:
        if each.measured is not None:
            by_split[each.split].append(each.measured)
    for split, found in by_split.items():
        values = np.array([measured.signals for measured in found], np.float32)
        part = describe_pictures(values, sum((each.channels for each in found), NO_PIXELS))
        yield split, pictures_json(part, f"sample of {len(found)}")
