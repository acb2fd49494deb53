"""Reject files of a dataset: written by each step that rejects inputs, read back for reports."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from shardwright.errors import MissingError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.storage.folder import Folder
from transforms.rejects import NO_FAULTS, Reject, RejectReason, rejects_to_table


def write_rejects(root: Folder, filename: str, rejects: Sequence[Reject]) -> FileContent | None:
    """Write a file of reject rows and return its content, or remove it if there are none."""
    if not rejects:
        root.remove(filename)
        return None
    buffer = pa.BufferOutputStream()
    pq.write_table(rejects_to_table(rejects), buffer)
    data = buffer.getvalue().to_pybytes()
    root.write_if_new(filename, data)
    return FileContent.of(data)


def read_rejects(root: Folder, filename: str) -> list[Reject]:
    """Return the rows of a file of rejects; none if there is no such file."""
    try:
        with root.open_small(filename) as source, pq.ParquetFile(source) as file:
            rows = file.read().to_pylist()
    except MissingError:
        return []
    return [Reject(**{**row, "reason": RejectReason(row["reason"])}) for row in rows]


def first_faults(root: Folder, limit: int) -> list[Reject]:
    """Return the first `limit` rejects of a dataset that count as faults."""
    files = (
        name
        for name in root.outputs()
        if name.startswith(f"{naming.REJECTS_DIR}/") and name.endswith(".parquet")
    )
    faults = (
        reject
        for name in files
        for reject in read_rejects(root, name)
        if reject.reason not in NO_FAULTS
    )
    return list(islice(faults, limit))
