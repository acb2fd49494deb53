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
from shardwright.format.naming import ShardName
from shardwright.transforms.publish.feature_statistics import describe_features
from shardwright.transforms.publish.statistics import describe_rows
from shardwright.transforms.references import (
    HASH,
    LABEL_INDEX,
    ORIGIN,
    ORIGIN_TYPE,
    RECORD_CRC,
    SUFFIX,
)
from shardwright.transforms.rejects import Reject
from shardwright.transforms.write.write_job import Chunk, ShardRows, WriteJob

_REFERENCED = ("uri", "etag", HASH, SUFFIX)


class WrittenRows:
    """The chunks of a shard so far, without their images.

    Attributes:
        rejects: The rejects of all chunks.
    """

    def __init__(self, references: pa.RecordBatch, job: WriteJob) -> None:
        self.rejects: list[Reject] = []
        self._job = job
        self._measured: list[Any] = []  # `Chunk.extra` of each
        self._copied: list[pa.RecordBatch] = []  # `Chunk.columns`
        self._references = references
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
        for name in ("format", "width", "height"):  # null for records without an image
            columns[name] += [
                getattr(info, name) if num_bytes else None
                for info, num_bytes in zip(chunk.infos, chunk.image_bytes, strict=True)
            ]
        self.rejects += chunk.rejects
        if chunk.extra is not None:
            self._measured.append(chunk.extra)
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
        columns |= self._job.maker.index_columns(ShardRows(kept, columns["id"], self._copied))
        return pa.table({name: columns[name] for name in INDEX_SCHEMA.names}, schema=INDEX_SCHEMA)

    def _kept(self) -> pa.RecordBatch:
        """Return the references of the records."""
        return self._references.take(pa.array(self._rows, pa.int64()))

    def write_extra(self, name: ShardName) -> FileContent | None:
        """Write the shard's file of measurements, and return its content; None if unwanted."""
        extra = self._job.extra
        return None if extra is None else extra.write(self._job.root, name, self._measured)

    def describe(self, table: pa.Table) -> Mapping[str, Any]:
        """Return the statistics of the shard with this index."""
        labels = self._references.column(LABEL_INDEX)
        rejected = np.ones(len(labels), bool)
        # By rows of the plan: a row that made any record is not rejected.
        rejected[self._rows] = False
        stats = describe_rows(table, self._fixes, labels.filter(pa.array(rejected)))
        shard = ShardRows(self._kept(), table["id"], self._copied)
        described = self._job.maker.described(shard)
        if described is not None:
            stats |= describe_features(described, self._job.schema)
        if self._job.extra is not None:
            stats |= self._job.extra.describe(self._measured)
        return stats


def original_column(references: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column of the index that references state, null where they do not."""
    if name not in references.schema.names:
        return pa.nulls(references.num_rows, INDEX_SCHEMA.field(name).type)
    if ORIGIN in references.schema.names and name in ORIGIN_TYPE.names:
        return pc.struct_field(references.column(ORIGIN), name)
    return references.column(name)
