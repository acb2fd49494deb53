"""Describe a change of a dataset: shards that are added, and records that are taken away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shardwright.format.index import read_index_of
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads

_READERS = 16
_COLUMNS = ["id", "label", "format", "image_length", "width", "height"]


class Operation(StrEnum):
    """The operation that makes a version."""

    APPEND = "append"
    COMPACT = "compact"


@dataclass(frozen=True)
class Change:
    """A change, which can be made to any version that is current when it is committed.

    Attributes:
        operation: Names it.
        folder: The folder of the generation that it adds, "" for none.
        added: The manifest of that generation; None for none.
        replaced: Folders of generations whose records are all in `added`.
        removed: Ids of records to take away, of those in `base`.
        base: The version that the operation has read.
    """

    operation: Operation
    base: Manifest
    folder: str = ""
    added: Manifest | None = None
    replaced: frozenset[str] = frozenset()
    removed: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))


@dataclass(frozen=True)
class Removal:
    """A shard of a version that loses records.

    Attributes:
        shard: The shard, with all rows that are no longer in the dataset.
        rows: The index rows that it loses now.
    """

    shard: ShardInfo
    rows: pa.Table


def live_ids(root: Folder, manifest: Manifest, split: str | None = None) -> pa.Array:
    """Return the ids of all records of a version, string [records], in stored order."""

    def read(shard: tuple[ShardName, ShardInfo]) -> pa.ChunkedArray:
        name, info = shard
        rows = read_index_of(root, name, info, ["id"])
        live = info.live_rows
        return (rows if live is None else rows.take(live))["id"]

    found = list(map_reads(read, manifest.named_shards(split), _READERS))
    chunks = [chunk for column in found for chunk in column.chunks]
    return pa.chunked_array(chunks, pa.string()).combine_chunks()


def remove_records(
    root: Folder, shards: Mapping[ShardName, ShardInfo], ids: pa.Array, *, keep: bool = False
) -> dict[ShardName, Removal]:
    """Return the shards that lose records, by name.

    Args:
        root: The dataset's folder.
        shards: The shards to look in.
        ids: The ids of the records that they lose; with `keep`, of those that they keep.
        keep: As told.

    Raises:
        StorageError: An index cannot be read.
    """

    def look(shard: tuple[ShardName, ShardInfo]) -> tuple[ShardName, Removal | None]:
        name, info = shard
        rows = read_index_of(root, name, info, _COLUMNS)
        chosen = pc.is_in(rows["id"], value_set=ids).to_numpy()
        lost: NDArray[np.bool_] = ~chosen if keep else chosen.copy()
        lost[info.removed_rows] = False
        if not lost.any():
            return name, None
        return name, _removal(info, rows, np.flatnonzero(lost).astype(np.uint32))

    found = map_reads(look, list(shards.items()), _READERS)
    return {name: removal for name, removal in found if removal is not None}


def _removal(info: ShardInfo, rows: pa.Table, lost: NDArray[np.uint32]) -> Removal:
    all_rows = np.union1d(info.removed_rows, lost).astype("<u4")
    return Removal(replace(info, removed=all_rows.tobytes()), rows.take(lost))
