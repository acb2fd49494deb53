"""Collect what a report shows from a dataset's files; reads a bounded part of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.format import naming
from shardwright.format.index import read_live_rows
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo
from shardwright.format.stats_keys import LEAKS, NEAR_LEAKS
from shardwright.inspect.describe import class_name
from shardwright.inspect.sample import SamplePlace, choose_sample, sample_size
from shardwright.report.pictures import Picture, can_decode, read_pictures
from shardwright.report.rejects import RejectedInput, read_batches, read_rejects
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads

_MAX_SEARCHED = 400_000  # records, among which ids are looked up
_MAX_BYTES = 500_000  # of their thumbnails
_READERS = 8  # concurrent reads of indexes
_NEAR_PAIRS, _NEAR_ROWS = 12, 4096  # that are shown, and the rows they are chosen from


@dataclass(frozen=True)
class ReportData:
    """The content of a report.

    Attributes:
        manifest: The dataset.
        pictures: The sample that is shown.
        near: Some near-duplicates.
        paired: The pictures of duplicates, near-duplicates and changes, by id.
        rejects: Examples of each reason.
        difference: The summary of `shardwright diff` against another dataset, or None.
        fault: The error for which only the manifest is shown; "" without one.
    """

    manifest: Manifest
    pictures: Sequence[Picture] = ()
    near: Sequence[NearPair] = ()
    paired: Mapping[str, Picture] = field(default_factory=dict)
    rejects: Sequence[RejectedInput] = ()
    difference: Mapping[str, Any] | None = None
    fault: str = ""

    def class_name(self, label: int | None) -> str:
        """Return the name of a class of the dataset; "" without one."""
        return class_name(self.manifest.schema.class_names, label)


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
    near = read_near_pairs(root, manifest)
    ids = {name for pair in near for name in (pair.id, pair.keeper)}
    for info in manifest.splits.values():
        for key in (LEAKS, NEAR_LEAKS):
            for leak in info.stats.get(key, {}).values():
                ids.update(name for pair in leak["examples"] for name in pair)
    for some in (difference or {}).get("examples", {}).values():
        ids.update(some)
    return ReportData(
        manifest,
        sample_pictures(root, manifest) if pictures is None else pictures,
        near,
        pictures_of(root, manifest, ids),
        read_rejects(root, manifest),
        difference,
    )


def sample_pictures(root: Folder, manifest: Manifest, number: int | None = None) -> list[Picture]:
    """Return the pictures of a sample; [] without images, or if no decoder is installed.

    Args:
        root: The folder of the dataset's files.
        manifest: Its manifest.
        number: Of records; None for one in 1,000, at least 64, at most 2,000.

    Raises:
        StorageError: An index or a shard cannot be read.
    """
    if manifest.schema.image is None or not can_decode():
        return []
    wanted = sample_size(manifest.num_records) if number is None else number
    return read_pictures(root, manifest, choose_sample(root, manifest, wanted) if wanted else [])


class NearPair(NamedTuple):
    """A row of `near_duplicates.parquet`: an image, and the one of its group that is kept."""

    id: str
    keeper: str
    distance: int


def read_near_pairs(root: Folder, manifest: Manifest) -> list[NearPair]:
    """Return some near-duplicates with the images that stand for them, the most distant first.

    Raises:
        StorageError: The list cannot be read.
    """
    listed = [name for name in manifest.files if name == naming.NEAR_DUPLICATES]
    first = islice(read_batches(root, listed, _NEAR_ROWS, NearPair._fields), 1)
    pairs = [NearPair(**row) for batch in first for row in batch.to_pylist()]
    others = [pair for pair in pairs if pair.id != pair.keeper]
    return sorted(others, key=lambda pair: (-pair.distance, pair.id))[:_NEAR_PAIRS]


def pictures_of(root: Folder, manifest: Manifest, ids: Collection[str]) -> dict[str, Picture]:
    """Return pictures by id, unless there are too many records to look for them.

    Raises:
        StorageError: An index or a shard cannot be read.
    """
    is_large = manifest.num_records > _MAX_SEARCHED
    if not ids or manifest.schema.image is None or is_large or not can_decode():
        return {}
    wanted = pa.array(sorted(ids), pa.string())

    def find(shard: tuple[ShardName, ShardInfo]) -> list[SamplePlace]:
        rows = read_live_rows(root, *shard)
        found = rows.filter(pc.is_in(rows["id"], value_set=wanted))
        return [SamplePlace(shard[0], row) for row in found.to_pylist()]

    by_shard = map_reads(find, manifest.named_shards(), _READERS)
    places = [place for found in by_shard for place in found]
    return {found.id: found for found in read_pictures(root, manifest, places, _MAX_BYTES)}
