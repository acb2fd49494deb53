"""Find the pictures that a report shows for ids: duplicates, near-duplicates and changes."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import MissingError, StorageError
from shardwright.format import naming
from shardwright.format.index import read_live_rows
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.parquet import ParquetRows
from shardwright.format.splits import ShardInfo
from shardwright.format.stats_keys import LEAKS, NEAR_LEAKS
from shardwright.inspect.sample import SamplePlace
from shardwright.report.pictures import Picture, read_pictures
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads

_MAX_SEARCHED = 400_000  # records, among which ids are looked up
_MAX_BYTES = 500_000  # of their thumbnails
_READERS = 8
_NEAR_PAIRS, _NEAR_ROWS = 12, 4096  # that are shown, and the rows they are chosen from


class NearPair(NamedTuple):
    """A row of `near_duplicates.parquet`: an image, and the one of its group that is kept."""

    id: str
    split: str | None
    keeper: str
    distance: int


def leaked_ids(manifest: Manifest) -> Iterator[str]:
    """Yield the ids of the images that are stated as examples of being in two splits."""
    for info in manifest.splits.values():
        for key in (LEAKS, NEAR_LEAKS):
            for leak in info.stats.get(key, {}).values():
                for pair in leak["examples"]:
                    yield from pair


def read_near_pairs(root: Folder, manifest: Manifest) -> list[NearPair]:
    """Return some near-duplicates with the images that stand for them, the most distant first.

    Raises:
        StorageError: The list cannot be read.
    """
    if naming.NEAR_DUPLICATES not in manifest.files:
        return []
    path = root.path(naming.NEAR_DUPLICATES)
    try:
        with root.open_input(naming.NEAR_DUPLICATES) as source, ParquetRows(source, path) as file:
            batches = file.batches(_NEAR_ROWS, NearPair._fields)
            rows = next(batches, pa.RecordBatch.from_pylist([])).to_pylist()
    except MissingError:
        return []
    except pa.ArrowException as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
    pairs = [NearPair(**row) for row in rows if row["id"] != row["keeper"]]
    return sorted(pairs, key=lambda pair: (-pair.distance, pair.id))[:_NEAR_PAIRS]


def pictures_of(root: Folder, manifest: Manifest, ids: Collection[str]) -> dict[str, Picture]:
    """Return pictures by id, unless there are too many records to look for them.

    Raises:
        StorageError: An index or a shard cannot be read.
    """
    if not ids or manifest.schema.image is None or manifest.num_records > _MAX_SEARCHED:
        return {}
    wanted = pa.array(sorted(set(ids)), pa.string())
    find = functools.partial(_find_in_shard, root, wanted)
    places = [
        place for found in map_reads(find, manifest.named_shards(), _READERS) for place in found
    ]
    return {found.id: found for found in read_pictures(root, manifest, places, _MAX_BYTES)}


def _find_in_shard(
    root: Folder, wanted: pa.Array, shard: tuple[ShardName, ShardInfo]
) -> list[SamplePlace]:
    name, info = shard
    rows = read_live_rows(root, name, info)
    found = rows.filter(pc.is_in(rows["id"], value_set=wanted))
    return [SamplePlace(name, row) for row in found.to_pylist()]
