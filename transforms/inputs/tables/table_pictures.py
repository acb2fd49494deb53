"""Look up further images of each record, such as a second image or a mask."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.file_lookups import look_up
from shardwright.transforms.inputs.image_paths import resolve_paths
from shardwright.transforms.inputs.tables.table_columns import as_text, empty_as_null
from shardwright.transforms.references import PICTURE_TYPE, extra_name, keep_rows, set_column
from shardwright.transforms.rejects import Reject


def look_up_pictures(
    batch: pa.RecordBatch, names: Sequence[str], folder: str, storage: StorageOptions
) -> Iterator[pa.RecordBatch | Reject]:
    """Yield references with their path columns `x/NAME` converted to `PICTURE_TYPE`.

    A row with a missing file, or with one that cannot be an image, is a reject.

    Args:
        batch: References.
        names: The columns.
        folder: The folder that relative paths start from.
        storage: Options of the images' stores.
    """
    keep = np.ones(batch.num_rows, bool)
    for name in names:
        paths = empty_as_null(as_text(batch.column(extra_name(name)), name))
        _, uris = resolve_paths(pc.fill_null(paths, ""), folder)
        there = paths.is_valid().to_numpy(zero_copy_only=False)
        places: list[dict[str, object] | None] = [None] * batch.num_rows
        rows = np.flatnonzero(there).tolist()
        found = look_up(uris.filter(paths.is_valid()).to_pylist(), storage, folder=folder)
        for row, lookup in zip(rows, found, strict=True):
            uri = uris[row].as_py()
            places[row] = lookup.as_picture(uri)
            if lookup.problem and keep[row]:
                reason, detail = lookup.problem
                keep[row] = False
                yield Reject(batch.column("id")[row].as_py(), uri, reason, f"{name}: {detail}")
        batch = set_column(batch, extra_name(name), pa.array(places, PICTURE_TYPE))
    batch = keep_rows(batch, keep)
    if batch.num_rows:
        yield batch
