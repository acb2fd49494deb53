"""Turn rows of Parquet and Arrow files into references; embedded images go to the spool."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError
from shardwright.storage.options import StorageOptions
from shardwright.transforms.features.lists import is_list
from shardwright.transforms.inputs.embedded.embedded_layout import (
    EmbeddedLayout,
    PictureParts,
    picture_parts,
)
from shardwright.transforms.inputs.embedded.embedded_look import EmbeddedFacts
from shardwright.transforms.inputs.file_lookups import look_up
from shardwright.transforms.inputs.file_rules import Problem, size_problem
from shardwright.transforms.inputs.image_paths import resolve_paths
from shardwright.transforms.inputs.input_files import InputFile
from shardwright.transforms.inputs.source import Rows, SourceRequest
from shardwright.transforms.inputs.spool import SpoolWriter
from shardwright.transforms.inputs.tables.table_columns import (
    as_text,
    canonical_splits,
    empty_as_null,
)
from shardwright.transforms.references import (
    BATCH_ROWS,
    PICTURE_TYPE,
    concat,
    extra_name,
    keep_rows,
)
from shardwright.transforms.rejects import Reject, RejectReason

_BATCH_BYTES = 16 << 20  # per batch, without images
Found = dict[str, Any] | Problem | None  # a PICTURE_TYPE value, a problem, or None without image
_NO_IMAGE: Problem = (RejectReason.BAD_VALUE, "the image column is empty")


class RawRows(NamedTuple):
    """Rows as they were read.

    Attributes:
        columns: Their columns.
        pictures: Image column -> its images, if they are not in `columns`: Arrow would copy them.
    """

    columns: pa.RecordBatch
    pictures: Mapping[str, Sequence[PictureParts]] = MappingProxyType({})


def list_rows(
    facts: EmbeddedFacts, file: InputFile, batches: Iterator[RawRows], writer: SpoolWriter
) -> Rows:
    """Yield the rows of one file as references, and rejects.

    Args:
        facts: The facts about INPUT.
        file: The rows' file; ids start with its name, and its split applies without a split column.
        batches: The rows, in order.
        writer: Stores embedded images in the spool.

    Raises:
        BuildError: The file's columns differ from those of the first file.
    """
    pending: list[pa.RecordBatch] = []
    first_row = num_rows = num_bytes = 0
    for raw in batches:
        declared = raw._replace(columns=_as_declared(raw.columns, facts.layout, file))
        references, rejects = _references(facts, file, declared, first_row, writer)
        yield from rejects
        first_row += raw.columns.num_rows
        pending.append(references)
        num_rows, num_bytes = num_rows + references.num_rows, num_bytes + references.nbytes
        if num_rows >= BATCH_ROWS or num_bytes >= _BATCH_BYTES:
            yield concat(pending)
            pending, num_rows, num_bytes = [], 0, 0
    if num_rows:
        yield concat(pending)


def _as_declared(raw: pa.RecordBatch, layout: EmbeddedLayout, file: InputFile) -> pa.RecordBatch:
    """Return the batch with the columns of the first file; a missing column is null.

    Raises:
        BuildError: The image column is missing, a column has a type that cannot be cast, or the
            first file does not have it.
    """
    lacks_image = layout.image is not None and layout.image not in raw.schema.names
    if lacks_image or set(raw.schema.names) - set(layout.columns.names):
        raise BuildError(
            f"{file.uri} has the columns {', '.join(map(repr, raw.schema.names))}, but the first "
            f"file {', '.join(map(repr, layout.columns.names))}: "
            "build from files with the same columns"
        )
    columns = []
    for wanted in layout.columns:
        column = (
            raw.column(wanted.name)
            if wanted.name in raw.schema.names
            else pa.nulls(raw.num_rows, wanted.type)
        )
        try:
            columns.append(column if column.type == wanted.type else column.cast(wanted.type))
        except pa.ArrowException as error:
            types = f"has type {column.type}, but {wanted.type} in the first file"
            raise BuildError(f"column {wanted.name!r} of {file.uri} {types}: {error}") from error
    return pa.RecordBatch.from_arrays(columns, layout.columns.names)


def _references(
    facts: EmbeddedFacts, file: InputFile, rows: RawRows, first_row: int, writer: SpoolWriter
) -> tuple[pa.RecordBatch, list[Reject]]:
    layout, raw = facts.layout, rows.columns
    numbers = np.arange(first_row, first_row + raw.num_rows)
    numbered = pa.array([f"{file.name}#{row}" for row in numbers.tolist()], pa.string())
    ids = numbered if layout.id is None else empty_as_null(_text(raw, layout.id))
    problems: list[Problem | None] = [
        None if there else (RejectReason.BAD_ID, "the id is empty")
        for there in ids.is_valid().to_pylist()
    ]
    pictures = {}
    for name in filter(None, (layout.image, *layout.others)):
        parts = rows.pictures.get(name) or picture_parts(raw.column(name))
        found = _find_pictures(parts, file, facts.request, writer, problems)
        needed = name == layout.image and not facts.request.may_lack_images
        missing = _NO_IMAGE if needed else None
        pictures[name] = _settled([one or missing for one in found], problems)
    main = pictures[layout.image] if layout.image else pa.nulls(raw.num_rows, PICTURE_TYPE)
    columns: dict[str, pa.Array] = {
        "id": pc.coalesce(ids, numbered),
        "uri": pc.fill_null(main.field("uri"), file.uri),
        "offset": pc.if_else(main.is_null(), pa.scalar(0, pa.int64()), main.field("offset")),
        "num_bytes": pc.fill_null(main.field("num_bytes"), 0),
        "etag": main.field("etag"),
        "row": pa.array(numbers),
        **_role_columns(raw, file, layout),
    }
    for name in layout.extras:
        columns[extra_name(name)] = (
            pictures[name] if name in pictures else _named(raw.column(name), layout.names_in(name))
        )
    batch = pa.RecordBatch.from_pydict(columns)
    rejects = _rejects_of(batch, problems, file)
    return keep_rows(batch, np.array([problem is None for problem in problems])), rejects


def _role_columns(
    raw: pa.RecordBatch, file: InputFile, layout: EmbeddedLayout
) -> dict[str, pa.Array]:
    """Return the split, group and label of each row."""
    return {
        "split": canonical_splits(_text(raw, layout.split))
        if layout.split
        else pa.array([file.split] * raw.num_rows, pa.string()),
        "group": empty_as_null(_text(raw, layout.group)),
        "label": empty_as_null(_text(raw, layout.label))
        if layout.label is None or layout.label not in layout.class_names
        else _named(raw.column(layout.label), layout.class_names[layout.label]),
    }


def _text(raw: pa.RecordBatch, column: str | None) -> pa.Array:
    """Return a column as text; nulls without a column."""
    if column is None:
        return pa.nulls(raw.num_rows, pa.string())
    return as_text(raw.column(column), column)


def _rejects_of(
    batch: pa.RecordBatch, problems: Sequence[Problem | None], file: InputFile
) -> list[Reject]:
    columns = (batch.column(name).to_pylist() for name in ("id", "uri", "row"))
    return [
        Reject(one, uri, problem[0], f"row {row} of {file.name}: {problem[1]}")
        for one, uri, row, problem in zip(*columns, problems, strict=True)
        if problem
    ]


def _find_pictures(
    parts: Sequence[PictureParts],
    file: InputFile,
    request: SourceRequest,
    writer: SpoolWriter,
    problems: Sequence[Problem | None],
) -> list[Found]:
    """Return where each row's image is; embedded images go to the spool, unless of bad rows."""
    # Relative paths of images that are not embedded start from the file's folder.
    root = request.image_root or os.path.dirname(file.uri)
    paths = [None if data is not None else path for data, path in parts]
    found = _look_up_files(paths, root, request.storage)
    for row, (data, _) in enumerate(parts):
        if data is not None and problems[row] is None:
            found[row] = size_problem(len(data)) or writer.place(data)
    return found


def _look_up_files(paths: Sequence[str | None], root: str, storage: StorageOptions) -> list[Found]:
    """Return the files of images that have a path but are not embedded."""
    named = [row for row, path in enumerate(paths) if path]
    result: list[Found] = [None] * len(paths)
    if not named:
        return result
    _, addresses = resolve_paths(pa.array([paths[row] for row in named], pa.string()), root)
    uris = addresses.to_pylist()
    lookups = look_up(uris, storage, folder=root)
    for row, uri, lookup in zip(named, uris, lookups, strict=True):
        problem = lookup.problem and (lookup.problem[0], f"{uri}: {lookup.problem[1]}")
        result[row] = problem or lookup.as_picture(uri)
    return result


def _settled(found: Sequence[Found], problems: list[Problem | None]) -> pa.Array:
    """Return images as PICTURE_TYPE, and add to `problems`; a row keeps its first problem."""
    for row, one in enumerate(found):
        if isinstance(one, tuple):
            problems[row] = problems[row] or one
    return pa.array([None if isinstance(one, tuple) else one for one in found], PICTURE_TYPE)


def _named(column: pa.Array, names: Sequence[str] | None) -> pa.Array:
    """Return a column; with class names, these in place of its numbers."""
    if names is None:
        return column
    if not is_list(column.type):
        return _names_of(column, names)
    lists = column.cast(pa.list_(column.type.value_type))
    return pa.ListArray.from_arrays(
        lists.offsets, _names_of(lists.values, names), mask=lists.is_null()
    )


def _names_of(numbers: pa.Array, names: Sequence[str]) -> pa.Array:
    """Return the class name of each number.

    -1, which data sets use for an unknown class, becomes null; other numbers become text.
    """
    numbers = numbers.cast(pa.int64())
    known = pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, len(names)))
    named = pa.array(names, pa.string()).take(
        pc.if_else(known, numbers, pa.scalar(None, pa.int64()))
    )
    stated = pc.if_else(pc.equal(numbers, -1), pa.scalar(None, pa.int64()), numbers)
    return pc.coalesce(named, stated.cast(pa.string()))
