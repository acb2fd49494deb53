"""Look up files and objects that a table or an annotation lists, without reading them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from shardwright.errors import StorageError, UsageError
from shardwright.storage.addresses import is_remote, redact
from shardwright.storage.objects import head_object
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.inputs.file_rules import Problem, etag_of, file_problem, size_problem
from shardwright.transforms.references import QUERY, keep_rows, set_column
from shardwright.transforms.rejects import Reject, RejectReason, reason_of


class FileLookup(NamedTuple):
    """A file's length and etag, or why it cannot be an image."""

    num_bytes: int | None = None
    etag: str | None = None
    problem: Problem | None = None

    def as_picture(self, uri: str) -> dict[str, object]:
        """Return the value of `PICTURE_TYPE` for the file at `uri`."""
        return {"uri": uri, "offset": None, "num_bytes": self.num_bytes, "etag": self.etag}


def look_up_batch(
    batch: pa.RecordBatch, storage: StorageOptions, *, folder: str, listed_in: str = "the table"
) -> tuple[list[Reject], pa.RecordBatch]:
    """Fill in each file's length and etag; reject missing files and those that cannot be images.

    Args:
        batch: References.
        storage: Options of the files' stores.
        folder: As for `look_up`.
        listed_in: The file that lists them, for the details of rejects.
    """
    uris = batch.column("uri").to_pylist()
    queries = batch.column(QUERY).to_pylist() if QUERY in batch.schema.names else None
    found = look_up(uris, storage, folder=folder, listed_in=listed_in, queries=queries)
    rejects, sizes, etags = [], [], []
    for image_id, uri, lookup in zip(batch.column("id").to_pylist(), uris, found, strict=True):
        if lookup.problem:
            rejects.append(Reject(image_id, uri, *lookup.problem))
        sizes.append(lookup.num_bytes)
        etags.append(lookup.etag)
    batch = set_column(batch, "num_bytes", pa.array(sizes, pa.int64()))
    batch = set_column(batch, "etag", pa.array(etags, pa.string()))
    return rejects, keep_rows(
        batch, batch.column("num_bytes").is_valid().to_numpy(zero_copy_only=False)
    )


def look_up(
    uris: Sequence[str],
    storage: StorageOptions,
    *,
    folder: str,
    listed_in: str = "the table",
    queries: Sequence[str | None] | None = None,
) -> Iterator[FileLookup]:
    """Yield the state of each file or object, in order; objects are looked up concurrently.

    Args:
        uris: The files and objects.
        storage: Options of their stores.
        folder: The folder that relative paths start from, for the details of rejects.
        listed_in: The file that lists them, for the details of rejects.
        queries: The queries of signed URLs; None if there are none.
    """
    if any(map(is_remote, uris)):
        signed = zip(uris, queries or itertools.repeat(None), strict=False)
        place = (listed_in, folder)
        yield from map_reads(lambda one: _look_up_object(*one, storage, *place), signed)
    else:
        yield from (_look_up_file(uri, listed_in, folder) for uri in uris)


def _look_up_file(uri: str, listed_in: str, folder: str) -> FileLookup:
    try:
        status = os.stat(uri)
    except (FileNotFoundError, NotADirectoryError):
        return _missing(uri, f"listed in {listed_in}, but there is no such file", folder)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL byte
        told = str(getattr(error, "strerror", None) or error)
        return FileLookup(problem=(RejectReason.UNREADABLE, told))
    problem = file_problem(status)
    return FileLookup(problem=problem) if problem else FileLookup(status.st_size, etag_of(status))


def _look_up_object(
    uri: str, query: str | None, storage: StorageOptions, listed_in: str, folder: str
) -> FileLookup:
    if not is_remote(uri):
        return _look_up_file(uri, listed_in, folder)
    try:
        found = head_object(uri, storage, query)
    except UsageError as error:
        return FileLookup(problem=(RejectReason.BAD_VALUE, str(error)))
    except StorageError as error:
        if (reason := reason_of(error, uri)) is None:
            raise
        return FileLookup(problem=(reason, str(error)))
    if found is None:
        return _missing(uri, f"listed in {listed_in}, but there is no such object", folder)
    problem = size_problem(found.num_bytes)
    return FileLookup(problem=problem) if problem else FileLookup(found.num_bytes, found.etag)


def _missing(uri: str, detail: str, folder: str) -> FileLookup:
    """Return the state of a missing file, with where it was looked for, or the likely cause."""
    below = f"{redact(folder).rstrip('/')}/"
    if "\\" in uri.removeprefix(below):
        detail += ": write / in place of the backslashes of its path"
    elif uri.startswith(below):
        detail += f" below {below}: give --image-root, the folder that relative paths start from"
    return FileLookup(problem=(RejectReason.MISSING_FILE, detail))
