"""Count the records of a version's splits from the statistics of its generations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo, SplitInfo
from shardwright.storage.folder import Folder
from shardwright.transforms.versions.changes import Removal, Shards, remove_rows, shards_of
from shardwright.transforms.versions.version_statistics import version_stats


@dataclass(frozen=True)
class Counted:
    """Published statistics that make up those of a version.

    Attributes:
        parts: Manifests whose statistics are added.
        lost: Removals whose records they count, by shard.
    """

    parts: Sequence[Manifest]
    lost: Mapping[ShardName, Removal]


def count_generations(root: Folder, shards: Shards, generations: Mapping[str, Manifest]) -> Counted:
    """Return the statistics of generations, of which a version may have lost whole shards.

    Args:
        root: The dataset's folder.
        shards: The shards of the version that are in these generations.
        generations: The manifests of the generations by folder.

    Raises:
        StorageError: An index cannot be read.
    """
    left, lost = dict(shards), dict[ShardName, Removal]()
    for folder, generation in sorted(generations.items()):
        own = shards_of(generation, folder)
        gone = {
            name: left[name].removed_rows
            if name in left
            else np.arange(info.num_records, dtype=np.uint32)
            for name, info in own
        }
        lost |= remove_rows(root, own, {name: rows for name, rows in gone.items() if len(rows)})
    return Counted([generations[folder] for folder in sorted(generations)], lost)


def splits_of_live(shards: Mapping[ShardName, ShardInfo], counted: Counted) -> dict[str, SplitInfo]:
    """Return the splits of the shards that have records left."""
    left = {name: info for name, info in shards.items() if info.num_live}
    return {
        split: SplitInfo(
            split,
            tuple(info for name, info in left.items() if name.split == split),
            version_stats(
                [part.splits[split].stats for part in counted.parts if split in part.splits],
                _lost_rows(counted.lost, split),
            ),
        )
        for split in sorted({name.split for name in left})
    }


def _lost_rows(lost: Mapping[ShardName, Removal], split: str) -> pa.Table | None:
    rows = [removal.rows for name, removal in lost.items() if name.split == split]
    return pa.concat_tables(rows) if rows else None
