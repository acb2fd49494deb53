"""Select the records of each shard to read: the split's part of them, filtered by a condition."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shardwright.errors import StorageError, UsageError
from shardwright.images.signals_file import read_signals
from shardwright.reader.corpus import Corpus, ShardRef
from shardwright.reader.order import I64
from shardwright.reader.shard_index import read_rows
from shardwright.sizes import counted
from shardwright.storage.reads import map_reads

INDEXES_AT_A_TIME = 32  # reading one is mostly I/O
_ROW = "__row"

# A condition on index rows, such as pc.field("width") >= 224.
Condition: TypeAlias = pc.Expression


@dataclass(frozen=True)
class Selection:
    """The records to read.

    Attributes:
        sizes: Selected records of each shard, [shards].
        first_rows: Row in each shard's file where they begin, [shards], if they follow one another.
        kept: Rows of each shard's file that are selected, uint32 [sizes[shard]], None if they
            follow one another; None if they do in all shards.
        has_condition: True if a condition has selected them.
    """

    sizes: NDArray[np.int64]
    first_rows: NDArray[np.int64]
    kept: tuple[NDArray[np.uint32] | None, ...] | None = None
    has_condition: bool = False

    def rows(self, shards: I64, nths: I64) -> I64:
        """Return the row in its shard's file of each nth selected record, [n]."""
        # For the shards whose rows follow one another; the others are set below.
        rows = self.first_rows[shards] + nths
        by_shard = self.kept or ()
        for shard in np.unique(shards) if by_shard else ():
            if (kept := by_shard[shard]) is not None:
                chosen = shards == shard
                rows[chosen] = kept[nths[chosen]]
        return rows

    def rows_of(self, shard: int) -> I64:
        """Return the rows of a shard's file that are read, in order."""
        kept = None if self.kept is None else self.kept[shard]
        if kept is not None:
            return kept.astype(np.int64)
        return self.first_rows[shard] + np.arange(self.sizes[shard])

    def fingerprint(self) -> bytes:
        """Return a hash of the records that a condition keeps; empty without one."""
        if not self.has_condition:
            return b""
        digest = hashlib.blake2b(digest_size=16)
        for rows in self.kept or ():
            if rows is not None:
                # By its result, not by the condition: a function cannot be compared, and its
                # records are what counts.
                digest.update(len(rows).to_bytes(8, "little") + rows.tobytes())
        return digest.digest()


def select_records(corpus: Corpus, where: Condition | None) -> Selection:
    """Return the selection of a corpus.

    A condition reads every shard's index and keeps 4 bytes per record; it reads no image.

    Raises:
        UsageError: The condition fails, does not give a bool for each row, or keeps no record.
        StorageError: An index cannot be read.
    """
    first_rows = np.array([shard.first_row for shard in corpus.shards], np.int64)
    if where is None:
        rows = tuple(shard.rows for shard in corpus.shards) if corpus.has_removed else None
        return Selection(corpus.sizes, first_rows, rows)
    if not isinstance(where, pc.Expression):
        raise UsageError(
            f'where={where!r} must be an Arrow expression, such as pc.field("width") >= 224 or '
            'pc.field("id").isin(ids)'
        )
    kept = tuple(map_reads(lambda each: _keep(each, where), corpus.shards, INDEXES_AT_A_TIME))
    sizes = np.array([len(rows) for rows in kept], np.int64)
    if not sizes.sum():
        raise UsageError(f"where={where} keeps none of {counted(corpus.num_records, 'record')}")
    return Selection(sizes, first_rows, kept, has_condition=True)


def _keep(shard: ShardRef, where: Condition) -> NDArray[np.uint32]:
    """Return the rows of a shard's file that match the condition."""
    # All columns: only the condition knows which it needs.
    rows = _with_signals(shard, read_rows(shard, None))
    # Numbered, because Arrow filters by an expression but does not return its mask.
    numbered = rows.append_column(_ROW, pa.array(np.arange(len(rows), dtype=np.uint32)))
    # Of a dataset that has grown, a condition must not see rows that are no longer in it.
    mine = (
        numbered.slice(shard.first_row, shard.num_rows)
        if shard.rows is None
        else numbered.take(shard.rows)
    )
    try:
        kept: NDArray[np.uint32] = mine.filter(where)[_ROW].to_numpy()
    except pa.ArrowException as error:
        columns = ", ".join(rows.column_names)
        raise UsageError(
            f"where={where} cannot be evaluated on the index, which has the columns {columns} "
            f"(for those of signals, build the dataset with --signals): {error}"
        ) from error
    return kept


def _with_signals(shard: ShardRef, rows: pa.Table) -> pa.Table:
    """Return a shard's index rows with the columns of its signals, if the dataset has them.

    Raises:
        StorageError: The file of signals cannot be read, or is not of these rows.
    """
    content = shard.source.manifest.files.get(shard.name.signals)
    if content is None:
        return rows
    signals = read_signals(shard.source.root, shard.name, content)
    # Both files are joined by position, which holds only for the same build.
    if not signals["id"].equals(rows["id"]):
        raise StorageError(
            f"{shard.source.root.path(shard.name.signals)} and the index have other ids: "
            "run `shardwright verify`"
        )
    for name in signals.column_names:
        if name not in rows.column_names:
            rows = rows.append_column(signals.schema.field(name), signals[name])
    return rows
