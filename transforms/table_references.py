"""Turning a table's raw rows into references: paths, ids, labels, splits and extra features."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError
from transforms.folders import SPLIT_FOLDERS, etag_of, file_problem
from transforms.references import REFERENCE_SCHEMA, extra_columns, extra_name, keep_rows, reject_rows, set_column
from transforms.rejects import Reject, RejectReason
from transforms.tables import TableSource, read_table

# A path that must be looked at one by one: absolute, dotted, doubled slashes, or with a scheme.
_ODD_PATH = r"^[/~]|(^|/)\.{1,2}(/|$)|//|^file:"
_TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string)


def list_table(source: TableSource) -> Iterator[pa.RecordBatch | Reject]:
    """The table's rows as references, in batches, and a reject for each row that can be none."""
    first_row = 0
    for part in read_table(source):
        if isinstance(part, Reject):
            yield part
            continue
        yield from table_references(source, part, first_row)
        first_row += part.num_rows


def table_references(source: TableSource, raw: pa.RecordBatch, first_row: int) -> Iterator[pa.RecordBatch | Reject]:
    """One raw batch as references and rejects."""
    rows = pa.array(np.arange(first_row, first_row + raw.num_rows))
    paths = as_text(raw.column(source.image), source.image)
    named = pc.and_(pc.is_valid(paths), pc.not_equal(pc.fill_null(paths, ""), ""))
    for row in rows.filter(pc.invert(named)).to_pylist():
        yield Reject("", source.path, RejectReason.BAD_VALUE, f"row {row}: the image column {source.image!r} is empty")
    raw, rows, paths = raw.filter(named), rows.filter(named), paths.filter(named)
    relative, uris = resolve_paths(paths, source.root)
    ids = relative if source.id is None else as_text(raw.column(source.id), source.id)
    batch = pa.RecordBatch.from_pydict(
        {
            "id": pc.fill_null(ids, ""),
            "uri": uris,
            "num_bytes": _sizes(raw, source.size),
            "etag": pa.nulls(raw.num_rows, pa.string()),
            "row": rows,
            "split": canonical_splits(_role(raw, source.split)),
            "group": _role(raw, source.group),
            "label": _labels(raw, source.label),
            **{extra_name(name): extra_feature(raw.column(name), name) for name in source.extra_columns},
        },
    )
    yield from _check_rows(batch, look=source.names_files and source.size is None)


def _check_rows(batch: pa.RecordBatch, *, look: bool) -> Iterator[pa.RecordBatch | Reject]:
    no_id = pc.equal(batch.column("id"), "").to_numpy(zero_copy_only=False)
    yield from reject_rows(batch, no_id, RejectReason.BAD_ID, "row {row}: the id is empty")
    batch = keep_rows(batch, ~no_id)
    if look:
        problems, batch = look_at_files(batch)
        yield from problems
    yield from settle_extras(batch)


def settle_extras(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | Reject]:
    """Empty texts become "", empty floats NaN, empty lists []; an empty int has no such value, so its row is a reject."""
    for name in extra_columns(batch.schema):
        column = batch.column(name)
        if not column.null_count:
            continue
        if pa.types.is_int64(column.type):
            empty = column.is_null().to_numpy(zero_copy_only=False)
            column_name = name.partition("/")[2].replace("{", "{{").replace("}", "}}")
            detail = f"row {{row}}: {column_name!r} is empty, and an integer feature needs a value"
            yield from reject_rows(batch, empty, RejectReason.BAD_VALUE, detail)
            batch = keep_rows(batch, ~empty)
        else:
            batch = set_column(batch, name, _filled(column))
    if batch.num_rows:
        yield batch


def _filled(column: pa.Array) -> pa.Array:
    if pa.types.is_list(column.type):
        return pc.if_else(column.is_null(), pa.scalar([], column.type), column)
    return pc.fill_null(column, float("nan") if pa.types.is_floating(column.type) else b"")


def look_at_files(batch: pa.RecordBatch) -> tuple[list[Reject], pa.RecordBatch]:
    """Fill in each file's length and time of change; what is missing or can be no image is a reject."""
    rejects, sizes, etags = [], [], []
    for image_id, uri in zip(batch.column("id").to_pylist(), batch.column("uri").to_pylist(), strict=True):
        try:
            status = os.stat(uri)
            problem = file_problem(status)
        except FileNotFoundError:
            problem = (RejectReason.MISSING_FILE, "named in the table, but there is no such file")
        except (OSError, ValueError) as error:  # ValueError: a path with a NUL in it
            problem = (RejectReason.UNREADABLE, str(getattr(error, "strerror", None) or error))
        if problem:
            rejects.append(Reject(image_id, uri, *problem))
        sizes.append(None if problem else status.st_size)
        etags.append(None if problem else etag_of(status))
    batch = set_column(batch, "num_bytes", pa.array(sizes, pa.int64()))
    batch = set_column(batch, "etag", pa.array(etags, pa.string()))
    return rejects, keep_rows(batch, batch.column("num_bytes").is_valid().to_numpy(zero_copy_only=False))


def resolve_paths(paths: pa.Array, root: str) -> tuple[pa.Array, pa.Array]:
    """(path relative to `root`, absolute path) of each path; a path outside `root` keeps the form it is written in."""
    uris = pc.binary_join_element_wise(root.rstrip("/"), paths, "/")
    odd = pc.match_substring_regex(paths, _ODD_PATH)
    if not pc.any(odd).as_py():
        return paths, uris
    relative_list, uri_list = paths.to_pylist(), uris.to_pylist()
    for row in np.flatnonzero(odd.to_numpy(zero_copy_only=False)):
        written = os.path.expanduser(relative_list[row].removeprefix("file://"))
        uri_list[row] = os.path.normpath(os.path.join(root, written))
        inside = os.path.relpath(uri_list[row], root)
        relative_list[row] = os.path.normpath(written).lstrip("/") if inside.startswith("..") else inside
    return pa.array(relative_list, pa.string()), pa.array(uri_list, pa.string())


def as_text(column: pa.Array, name: str) -> pa.Array:
    """A column of text or whole numbers as strings.

    Raises:
        BuildError: It is of another type.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return as_text(column.dictionary_decode(), name)
    if pa.types.is_null(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or any(is_text(kind) for is_text in _TEXT_TYPES):
        return column.cast(pa.string())
    raise BuildError(f"column {name!r} is of type {kind}; ids, paths, labels and splits are text or whole numbers")


def canonical_splits(column: pa.Array) -> pa.Array:
    """Split names as folders spell them: "Val" is "validation"; a name of the user's own stays."""
    names = column.dictionary_encode()
    spelled = [name and SPLIT_FOLDERS.get(name.strip().lower(), name.strip()) for name in names.dictionary.to_pylist()]
    return pa.array(spelled, pa.string()).take(names.indices)


def _role(raw: pa.RecordBatch, column: str | None) -> pa.Array:
    return pa.nulls(raw.num_rows, pa.string()) if column is None else as_text(raw.column(column), column)


def _labels(raw: pa.RecordBatch, column: str | None) -> pa.Array:
    labels = pc.utf8_trim_whitespace(_role(raw, column))
    return pc.if_else(pc.equal(labels, ""), pa.scalar(None, pa.string()), labels)


def _sizes(raw: pa.RecordBatch, column: str | None) -> pa.Array:
    if column is None:
        return pa.nulls(raw.num_rows, pa.int64())
    if not pa.types.is_integer(raw.column(column).type):
        raise BuildError(f"--size-column {column!r} is of type {raw.column(column).type}; it must hold bytes as whole numbers")
    return pc.fill_null(raw.column(column).cast(pa.int64()), 0)


def extra_type(kind: pa.DataType, name: str) -> pa.DataType:
    """The type an extra column has as a feature: int64, float32 or binary, or a list of one.

    Raises:
        BuildError: tf.Example has no such type.
    """
    if pa.types.is_dictionary(kind):
        return extra_type(kind.value_type, name)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(extra_type(kind.value_type, name))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float32()
    if pa.types.is_null(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or any(is_text(kind) for is_text in _TEXT_TYPES):
        return pa.binary()
    raise BuildError(f"column {name!r} is of type {kind}, which no tf.Example feature holds: cast it to text or a number, or drop it")


def extra_feature(column: pa.Array, name: str) -> pa.Array:
    """An extra column as its feature's type.

    Raises:
        BuildError: A value does not fit, or the type has no feature.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    target = extra_type(column.type, name)
    try:
        return column.cast(target, safe=not pa.types.is_floating(column.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BuildError(f"column {name!r} does not fit {target}: {error}") from error


def reference_schema_of(source: TableSource) -> pa.Schema:
    """The columns its reference batches have."""
    extras = [
        pa.field(extra_name(name), extra_type(source.schema.field(name).type, name)) for name in source.extra_columns
    ]
    return pa.schema([*REFERENCE_SCHEMA, *extras])
