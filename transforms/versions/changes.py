"""Describe a change of a dataset: shards that are added, and records that are taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shardwright.errors import BuildError, StorageError
from shardwright.format.index import read_index_of, read_live_rows
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo
from shardwright.format.versions import number_of, read_versions
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads

Shards = Sequence[tuple[ShardName, ShardInfo]]

_READERS = 16
_COLUMNS = ["id", "label", "format", "image_length", "width", "height"]


class Operation(StrEnum):
    """The operation that makes a version."""

    APPEND = "append"
    COMPACT = "compact"
    ERASE = "erase"


@dataclass(frozen=True, eq=False)
class VersionChange:
    """A change, which can be made to any version that is current when it is committed.

    Attributes:
        operation: Names it.
        base: The version that the operation has read.
        folder: The folder of the generation that it adds, "" for none.
        added: The manifest of that generation; None for none. Of a copy it has all records that
            stay of `base`.
        outdated: Rows of the shards of `base` to take away, uint32 [rows], ascending.
        keeps_places: An added record never replaces one from another address.
    """

    operation: Operation
    base: Manifest
    folder: str = ""
    added: Manifest | None = None
    outdated: Mapping[ShardName, NDArray[np.uint32]] = field(default_factory=dict)
    keeps_places: bool = False


@dataclass(frozen=True)
class Removal:
    """A shard of a version that loses records.

    Attributes:
        shard: The shard, with all rows that are no longer in the dataset.
        rows: The index rows that it loses now.
    """

    shard: ShardInfo
    rows: pa.Table


def shards_of(generation: Manifest, folder: str) -> Shards:
    """Return the shards of a generation by their names in the dataset."""
    return [
        (replace(name, folder=folder), replace(info, folder=folder, count=name.count))
        for name, info in generation.named_shards()
    ]


def live_ids(root: Folder, shards: Shards) -> pa.Array:
    """Return the ids of all records of some shards, string [records], in stored order."""
    return ids_of(map_reads(lambda one: read_live_rows(root, *one, ["id"]), shards, _READERS))


def outdated_ids(root: Folder, change: VersionChange) -> pa.Array:
    """Return the ids of the records that a change takes away, string [records].

    Raises:
        BuildError: The version that the operation has read was removed meanwhile.
        StorageError: An index cannot be read.
    """
    infos = dict(change.base.named_shards())

    def read(one: tuple[ShardName, NDArray[np.uint32]]) -> pa.Table:
        name, rows = one
        return read_index_of(root, name, infos[name], ["id"]).take(rows)

    try:
        return ids_of(map_reads(read, list(change.outdated.items()), _READERS))
    except StorageError as error:
        # It is still there, so the error is of the disk or store.
        if number_of(change.base) in map(number_of, read_versions(root)):
            raise
        raise BuildError(
            f"version {number_of(change.base)} of {root} was removed by `shardwright gc` "
            "meanwhile: run this command again"
        ) from error


def ids_of(tables: Iterable[pa.Table]) -> pa.Array:
    """Return the column "id" of index rows, string [rows]."""
    chunks = [chunk for table in tables for chunk in table["id"].chunks]
    return pa.chunked_array(chunks, pa.string()).combine_chunks()


def remove_ids(
    root: Folder, shards: Shards, ids: pa.Array, *, keep: bool = False
) -> dict[ShardName, Removal]:
    """Return the shards that lose records, by name.

    Args:
        root: The dataset's folder.
        shards: The shards to look in.
        ids: The ids of the records that they lose.
        keep: These are the ids of all that they keep.

    Raises:
        StorageError: An index cannot be read.
    """

    def find(_: ShardName, rows: pa.Table) -> NDArray[Any]:
        return np.flatnonzero(pc.is_in(rows["id"], value_set=ids).to_numpy() != keep)

    return removals(root, shards, find)


def removals(
    root: Folder, shards: Shards, find: Callable[[ShardName, pa.Table], NDArray[Any]]
) -> dict[ShardName, Removal]:
    """Return the shards that lose those rows that `find` returns and that they still have, by name.

    Raises:
        StorageError: An index cannot be read.
    """

    def look(shard: tuple[ShardName, ShardInfo]) -> tuple[ShardName, Removal] | None:
        name, info = shard
        rows = read_index_of(root, name, info, _COLUMNS)
        # A row that another append has taken away already must not be counted twice.
        lost = np.setdiff1d(find(name, rows), info.removed_rows)
        removed = np.union1d(info.removed_rows, lost).astype("<u4").tobytes()
        found = name, Removal(replace(info, removed=removed), rows.take(lost))
        return found if len(lost) else None

    return dict(filter(None, map_reads(look, shards, _READERS)))
