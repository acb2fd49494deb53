"""The files of reject rows in a dataset's `rejects/`: written by each step that leaves inputs out, read back for people."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from shardwright import naming
from shardwright.errors import MissingError
from shardwright.storage import Folder
from transforms.rejects import NO_FAULTS, Reject, RejectReason, rejects_to_table


def write_rejects(root: Folder, filename: str, rejects: Sequence[Reject]) -> None:
    """Write a file of reject rows; with none, there is no file."""
    if not rejects:
        root.remove(filename)
        return
    buffer = pa.BufferOutputStream()
    pq.write_table(rejects_to_table(rejects), buffer)
    root.write_if_new(filename, buffer.getvalue().to_pybytes())


def read_rejects(root: Folder, filename: str) -> list[Reject]:
    """The rows of a file of rejects; where there is no file, there are none."""
    try:
        with root.open_small(filename) as source, pq.ParquetFile(source) as file:
            rows = file.read().to_pylist()
    except MissingError:
        return []
    return [Reject(**{**row, "reason": RejectReason(row["reason"])}) for row in rows]


def first_faults(root: Folder, limit: int) -> list[Reject]:
    """Some of a dataset's rejects, to show: the first `limit` that are not just other files."""
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
