"""Collect what a report shows from a dataset's files; reads a bounded part of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.format.index import read_live_rows
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo
from shardwright.format.stats_keys import LEAKS, NEAR_LEAKS
from shardwright.inspect.sample import SamplePlace, choose_sample, sample_size
from shardwright.report.pictures import Picture, read_pictures
from shardwright.report.reject_rows import RejectedInput, read_rejects
from shardwright.report.sampled_rows import SplitRows, read_rows
from shardwright.report.thumbnails import can_decode
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads

_MAX_SEARCHED = 400_000  # records, among which the pictures of pairs are looked up
_READERS = 8


@dataclass(frozen=True)
class ReportData:
    """The content of a report.

    Attributes:
        manifest: The dataset.
        splits: Index rows of each split.
        pictures: The sample that is shown.
        paired: The pictures of duplicates, by split and id.
        rejects: Examples of each reason.
        difference: The summary of `shardwright diff` against another dataset, or None.
        can_decode: False if no decoder is installed, so that there are no pictures.
    """

    manifest: Manifest
    splits: Sequence[SplitRows] = ()
    pictures: Sequence[Picture] = ()
    paired: Mapping[tuple[str, str], Picture] = field(default_factory=dict)
    rejects: Sequence[RejectedInput] = ()
    difference: Mapping[str, Any] | None = None
    can_decode: bool = True


def collect(
    root: Folder,
    manifest: Manifest,
    *,
    pictures: Sequence[Picture] | None = None,
    difference: Mapping[str, Any] | None = None,
) -> ReportData:
    """Return what the report of a dataset shows.

    Args:
        root: The folder of its files.
        manifest: Its manifest; reads the files of rejects that it lists.
        pictures: The sample, if it is read already; None to read `sample_pictures`.
        difference: The summary of `compare` against another dataset.

    Raises:
        StorageError: An index or a file of rejects cannot be read.
    """
    splits = read_rows(root, manifest)
    decodes = can_decode()
    return ReportData(
        manifest,
        splits,
        sample_pictures(root, manifest) if pictures is None else pictures,
        _paired_pictures(root, manifest) if decodes else {},
        read_rejects(root, manifest) if manifest.rejects else [],
        difference,
        decodes,
    )


def sample_pictures(root: Folder, manifest: Manifest, number: int | None = None) -> list[Picture]:
    """Return the pictures of a sample; [] without images, or if no decoder is installed.

    Args:
        root: The folder of the dataset's files.
        manifest: Its manifest.
        number: Number of records; None for one in 1,000, at least 64, at most 2,000.

    Raises:
        StorageError: An index or a shard cannot be read.
    """
    if manifest.schema.image is None or not can_decode():
        return []
    wanted = sample_size(manifest.num_records) if number is None else number
    return read_pictures(root, manifest, choose_sample(root, manifest, wanted) if wanted else [])


def _paired_pictures(root: Folder, manifest: Manifest) -> dict[tuple[str, str], Picture]:
    """Return the pictures of duplicates, unless there are too many records to look for them."""
    if manifest.num_records > _MAX_SEARCHED:
        return {}
    wanted: dict[str, set[str]] = {}
    for split, info in manifest.splits.items():
        for key in (LEAKS, NEAR_LEAKS):
            for other, leak in leaks_of(info.stats.get(key)).items():
                for here, there in leak.get("examples", []):
                    wanted.setdefault(split, set()).add(here)
                    wanted.setdefault(other, set()).add(there)
    places = [
        place for split, ids in wanted.items() for place in _find_ids(root, manifest, split, ids)
    ]
    found = read_pictures(root, manifest, places)
    return {(picture.split, picture.id): picture for picture in found}


def leaks_of(found: Any) -> dict[str, Mapping[str, Any]]:
    """Return the leaks by other split; other values beside them are left out."""
    if not isinstance(found, Mapping):
        return {}
    return {
        other: leak
        for other, leak in found.items()
        if isinstance(leak, Mapping) and "examples" in leak
    }


def _find_ids(root: Folder, manifest: Manifest, split: str, ids: set[str]) -> list[SamplePlace]:
    wanted = pa.array(sorted(ids), pa.string())
    shards = manifest.named_shards(split) if split in manifest.splits else []
    find = functools.partial(_find_in_shard, root, wanted)
    return [place for found in map_reads(find, shards, _READERS) for place in found]


def _find_in_shard(
    root: Folder, wanted: pa.Array, shard: tuple[ShardName, ShardInfo]
) -> list[SamplePlace]:
    name, info = shard
    rows = read_live_rows(root, name, info)
    found = rows.filter(pc.is_in(rows["id"], value_set=wanted))
    return [SamplePlace(name, row) for row in found.to_pylist()]
