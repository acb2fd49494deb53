"""The files of reject rows in a dataset's `rejects/`: written by each step that leaves inputs out, read back for people."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from shardwright import naming, storage
from transforms.rejects import Reject, RejectReason, rejects_to_table


def write_rejects(root: str, filename: str, rejects: Sequence[Reject]) -> None:
    """Write a file of reject rows; with none, there is no file."""
    path = storage.join(root, filename)
    if not rejects:
        storage.remove(path)
        return
    buffer = pa.BufferOutputStream()
    pq.write_table(rejects_to_table(rejects), buffer)
    storage.write_if_new(path, buffer.getvalue().to_pybytes())


def read_rejects(root: str, filename: str) -> list[Reject]:
    """The rows of a file of rejects; where there is no file, there are none."""
    path = storage.join(root, filename)
    if storage.num_bytes_of(path) is None:
        return []
    return [Reject(**{**row, "reason": RejectReason(row["reason"])}) for row in pq.read_table(path).to_pylist()]


def first_faults(root: str, limit: int) -> list[Reject]:
    """Some of a dataset's rejects, to show: the first `limit` that are not just other files."""
    files = (name for name in storage.list_outputs(root) if name.startswith(f"{naming.REJECTS_DIR}/") and name.endswith(".parquet"))
    faults = (reject for name in files for reject in read_rejects(root, name) if reject.reason != RejectReason.OTHER_FILE)
    return list(islice(faults, limit))
