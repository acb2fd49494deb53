"""Collect the index rows of a shard, its rejects and its statistics while chunks are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.format.contents import FileContent
from shardwright.format.crc import combine_all
from shardwright.format.index import INDEX_SCHEMA
from shardwright.images.signals_file import signal_values, write_signals
from shardwright.transforms.plan.shard_plans import ShardPlan
from shardwright.transforms.publish.feature_statistics import describe_features
from shardwright.transforms.publish.picture_statistics import describe_pictures
from shardwright.transforms.publish.statistics import describe_rows
from shardwright.transforms.references import (
    HASH,
    LABEL_INDEX,
    ORIGIN,
    ORIGIN_TYPE,
    RECORD_CRC,
    SUFFIX,
    concat,
)
from shardwright.transforms.rejects import Reject
from shardwright.transforms.write.image_chunks import (
    MEASURED,
    Chunk,
    MeasuredRecords,
    join_records,
    measured,
)
from shardwright.transforms.write.write_job import WriteJob

_REFERENCED = ("uri", "etag", HASH, SUFFIX)


class WrittenRows:
    """The chunks of a shard so far, without their images.

    Attributes:
        rejects: The rejects of all chunks.
    """

    def __init__(self, plan: ShardPlan, job: WriteJob) -> None:
        self.rejects: list[Reject] = []
        self._name, self._job = plan.name, job
        self._measured: list[MeasuredRecords] = []
        self._copied: list[pa.RecordBatch] = []  # columns of copied records
        self._references = plan.references
        self._rows: list[int] = []
        self._columns: dict[str, list[object]] = {
            name: [] for name in INDEX_SCHEMA.names if name not in _REFERENCED
        }
        self._fixes: Counter[str] = Counter()
        self._parts: list[tuple[int, int]] = []  # CRC32C and length of each chunk

    def add(self, chunk: Chunk, offset: int) -> None:
        """Add a chunk whose records begin at this offset in the shard."""
        columns, framed = self._columns, chunk.framed
        self._rows += chunk.rows
        columns["id"] += chunk.ids
        columns["label"] += chunk.labels
        for length, image_offset in zip(framed.lengths, framed.image_offsets, strict=True):
            columns["offset"].append(offset)
            columns["image_offset"].append(offset + image_offset)
            offset += length
        columns["length"] += framed.lengths
        columns["image_length"] += chunk.image_bytes
        columns["crc32c"] += framed.image_crcs
        columns[RECORD_CRC] += framed.record_crcs
        for name in MEASURED:
            columns[name] += measured(chunk, name)
        self.rejects += chunk.rejects
        if chunk.signals is not None:
            self._measured.append(chunk.signals)
        if chunk.columns is not None:
            self._copied.append(chunk.columns)
        self._fixes += chunk.fixes
        self._parts.append((framed.crc32c, framed.num_bytes))

    @property
    def crc32c(self) -> int:
        """CRC32C of the shard."""
        return combine_all([crc for crc, _ in self._parts], [length for _, length in self._parts])

    def to_table(self) -> pa.Table:
        """Return the rows of the shard's index."""
        kept = self._kept()
        columns = {
            name: pa.array(values, INDEX_SCHEMA.field(name).type)
            for name, values in self._columns.items()
        }
        columns |= {name: original_column(kept, name) for name in _REFERENCED}
        if self._job.hashes is not None and self._copied:
            columns[HASH] = concat(self._copied).column(HASH)
        if self._job.transforms:
            # A function's ids begin with the input's id, so the difference says where that ends.
            lengths = (pc.utf8_length(ids) for ids in (columns["id"], kept.column("id")))
            columns[SUFFIX] = pc.subtract(*lengths)
        return pa.table({name: columns[name] for name in INDEX_SCHEMA.names}, schema=INDEX_SCHEMA)

    def _kept(self) -> pa.RecordBatch:
        """Return the references of the records."""
        return self._references.take(pa.array(self._rows, pa.int64()))

    def write_signals(self) -> FileContent | None:
        """Write the shard's file of signals, and return its content; None if there is none."""
        if not self._job.signals:
            return None
        return write_signals(self._job.root, self._name, join_records(self._measured).rows)

    def describe(self, table: pa.Table) -> Mapping[str, Any]:
        """Return the statistics of the shard with this index."""
        labels = self._references.column(LABEL_INDEX)
        rejected = np.ones(len(labels), bool)
        # By rows of the plan: a row that made any record is not rejected.
        rejected[self._rows] = False
        stats = describe_rows(table, self._fixes, labels.filter(pa.array(rejected)))
        for batch in self._described():
            stats |= describe_features(batch, self._job.schema)
        if self._job.signals:
            measured = join_records(self._measured)
            stats |= describe_pictures(signal_values(measured.rows), measured.channels)
        return stats

    def _described(self) -> list[pa.RecordBatch]:
        """Return one batch with the columns that statistics describe, or none."""
        if self._job.copies:
            return [concat(self._copied)] if self._copied else []
        return [] if self._job.transforms else [self._kept()]  # those of results are not there


def original_column(references: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column of the index that references state, null where they do not."""
    if name not in references.schema.names:
        return pa.nulls(references.num_rows, INDEX_SCHEMA.field(name).type)
    if ORIGIN in references.schema.names and name in ORIGIN_TYPE.names:
        return pc.struct_field(references.column(ORIGIN), name)
    return references.column(name)
