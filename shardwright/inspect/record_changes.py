"""Find which records of two datasets are new, gone or changed, from their indexes alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shardwright.fail_on import CHANGES as CHANGES
from shardwright.format.index import INDEX_SCHEMA, read_live_rows
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo
from shardwright.reader.selection import for_each_shard
from shardwright.storage.folder import Folder

NUMBERS = ("width", "height", "image_length")
_COLUMNS = ("id", "length", "crc32c", "label", "features", *NUMBERS)
_NO_LABEL = -1
CHANGES_SCHEMA = pa.schema(
    [("change", pa.string()), ("split", pa.string()), ("id", pa.large_string())]
)


@dataclass(frozen=True, slots=True)
class DatasetRows:
    """The index rows of a whole dataset, split after split, in file order.

    Attributes:
        table: Some columns of the index.
        splits: Name of each row's split, as a number in `split_names`.
        split_names: The splits by name.
    """

    table: pa.Table
    splits: NDArray[np.int16]
    split_names: tuple[str, ...]

    @property
    def ids(self) -> pa.ChunkedArray:
        """The ids as `large_string`: those of one dataset may exceed 2 GB."""
        return self.table["id"].cast(pa.large_string())

    def column(self, name: str) -> NDArray[Any]:
        """Return a column of numbers; a missing label is -1."""
        column = self.table[name]
        values: NDArray[Any] = (
            column.fill_null(_NO_LABEL) if column.null_count else column
        ).to_numpy()
        return values

    def names_of_splits(self) -> NDArray[Any]:
        """Return the name of each row's split."""
        return np.array(self.split_names, object)[self.splits]

    def measured(self, name: str) -> NDArray[Any]:
        """Return a column of sizes or lengths, without those of records that have no image."""
        values: NDArray[Any] = self.table[name].drop_null().to_numpy()
        return values[values > 0]


def read_rows(root: Folder, manifest: Manifest, columns: Sequence[str] = _COLUMNS) -> DatasetRows:
    """Return columns of the index rows of all splits; all of them are held in memory.

    Raises:
        StorageError: An index is missing, unreadable or damaged.
    """
    folder = root.below(manifest.folder)

    def read(shard: tuple[ShardName, ShardInfo]) -> pa.Table:
        return read_live_rows(folder, *shard, list(columns))

    names = tuple(manifest.splits)
    tables = for_each_shard(manifest.named_shards(), read)
    counts = [manifest.splits[name].num_records for name in names]
    empty = pa.schema(map(INDEX_SCHEMA.field, columns)).empty_table()
    table = pa.concat_tables([empty, *tables])
    return DatasetRows(table, np.repeat(np.arange(len(names), dtype=np.int16), counts), names)


@dataclass(frozen=True, slots=True)
class RecordChanges:
    """The rows that differ, by the kind of change.

    Attributes:
        old, new: The rows of both datasets.
        rows: Row numbers by change, ascending: in `old` for "gone", else in `new`.
        num_same: Number of records that are in both, unchanged.
    """

    old: DatasetRows
    new: DatasetRows
    rows: dict[str, NDArray[np.int64]]
    num_same: int

    def first_ids(self, change: str, number: int) -> list[str]:
        """Return the first ids of a change, in stored order."""
        rows = self._of(change).ids.take(pa.array(self.rows[change][:number]))
        found: list[str] = rows.to_pylist()
        return found

    def tables(self) -> Iterator[pa.Table]:
        """Yield a table of `CHANGES_SCHEMA` for each kind of change."""
        for change, numbers in self.rows.items():
            rows = self._of(change)
            ids = rows.ids.take(pa.array(numbers))
            names = [change] * len(numbers)
            yield pa.table([names, rows.names_of_splits()[numbers], ids], schema=CHANGES_SCHEMA)

    def _of(self, change: str) -> DatasetRows:
        return self.old if change == "gone" else self.new


def compare_rows(
    old: DatasetRows,
    new: DatasetRows,
    class_names: Sequence[Sequence[str]],
    *,
    with_features: bool = False,
) -> RecordChanges:
    """Return how the records of `new` differ from those of `old` with the same ids.

    An image is compared by length and CRC32C, a record without an image by its length, a label by
    its class name, all other features by their hash if both have it.

    Args:
        old, new: The rows of both datasets.
        class_names: The class names of both; without them labels are compared as numbers.
        with_features: Other hashes mean other features.
    """
    places = pc.index_in(new.ids, value_set=old.ids.combine_chunks())
    is_known = places.is_valid().to_numpy()
    known, places = np.flatnonzero(is_known), places.drop_null().to_numpy()
    old_labels, new_labels = _common_labels(old, new, class_names)
    differs = {
        "changed": _content_differs(old, new, places, known),
        "relabeled": old_labels[places] != new_labels[known],
        "reannotated": with_features & _hashes_differ(old, new, places, known),
        "moved": old.names_of_splits()[places] != new.names_of_splits()[known],
    }
    is_gone = np.ones(len(old.splits), np.bool_)
    is_gone[places] = False
    rows = {"new": np.flatnonzero(~is_known), "gone": np.flatnonzero(is_gone)}
    rows |= {change: known[mask] for change, mask in differs.items()}
    num_same = int((~np.logical_or.reduce(list(differs.values()))).sum())
    return RecordChanges(old, new, rows, num_same)


def _content_differs(
    old: DatasetRows, new: DatasetRows, places: NDArray[np.int64], known: NDArray[np.int64]
) -> NDArray[np.bool_]:
    pairs = {
        name: (old.column(name)[places], new.column(name)[known])
        for name in ("crc32c", "image_length", "length")
    }
    differs = {name: before != after for name, (before, after) in pairs.items()}
    has_image = (pairs["image_length"][0] > 0) | (pairs["image_length"][1] > 0)
    image_differs: NDArray[np.bool_] = differs["crc32c"] | differs["image_length"]
    return np.where(has_image, image_differs, differs["length"])


def _hashes_differ(
    old: DatasetRows, new: DatasetRows, places: NDArray[np.int64], known: NDArray[np.int64]
) -> NDArray[np.bool_]:
    before, after = old.table["features"].take(places), new.table["features"].take(known)
    differs: NDArray[np.bool_] = pc.fill_null(pc.not_equal(before, after), False).to_numpy()
    return differs


def _common_labels(
    old: DatasetRows, new: DatasetRows, class_names: Sequence[Sequence[str]]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the labels of both in one numbering, that of the names."""
    labels = old.column("label"), new.column("label")
    if not all(class_names):
        return labels
    numbers: dict[str, int] = {}
    for names in class_names:
        for name in names:
            numbers.setdefault(name, len(numbers))
    return tuple(
        np.array([*(numbers[name] for name in names), _NO_LABEL], np.int64)[found]
        for names, found in zip(class_names, labels, strict=True)
    )
