"""Leave out rows of references by a key of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.transforms.hashing import hash64, is_among, joined
from shardwright.transforms.references import rows_left
from shardwright.transforms.rejects import Reject, RejectReason

_SALT = "shardwright/row"


def row_keys(batch: pa.RecordBatch) -> np.ndarray:
    """Return a uint64 key per row, from id, row and uri because ids may occur twice."""
    return hash64(
        pc.binary_join_element_wise(
            batch.column("id"), batch.column("row").cast(pa.string()), batch.column("uri"), "\0"
        ),
        _SALT,
    )


def leave_out(batch: pa.RecordBatch, keys: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Yield the rows without these sorted keys, if any."""
    yield from rows_left(batch, ~is_among(row_keys(batch), keys))


def sorted_keys(parts: Iterable[np.ndarray]) -> np.ndarray:
    """Return the keys of all parts, as `leave_out` needs them."""
    return np.sort(joined(parts, np.uint64))


def reject_copies(
    rows: pa.RecordBatch,
    keepers: np.ndarray,
    reason: RejectReason,
    relation: Callable[[dict[str, Any]], str],
) -> Iterator[np.ndarray | Reject]:
    """Yield a reject for each row that another one is kept for, then the keys of these rows.

    Args:
        rows: Rows with id, uri, row and label.
        keepers: The number of the row that is kept for each row, which may be itself.
        reason: The reason of the rejects.
        relation: Returns the words between a row and its keeper, such as "same bytes as".
    """
    is_copy = keepers != np.arange(len(keepers))
    copies, kept = rows.filter(pa.array(is_copy)), rows.take(pa.array(keepers[is_copy]))
    for row, keeper in zip(copies.to_pylist(), kept.to_pylist(), strict=True):
        detail = f"{relation(row)} {keeper['id']!r}, which is kept"
        if row["label"] != keeper["label"]:
            detail += f", but another label: {row['label']!r} here, {keeper['label']!r} there"
        yield Reject(row["id"], row["uri"], reason, detail)
    yield row_keys(copies)
