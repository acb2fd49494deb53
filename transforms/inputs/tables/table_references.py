"""Turn a table's raw rows into references: the place of each image, and the values of its row."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import StorageError
from shardwright.storage import NO_OPTIONS, StorageOptions, is_remote, parse_address
from shardwright.storage.objects import head_object
from shardwright.storage.reads import map_reads
from transforms.inputs.file_rules import (
    IMAGE_EXTENSIONS,
    Problem,
    etag_of,
    file_problem,
    size_problem,
)
from transforms.inputs.tables.table_columns import (
    as_text,
    canonical_splits,
    empty_as_null,
    in_detail,
    settle_sizes,
)
from transforms.inputs.tables.table_files import read_table_file
from transforms.inputs.tables.table_layout import TableLayout
from transforms.references import (
    extra_name,
    keep_rows,
    reject_rows,
    set_column,
)
from transforms.rejects import Reject, RejectReason, reason_of

# Paths to resolve one by one: with dots, doubled slashes, a home folder, or the scheme file.
_ODD_PATH = r"^~|(^|/)\.{1,2}(/|$)|//|^file:"
_EMPTY = r"^$"
_SCHEME = r"^[A-Za-z][A-Za-z0-9+.-]*://"
_STORE = r"^(s3a?|gs|gcs|az|https?)://"
_IMAGE_ENDING = rf"(?is)(.)\.({'|'.join(sorted(IMAGE_EXTENSIONS))})$"
_OBJECT = rf"(?s){_STORE}[^/]+/+([^/])"  # a bucket and a key: only such an address can be read


def list_table(table: TableLayout, name: str = "") -> Iterator[pa.RecordBatch | Reject]:
    """Yield the rows of one of the table's files as reference batches, and rejects of bad rows.

    Args:
        name: One of `table.files`; "" for a table in one file. Rows are numbered per file.
    """
    first_row = 0
    for part in read_table_file(table.path_of(name), table.format, table.columns, table.storage):
        if isinstance(part, Reject):
            yield part
            continue
        for found in table_references(table, part, first_row, name):
            told_file = isinstance(found, Reject) and name and found.detail.startswith("row ")
            yield replace(found, detail=f"{name}: {found.detail}") if told_file else found
        first_row += part.num_rows


def table_references(
    table: TableLayout, raw: pa.RecordBatch, first_row: int, name: str = ""
) -> Iterator[pa.RecordBatch | Reject]:
    """Yield the references and rejects of one raw batch."""
    for part in _references(table, raw, first_row, name):
        if isinstance(part, Reject) or part.num_rows:
            yield part


def _references(
    table: TableLayout, raw: pa.RecordBatch, first_row: int, name: str
) -> Iterator[pa.RecordBatch | Reject]:
    """Yield references whose extra columns still have the table's types."""
    batch = _raw_references(table, raw, first_row, name)
    for column, pattern, reason, detail in _text_rules(table):
        values = pc.replace_substring_regex(batch.column(column), _OBJECT, r"/\2")
        mask = pc.match_substring_regex(values, pattern).to_numpy(zero_copy_only=False)
        yield from reject_rows(batch, mask, reason, detail)
        batch = keep_rows(batch, ~mask)
    if table.size is not None:
        yield from settle_sizes(batch)
    elif table.names_files:
        problems, batch = look_at_files(batch, table.storage)
        yield from problems
        yield batch
    else:  # a row of labels is found by its table, not by an image's path
        yield set_column(batch, "uri", pa.repeat(table.path_of(name), batch.num_rows))


def _text_rules(table: TableLayout) -> Iterator[tuple[str, str, RejectReason, str]]:
    """Yield (column, forbidden pattern, reason, detail)."""
    if table.names_files or table.id is None or table.key != "id":
        yield (
            "uri",
            _EMPTY,
            RejectReason.BAD_VALUE,
            f"row {{row}}: the image column {in_detail(table.image)} is empty",
        )
    yield "id", _EMPTY, RejectReason.BAD_ID, "row {row}: the id is empty"
    if table.names_files:
        yield (
            "uri",
            _SCHEME,
            RejectReason.BAD_VALUE,
            "row {row}: {uri} is not an object's address "
            "(s3://BUCKET/KEY, gs://BUCKET/KEY, az://CONTAINER/KEY, https://HOST/PATH)",
        )


def _raw_references(
    table: TableLayout, raw: pa.RecordBatch, first_row: int, name: str
) -> pa.RecordBatch:
    def text(column: str | None) -> pa.Array:
        return (
            pa.nulls(raw.num_rows, pa.string())
            if column is None
            else as_text(raw.column(column), column)
        )

    folder = table.folder_of(name)
    relative, uris = resolve_paths(pc.fill_null(text(table.image), ""), folder)
    if folder != table.root:  # two folders may each have their a.png
        relative, _ = resolve_paths(uris, table.root)
    columns = {
        "id": _ids(table, relative, text(table.id)),
        "uri": uris,
        "offset": pa.nulls(raw.num_rows, pa.int64()),
        "num_bytes": pa.nulls(raw.num_rows, pa.int64())
        if table.size is None
        else raw.column(table.size),
        "etag": pa.nulls(raw.num_rows, pa.string()),
        "row": pa.array(np.arange(first_row, first_row + raw.num_rows)),
        "split": canonical_splits(text(table.split)),
        "group": empty_as_null(text(table.group)),
        "label": empty_as_null(text(table.label)),
        **{extra_name(name): raw.column(name) for name in table.extra_columns},
    }
    return pa.RecordBatch.from_pydict(columns)


def _ids(table: TableLayout, paths: pa.Array, stated: pa.Array) -> pa.Array:
    """Return the id of each row; for a table of labels, its join key."""
    if table.key == "stem":
        return stems_of(paths)
    return paths if table.id is None or table.key == "path" else pc.fill_null(stated, "")


def stems_of(paths: pa.Array) -> pa.Array:
    """Return the file names of paths without an image's extension.

    Anything else after a dot may belong to the name.
    """
    return pc.replace_substring_regex(
        pc.replace_substring_regex(paths, r"(?s)^.*/", ""), _IMAGE_ENDING, r"\1"
    )


def look_at_files(
    batch: pa.RecordBatch, storage: StorageOptions = NO_OPTIONS
) -> tuple[list[Reject], pa.RecordBatch]:
    """Fill in each file's length and etag; reject missing files and those that cannot be images."""
    uris = batch.column("uri").to_pylist()
    found = look_at_each(uris, storage)
    rejects, sizes, etags = [], [], []
    for image_id, uri, look in zip(batch.column("id").to_pylist(), uris, found, strict=True):
        if look.problem:
            rejects.append(Reject(image_id, uri, *look.problem))
        sizes.append(look.num_bytes)
        etags.append(look.etag)
    batch = set_column(batch, "num_bytes", pa.array(sizes, pa.int64()))
    batch = set_column(batch, "etag", pa.array(etags, pa.string()))
    return rejects, keep_rows(
        batch, batch.column("num_bytes").is_valid().to_numpy(zero_copy_only=False)
    )


def look_at_each(uris: Sequence[str], storage: StorageOptions = NO_OPTIONS) -> Iterator[Look]:
    """Yield the state of each file or object, in order; objects are looked up concurrently."""
    if any(map(is_remote, uris)):
        yield from map_reads(lambda uri: _look_at_object(uri, storage), uris)
    else:
        yield from map(_look_at_file, uris)


class Look(NamedTuple):
    """A file's length and etag, or why it cannot be an image."""

    num_bytes: int | None = None
    etag: str | None = None
    problem: Problem | None = None


def _look_at_file(uri: str) -> Look:
    try:
        status = os.stat(uri)
    except (FileNotFoundError, NotADirectoryError):
        return Look(
            problem=(RejectReason.MISSING_FILE, "listed in the table, but there is no such file")
        )
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL byte
        return Look(
            problem=(RejectReason.UNREADABLE, str(getattr(error, "strerror", None) or error))
        )
    problem = file_problem(status)
    return Look(problem=problem) if problem else Look(status.st_size, etag_of(status))


def _look_at_object(uri: str, storage: StorageOptions) -> Look:
    if not is_remote(uri):
        return _look_at_file(uri)
    try:
        found = head_object(uri, storage)
    except StorageError as error:
        if (reason := reason_of(error)) is None:
            raise
        return Look(problem=(reason, str(error)))
    if found is None:
        return Look(
            problem=(RejectReason.MISSING_FILE, "listed in the table, but there is no such object")
        )
    problem = size_problem(found.num_bytes)
    return Look(problem=problem) if problem else Look(found.num_bytes, found.etag)


def resolve_paths(paths: pa.Array, root: str) -> tuple[pa.Array, pa.Array]:
    """Return (path relative to `root`, absolute path or address) for each path.

    A path outside `root` and a store's address stay as written in place of a relative path. An
    empty path stays empty in both.
    """
    folder = root.rstrip("/") + "/"
    below = pc.if_else(pc.equal(paths, ""), "", pc.binary_join_element_wise(folder, paths, ""))
    whole = pc.match_substring_regex(paths, f"^/|{_SCHEME}")
    uris = pc.if_else(whole, paths, below)
    relative = pc.if_else(
        pc.starts_with(paths, folder), pc.utf8_slice_codeunits(paths, len(folder)), paths
    )
    odd = pc.match_substring_regex(pc.replace_substring_regex(paths, _STORE, ""), _ODD_PATH)
    if not pc.any(odd).as_py():
        return relative, uris
    written, relative_list, uri_list = paths.to_pylist(), relative.to_pylist(), uris.to_pylist()
    for row in np.flatnonzero(odd.to_numpy(zero_copy_only=False)):
        relative_list[row], uri_list[row] = _resolve_path(written[row], folder)
    return pa.array(relative_list, pa.string()), pa.array(uri_list, pa.string())


def _resolve_path(written: str, folder: str) -> tuple[str, str]:
    path = written.removeprefix("file://")
    if re.match(_SCHEME, path):
        return path, path
    local = os.path.normpath(os.path.join(folder, os.path.expanduser(path)))
    uri = _join_key(folder, path) if is_remote(folder) and not path.startswith("/") else local
    return (uri.removeprefix(folder) if uri.startswith(folder) else os.path.normpath(path)), uri


def _join_key(folder: str, path: str) -> str:
    """Join a dotted path to a prefix.

    A path that leaves its bucket is only appended: no object has that name.
    """
    store, key = parse_address(folder)
    joined = posixpath.normpath(posixpath.join(key, path))
    return f"{folder}{path}" if joined.startswith("..") else f"{store}/{joined.lstrip('/')}"
