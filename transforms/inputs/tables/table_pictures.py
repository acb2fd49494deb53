"""Columns of a table that name further pictures of each record: a second image, a mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.storage import StorageOptions
from transforms.inputs.tables.table_columns import as_text, empty_as_null
from transforms.inputs.tables.table_references import look_at_each, resolve_paths
from transforms.references import PICTURE_TYPE, extra_name, keep_rows, set_column
from transforms.rejects import Reject


def look_at_pictures(
    batch: pa.RecordBatch, names: Sequence[str], folder: str, storage: StorageOptions
) -> Iterator[pa.RecordBatch | Reject]:
    """References whose columns `x/NAME` of paths are of `PICTURE_TYPE`; a file that is missing or can be no image is a reject.

    Args:
        batch: References.
        names: The columns.
        folder: Where relative paths start.
        storage: Options of the stores that they are in.
    """
    keep = np.ones(batch.num_rows, bool)
    for name in names:
        paths = empty_as_null(as_text(batch.column(extra_name(name)), name))
        _, uris = resolve_paths(pc.fill_null(paths, ""), folder)
        there = paths.is_valid().to_numpy(zero_copy_only=False)
        places: list[dict[str, object] | None] = [None] * batch.num_rows
        rows = np.flatnonzero(there).tolist()
        for row, look in zip(
            rows, look_at_each(uris.filter(paths.is_valid()).to_pylist(), storage), strict=True
        ):
            uri = uris[row].as_py()
            places[row] = {
                "uri": uri,
                "offset": None,
                "num_bytes": look.num_bytes,
                "etag": look.etag,
            }
            if look.problem and keep[row]:
                reason, detail = look.problem
                keep[row] = False
                yield Reject(batch.column("id")[row].as_py(), uri, reason, f"{name}: {detail}")
        batch = set_column(batch, extra_name(name), pa.array(places, PICTURE_TYPE))
    batch = keep_rows(batch, keep)
    if batch.num_rows:
        yield batch
