"""Read index rows of some shards, whose sizes a report shows.

A shard holds a random part of its split, in the order of a hash of the ids. So the first rows of a
few shards are a random sample, and the same one on every machine.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import pyarrow as pa

from shardwright.format.index import read_live_rows
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo, SplitInfo
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads

MAX_ROWS = 50_000  # of all splits together
_LEAST_ROWS = 1000  # of each split
_READERS = 8  # concurrent reads of indexes
_COLUMNS = ["width", "height", "image_length"]


class SplitRows(NamedTuple):
    """Rows of a split's index.

    Attributes:
        split: The split.
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
    found = []
    for name, split in manifest.splits.items():
        most = max(MAX_ROWS * split.num_records // total, _LEAST_ROWS)
        chosen = _spread(split, most)
        shards = manifest.named_shards(name)
        read = functools.partial(_read_shard, root)
        tables = list(map_reads(read, [shards[number] for number in chosen], _READERS))
        rows = pa.concat_tables(tables) if tables else _no_rows()
        is_whole = len(rows) == split.num_records and len(rows) <= most
        found.append(SplitRows(name, rows.slice(0, most), is_whole))
    return found


def _spread(split: SplitInfo, most: int) -> list[int]:
    """Return numbers of shards that together hold `most` records, spread over the split."""
    sizes = [shard.num_live for shard in split.shards]
    mean = max(sum(sizes) / max(len(sizes), 1), 1)
    wanted = min(len(sizes), max(1, round(most / mean + 0.5)))
    return sorted({number * len(sizes) // wanted for number in range(wanted)}) if sizes else []


def _read_shard(root: Folder, shard: tuple[ShardName, ShardInfo]) -> pa.Table:
    name, info = shard
    return read_live_rows(root, name, info, _COLUMNS)


def _no_rows() -> pa.Table:
    return pa.table({name: pa.array([], pa.int64()) for name in _COLUMNS})
