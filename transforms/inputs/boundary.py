"""Keep references inside of INPUT: paths and links in it may lead anywhere on the machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.storage.addresses import is_remote
from shardwright.transforms.inputs.file_rules import Problem
from shardwright.transforms.references import keep_rows, picture_columns
from shardwright.transforms.rejects import Reject, RejectReason


def keep_inside(
    rows: Iterable[pa.RecordBatch | Reject], folders: tuple[str, ...]
) -> Iterator[pa.RecordBatch | Reject]:
    """Yield the rows of a listing, but a reject for each one with a local image elsewhere.

    Args:
        rows: References and rejects.
        folders: The real paths of the folders (and files) that may hold images.
    """

    # A folder that does not exist has no links. Not remembered for longer: it may be made later.
    @lru_cache(maxsize=4096)
    def has_no_links(folder: str) -> bool:
        return _holds(folders, folder) and not os.path.isdir(folder)

    for found in rows:
        if isinstance(found, Reject):
            yield found
        else:
            yield from _keep_rows_inside(found, folders, has_no_links)


def _keep_rows_inside(
    batch: pa.RecordBatch, folders: tuple[str, ...], has_no_links: Callable[[str], bool]
) -> Iterator[pa.RecordBatch | Reject]:
    outside = np.zeros(batch.num_rows, bool)
    pictures = map(batch.column, picture_columns(batch.schema))
    for column in (batch.column("uri"), *(pc.struct_field(one, "uri") for one in pictures)):
        problems = {
            uri: problem
            # Each address once: many rows may be of one archive.
            for uri in column.unique().to_pylist()
            if uri
            and not has_no_links(uri.rpartition("/")[0])
            and not is_remote(uri)
            and (problem := outside_problem(uri, folders))
        }
        if problems:
            found = pc.is_in(column, value_set=pa.array(list(problems), pa.string()))
            for row in np.flatnonzero(found.to_numpy(zero_copy_only=False) & ~outside).tolist():
                outside[row] = True
                uri = column[row].as_py()
                yield Reject(batch.column("id")[row].as_py(), uri, *problems[uri])
    batch = keep_rows(batch, ~outside) if outside.any() else batch
    if batch.num_rows:
        yield batch


def outside_problem(path: str, folders: tuple[str, ...]) -> Problem | None:
    """Return the problem of a path that leads out of the folders, or None."""
    # The folder's answer is remembered, so that an ordinary file costs one call.
    if _holds(folders, path.rpartition("/")[0]) and not os.path.islink(path):
        return None
    real = os.path.realpath(path)
    if _is_inside(real, folders):
        return None
    told = f"it leads to {real}, outside of INPUT: allow its folder with --allow-outside "
    return RejectReason.OUTSIDE_INPUT, f"{told}'{os.path.dirname(real)}'"


@lru_cache(maxsize=4096)
def _holds(folders: tuple[str, ...], folder: str) -> bool:
    return _is_inside(os.path.realpath(folder), folders)


def _is_inside(real: str, folders: tuple[str, ...]) -> bool:
    # With the slash, so that /data does not hold /data2.
    return any(real == one or real.startswith(f"{one.rstrip('/')}/") for one in folders)
