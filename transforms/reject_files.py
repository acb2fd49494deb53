"""Reject files of a dataset: written by each step that rejects inputs, read back for reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardwright.errors import MissingError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.reject_counts import NO_FAULTS
from shardwright.storage.folder import Folder
from shardwright.transforms.rejects import REJECT_SCHEMA, Reject, rejects_in, rejects_to_table


def write_rejects(root: Folder, filename: str, rejects: Sequence[Reject]) -> FileContent | None:
    """Write a file of reject rows and return its content, or remove it if there are none."""
    if not rejects:
        root.remove(filename)
        return None
    return write_reject_rows(root, filename, [rejects_to_table(rejects)])


def pack_rejects(rows: pa.Table) -> bytes:
    """Return reject rows as Parquet, a third of Arrow's format: ids and addresses begin alike."""
    buffer = pa.BufferOutputStream()
    pq.write_table(
        rows,
        buffer,
        compression="zstd",
        use_dictionary=["reason", "detail"],
        column_encoding=dict.fromkeys(("id", "uri"), "DELTA_BYTE_ARRAY"),
    )
    return bytes(buffer.getvalue().to_pybytes())


def unpack_rejects(packed: bytes) -> pa.Table:
    with pq.ParquetFile(pa.BufferReader(packed)) as file:
        return file.read(use_threads=False)


def write_reject_rows(root: Folder, filename: str, tables: Iterable[pa.Table]) -> FileContent:
    """Write a file of reject rows, sorted so that the order of arrival does not matter."""
    rows = pa.concat_tables(tables)
    buffer = pa.BufferOutputStream()
    order = [(name, "ascending") for name in REJECT_SCHEMA.names]
    pq.write_table(rows.sort_by(order), buffer)
    data = buffer.getvalue().to_pybytes()
    root.write_if_new(filename, data)
    return FileContent.of(data)


def read_rejects(root: Folder, filename: str) -> list[Reject]:
    """Return the rows of a shard's file of rejects; none if there is no such file."""
    try:
        with root.open_small(filename) as source, pq.ParquetFile(source) as file:
            return rejects_in(file.read())
    except MissingError:
        return []


def first_faults(root: Folder, limit: int) -> list[Reject]:
    """Return the first `limit` rejects of a dataset that count as faults."""
    files = (
        name
        for name in root.outputs()
        if name.startswith(f"{naming.REJECTS_DIR}/") and name.endswith(".parquet")
    )
    return list(islice((fault for name in files for fault in _faults_in(root, name)), limit))


def _faults_in(root: Folder, filename: str) -> Iterator[Reject]:
    """Yield the faults of a file, which may have many other rows."""
    others = pa.array(sorted(NO_FAULTS), pa.string())
    with root.open_small(filename) as source, pq.ParquetFile(source) as file:
        for batch in file.iter_batches():
            is_other = pc.is_in(batch.column("reason"), value_set=others)
            yield from rejects_in(batch.filter(pc.invert(is_other)))
