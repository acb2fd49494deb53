"""Parquet files that decode to far more than their size, and the memory that Arrow takes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from shardwright.format.example import varint


def repeated(text: str, number: int) -> pa.DictionaryArray:
    """Return a column of one text in many rows, which takes little memory."""
    return pa.DictionaryArray.from_arrays(pa.array([0]).take([0] * number).cast("int32"), [text])


def packed(
    table: pa.Table,
    metadata: Mapping[bytes, bytes] | None = None,
    row_group_size: int | None = None,
    **options: object,
) -> bytes:
    """Return a Parquet file as other writers make it: without Arrow's own types."""
    buffer = pa.BufferOutputStream()
    options = {"compression": "zstd", "store_schema": False, **options}
    with pq.ParquetWriter(buffer, table.schema, **options) as writer:
        writer.write_table(table, row_group_size)
        writer.add_key_value_metadata(metadata or {})
    return bytes(buffer.getvalue().to_pybytes())


def understated(data: bytes) -> bytes:
    """Return a Parquet file whose metadata state a hundredth of its longest column."""
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    size = max(group.column(n).total_uncompressed_size for n in range(group.num_columns))
    stated, less = varint(2 * size), varint(2 * (size // 100))
    less = less[:-1] + bytes([less[-1] | 128]) + b"\x80" * (len(stated) - len(less) - 1) + b"\0"
    assert len(less) == len(stated)
    return re.sub(re.escape(stated), lambda _: less, data)


_POOLS: list[pa.MemoryPool] = []  # Arrow frees what they gave out into them, also after a block


@contextmanager
def arrow_memory() -> Iterator[pa.MemoryPool]:
    """Count the memory that Arrow takes in a block: its `max_memory()` in bytes."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield pool
    finally:
        pa.set_memory_pool(before)
