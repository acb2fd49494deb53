"""Leave out rows of references by a key of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.transforms.hashing import hash64, is_among, joined
from shardwright.transforms.references import rows_left

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
