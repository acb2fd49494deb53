"""Collect what a report shows from a dataset's files; reads a bounded part of them.

A shard holds a random part of its split, in the order of a hash of the ids. So the first rows of a
few shards are a random sample, and the same one on every machine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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
from shardwright.inspect.describe import class_name
from shardwright.inspect.sample import SamplePlace, choose_sample, sample_size
from shardwright.report.pictures import Picture, can_decode, read_pictures
from shardwright.report.rejects import RejectedInput, read_rejects
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads

MAX_ROWS = 50_000  # of all splits together
_LEAST_ROWS = 1000  # of each split
_COLUMNS = ["width", "height", "image_length"]
_MAX_SEARCHED = 400_000  # records, among which ids are looked up
_MAX_BYTES = 500_000  # of their thumbnails
_READERS = 8  # concurrent reads of indexes
_NEAR_PAIRS, _NEAR_ROWS = 12, 4096  # that are shown, and the rows they are chosen from


@dataclass(frozen=True)
class ReportData:
    """The content of a report.

    Attributes:
        manifest: The dataset.
        splits: Index rows of each split.
        pictures: The sample that is shown.
        near: Some near-duplicates.
        paired: The pictures of duplicates, near-duplicates and changes, by id.
        rejects: Examples of each reason.
        difference: The summary of `shardwright diff` against another dataset, or None.
        replaced: The pictures of the other dataset that are gone or changed, by id.
        can_decode: False if no decoder is installed, so that there are no pictures.
        fault: The error for which only the manifest is shown; "" without one.
    """

    manifest: Manifest
    splits: Sequence[SplitRows] = ()
    pictures: Sequence[Picture] = ()
    near: Sequence[NearPair] = ()
    paired: Mapping[str, Picture] = field(default_factory=dict)
    rejects: Sequence[RejectedInput] = ()
    difference: Mapping[str, Any] | None = None
    replaced: Mapping[str, Picture] = field(default_factory=dict)
    can_decode: bool = True
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
    older: tuple[Folder, Manifest] | None = None,
) -> ReportData:
    """Return what the report of a dataset shows.

    Args:
        root: The folder of its files.
        manifest: Its manifest; reads the files of rejects that it lists.
        pictures: The sample, if it is read already; None to read `sample_pictures`.
        difference: The summary of `compare` against another dataset.
        older: The folder and the manifest of that dataset.

    Raises:
        StorageError: An index or a file of rejects cannot be read.
    """
    decodes = can_decode()
    near = read_near_pairs(root, manifest)
    changed: Mapping[str, list[str]] = (difference or {}).get("examples", {})
    ids = {*leaked_ids(manifest), *(pair.keeper for pair in near), *(pair.id for pair in near)}
    ids.update(found for change, some in changed.items() if change != "gone" for found in some)
    replaced: Mapping[str, Picture] = {}
    if older and decodes:
        gone = {*changed.get("gone", []), *changed.get("changed", [])}
        with suppress(StorageError):  # gone pictures need not be readable
            replaced = pictures_of(older[0].below(older[1].folder), older[1], gone)
    return ReportData(
        manifest,
        read_rows(root, manifest),
        sample_pictures(root, manifest) if pictures is None else pictures,
        near,
        pictures_of(root, manifest, ids) if decodes else {},
        read_rejects(root, manifest) if manifest.rejects else [],
        difference,
        replaced,
        decodes,
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


class SplitRows(NamedTuple):
    """Rows of a split's index.

    Attributes:
        split: Its name.
        rows: Columns of the index.
        is_whole: True if these are all rows of the split.
    """

    split: str
    rows: pa.Table
    is_whole: bool


def read_rows(root: Folder, manifest: Manifest) -> list[SplitRows]:
    """Return index rows of each split, at most about `MAX_ROWS` together.

    Raises:
        StorageError: An index cannot be read.
    """
    total = max(manifest.num_records, 1)
    empty = pa.table({name: pa.array([], pa.int64()) for name in _COLUMNS})

    def read(shard: tuple[ShardName, ShardInfo]) -> pa.Table:
        return read_live_rows(root, *shard, _COLUMNS)

    found = []
    for name, split in manifest.splits.items():
        most = max(MAX_ROWS * split.num_records // total, _LEAST_ROWS)
        shards = manifest.named_shards(name)
        # As many as hold `most` records together, spread over the split.
        mean = max(sum(info.num_live for _, info in shards) / max(len(shards), 1), 1)
        count = min(len(shards), max(1, round(most / mean + 0.5)))
        chosen = [shards[number * len(shards) // count] for number in range(count)]
        tables = list(map_reads(read, chosen, _READERS))
        rows = pa.concat_tables(tables) if tables else empty
        is_whole = len(rows) == split.num_records and len(rows) <= most
        found.append(SplitRows(name, rows.slice(0, most), is_whole))
    return found


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

    def find(shard: tuple[ShardName, ShardInfo]) -> list[SamplePlace]:
        rows = read_live_rows(root, *shard)
        found = rows.filter(pc.is_in(rows["id"], value_set=wanted))
        return [SamplePlace(shard[0], row) for row in found.to_pylist()]

    by_shard = map_reads(find, manifest.named_shards(), _READERS)
    places = [place for found in by_shard for place in found]
    return {found.id: found for found in read_pictures(root, manifest, places, _MAX_BYTES)}
