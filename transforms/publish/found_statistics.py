"""Find the statistics that the shards' own sums lack: shared images, signals of a sample, times.

All but the times follow from the finished shards, so two builds of the same shards find the same.
When shards were finished is known from the modification times of their sidecars. So it holds for
every runner and for a build that was interrupted, and no worker has to report it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from shardwright.errors import StorageError
from shardwright.format import naming
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

MAX_POINTS = 60  # of the chart of written records


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
    return with_timing(root, with_stats(manifest, found))


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


class Finished(NamedTuple):
    """A shard, and when it was finished, in seconds since 1970 (UTC)."""

    at: float
    num_records: int
    num_bytes: int


def with_timing(root: Folder, manifest: Manifest) -> Manifest:
    """Return the manifest with `timing` in its provenance, unless a time is not known.

    Args:
        root: The folder of the finished shards.
        manifest: Their manifest, with the time of its creation.

    Raises:
        StorageError: The folder cannot be listed.
    """
    plan, provenance = root.info(naming.PLAN), manifest.provenance
    created = provenance.get("created")
    if plan is None or created is None:
        return manifest
    stamps = root.files(naming.INDEX_DIR)
    ended = []
    for split in manifest.splits:
        for name, shard in manifest.named_shards(split):
            stamp = stamps.get(name.sidecar.rpartition("/")[2])
            if stamp is not None:
                ended.append(Finished(stamp.modified, shard.num_records, shard.num_bytes))
    begun = datetime.fromisoformat(created).timestamp()
    timing = timing_of(begun, plan.modified, ended)
    return replace(manifest, provenance={**provenance, "timing": timing})


def timing_of(begun: float, planned: float, shards: Iterable[Finished]) -> dict[str, Any]:
    """Return how long planning and writing took, and how the number of written records grew.

    Args:
        begun: When the build was begun, in seconds since 1970.
        planned: When its plan was written.
        shards: All shards. Those finished before `begun` are of an earlier, interrupted run.

    Returns:
        Planning and writing in seconds; the number of shards of earlier runs; and `written`, at
        most about `MAX_POINTS` lists of the seconds since the plan, and the records and bytes that
        this run has written until then.
    """
    found = sorted(shards)
    # Both times are compared although the store's clock stamps one of them: a wrong clock only
    # changes the chart.
    own = [shard for shard in found if shard.at >= begun]
    records = num_bytes = 0
    grown = []
    for shard in own:
        records += shard.num_records
        num_bytes += shard.num_bytes
        grown.append([round(max(0.0, shard.at - planned), 2), records, num_bytes])
    step = -(-len(grown) // MAX_POINTS) or 1
    return {
        "planning_s": round(max(0.0, planned - begun), 2),
        "writing_s": grown[-1][0] if grown else 0.0,
        "reused_shards": len(found) - len(own),
        "written": [*grown[: len(grown) - 1 : step], *grown[-1:]],
    }
