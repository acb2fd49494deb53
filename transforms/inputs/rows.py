"""Turn rows with images in a column into references; embedded images go to the spool.

Rows are those of Parquet and Arrow files, records of Python, tf.Examples and WebDataset samples.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError, UsageError
from shardwright.format.schema import Feature
from shardwright.transforms.features.lists import (
    empty_as_null,
    is_list,
    is_number,
    null_rows,
    value_type,
)
from shardwright.transforms.inputs import boxes
from shardwright.transforms.inputs.box_rows import HEADER_SIZE, BoxStructs
from shardwright.transforms.inputs.columns import (
    IMAGE_NAMES,
    NOT_A_CLASS,
    ROLE_COLUMNS,
    Columns,
    canonical_splits,
    check_names,
    check_width,
    class_texts,
    find_roles,
    folded,
    names_of,
    quoted,
    role_text,
)
from shardwright.transforms.inputs.file_rules import Problem, size_problem
from shardwright.transforms.inputs.image_paths import look_up_pictures
from shardwright.transforms.inputs.input_files import FilesSource, InputFile
from shardwright.transforms.inputs.source import Rows, SourceRequest
from shardwright.transforms.inputs.spool import SpoolWriter
from shardwright.transforms.references import (
    BATCH_ROWS,
    PICTURE_TYPE,
    ImagePlace,
    concat,
    extra_name,
    keep_rows,
)
from shardwright.transforms.rejects import Reject, RejectReason

NOT_FITTING = (pa.ArrowException, TypeError, ValueError, OverflowError)
_BATCH_BYTES = 16 << 20  # per batch, without images
_ROLES = {role: ROLE_COLUMNS[role] for role in ("label", "id", "split", "group")}
_NO_IMAGE: Problem = (RejectReason.BAD_VALUE, "the image column is empty")
NumberedRow = tuple[int, Mapping[str, Any]]  # its number in its file, and its values by column
PictureParts = tuple[bytes | None, str | None]  # an image's bytes, or else its path
Found = ImagePlace | Problem | None  # None without an image


class RawRows(NamedTuple):
    """Rows as they were read.

    Attributes:
        columns: Their columns.
        pictures: Image column -> its images, if they are not in `columns`: Arrow would copy them.
        places: Image column -> where its images are, if that is known.
        numbers: The rows' numbers in their file; None if they follow those of the rows before.
        faults: Row -> what is wrong with its values.
    """

    columns: pa.RecordBatch
    pictures: Mapping[str, Sequence[PictureParts]] = MappingProxyType({})
    places: Mapping[str, Sequence[Found]] = MappingProxyType({})
    numbers: Sequence[int] | None = None
    faults: Mapping[int, str] = MappingProxyType({})


def raw_rows(columns: Columns, rows: Sequence[NumberedRow]) -> RawRows:
    """Return rows with the places of their images as raw rows; a missing value is null."""
    numbers, values = zip(*rows, strict=True)
    places, arrays = {}, []
    faults: dict[int, str] = {}
    for name, kind in zip(columns.columns.names, columns.columns.types, strict=True):
        found = [row.get(name) for row in values]
        if name in (columns.image, *columns.pictures):
            places[name], found = found, [None] * len(found)
        array, misfits = array_and_misfits(found, kind)
        arrays.append(array)
        told = f"but others are {kind}"
        faults |= {row: f"{name!r} is {found[row]!r:.80}, {told}" for row in misfits}
    batch = pa.RecordBatch.from_arrays(arrays, columns.columns.names)
    return RawRows(batch, places=places, numbers=numbers, faults=faults)


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values as an array of a type; raise an error for one that would change."""
    if not pa.types.is_integer(value_type(kind)):
        return pa.array(values, kind)
    # Given the type, Arrow would truncate 1.5 to 1; a cast does not.
    array = pa.array(values)
    found = value_type(array.type)
    if not (is_number(found) or pa.types.is_null(found)):
        raise TypeError(f"{found} is no number")
    return array.cast(kind)


def array_and_misfits(values: Sequence[Any], kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Return values as an array of a type, with nulls for those that do not fit, and their rows."""
    try:
        return array_of(values, kind), []
    except NOT_FITTING:
        misfits = [row for row, value in enumerate(values) if not _fits(value, kind)]
    kept = list(values)
    for row in misfits:
        kept[row] = None
    return array_of(kept, kind), misfits


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        array_of([value], kind)
    except NOT_FITTING:
        return False
    return True


def picture_parts(column: pa.Array) -> list[PictureParts]:
    """Return each row of an image column, of bytes or of the hub's struct<bytes, path>."""
    if not pa.types.is_struct(column.type):
        return [(value, None) for value in column.to_pylist()]
    return [
        (None, None) if value is None else (value.get("bytes"), value.get("path"))
        for value in column.to_pylist()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsSource(FilesSource):
    """Rows with images in a column.

    Attributes:
        layout: Their columns.
    """

    layout: Columns

    def bring(self, features: Sequence[Feature]) -> Self:
        layout = self.layout.for_features(features)
        return replace(self, layout=layout, schema=layout.reference_schema)


def columns_of(
    sample: pa.RecordBatch,
    pictures: Sequence[str],
    request: SourceRequest,
    place: str,
    *,
    lists: Sequence[str] = (),
    class_names: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    object_names: Callable[[str, str], tuple[str, ...]] | None = None,
    forced: bool = True,
    usual: Mapping[str, Sequence[str]] = _ROLES,
    images: Sequence[str] = IMAGE_NAMES,
) -> Columns | None:
    """Return columns with their roles; None if the schema has an image and no column holds it.

    Args:
        sample: The first rows, with all columns.
        pictures: The columns of images.
        request: The request for INPUT.
        place: The input's name in messages.
        lists: The columns of lists of images.
        class_names: Column -> names of its class numbers; the label if it is the only one.
        object_names: Returns the class names of a field of a column of structs; None to make no
            objects of such a column.
        forced: True to raise an error instead of returning None.
        usual: As for `find_roles`.
        images: Usual names of columns of images.

    Raises:
        UsageError: A column given by an option is missing or does not suit its role; the images
            are in lists; the main image is ambiguous; or two columns have the same name.
        BuildError: A column's type does not suit its role.
    """
    schema, given, image = sample.schema, request.columns.get("image"), None
    check_width(place, schema.names)
    check_names(place, schema.names)
    if request.image is not None:
        find_roles(sample, request, place, {"image": ()}, texts=True)
        if given in lists or (lists and not pictures and given is None):
            raise UsageError(
                f"column {given or lists[0]!r} of {place} holds lists of images, but a record has "
                "one main image: write a row for each image, or a column for each position in the "
                "list"
            )
        there = {folded(name): name for name in reversed(pictures)}
        known = [there[name] for name in images if name in there]
        if given is None and not known and len(pictures) > 1:
            raise UsageError(
                f"{place} has several columns of images, {', '.join(map(repr, pictures))}: choose "
                "the main one with --image-column"
            )
        image = next(iter((*known, *pictures)), None) if given is None else given
        if image not in pictures:
            if not forced:
                return None
            no_image = f"--image-column {given!r} of {place} does not hold"
            raise UsageError(
                f"{no_image if given else f'no column of {place} holds'} encoded images (JPEG, "
                "PNG, ...); it has the columns "
                f"{quoted(schema.names)}: choose --image-column, or for records without images "
                "give --schema records, or a schema of your own without an image"
            )
    roles = find_roles(sample, request, place, usual, odd=pictures)
    classes = [name for name in class_names if not is_list(schema.field(name).type)]
    if roles["label"] is None and len(classes) == 1 and classes[0] not in roles.values():
        roles["label"] = classes[0]
    structs = BoxStructs.find(schema, request.kinds) if image and object_names else None
    if structs is not None and (field := structs.values.label) and object_names:
        structs = structs.with_names(object_names(structs.column, field))
    return Columns(
        structs=structs,
        columns=schema.remove_metadata(),
        image=image,
        pictures=tuple(name for name in pictures if name != image),
        class_names=dict(class_names),
        **roles,
    )


def list_rows(
    layout: Columns,
    request: SourceRequest,
    file: InputFile,
    batches: Iterable[RawRows | Reject],
    writer: SpoolWriter | None,
    *,
    etag: str | None = None,
) -> Rows:
    """Yield the rows of one file as references, and rejects.

    A column of structs with objects is in them as it is, with the sizes of images in `HEADER_SIZE`.

    Args:
        layout: The columns of the rows.
        request: The request for INPUT.
        file: The rows' file; ids start with its name, and its split applies without a split column.
        batches: The rows, in order, and rejects of others.
        writer: Stores embedded images in the spool; None if there are none.
        etag: That of rows without an image.

    Raises:
        BuildError: The file's columns differ from those of the first file.
    """
    pending: list[pa.RecordBatch] = []
    first_row = num_rows = num_bytes = 0
    for raw in batches:
        if isinstance(raw, Reject):
            yield raw
            continue
        next_row = first_row + raw.columns.num_rows
        numbers = raw.numbers or range(first_row, next_row)
        first_row = next_row
        rows = raw._replace(columns=_as_declared(raw.columns, layout, file))
        references, rejects = _references(layout, request, file, rows, numbers, writer, etag)
        yield from rejects
        pending.append(references)
        num_rows, num_bytes = num_rows + references.num_rows, num_bytes + references.nbytes
        if num_rows >= BATCH_ROWS or num_bytes >= _BATCH_BYTES:
            yield concat(pending)
            pending, num_rows, num_bytes = [], 0, 0
    if num_rows:
        yield concat(pending)


def _as_declared(raw: pa.RecordBatch, layout: Columns, file: InputFile) -> pa.RecordBatch:
    """Return the batch with the columns of the first file; a missing column is null.

    Raises:
        BuildError: The image column is missing, a column has a type that cannot be cast, or the
            first file does not have it.
    """
    lacks_image = layout.image is not None and layout.image not in raw.schema.names
    # An unknown column would be lost in silence.
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
    layout: Columns,
    request: SourceRequest,
    file: InputFile,
    rows: RawRows,
    numbers: Sequence[int],
    writer: SpoolWriter | None,
    etag: str | None,
) -> tuple[pa.RecordBatch, list[Reject]]:
    raw = rows.columns
    numbered = pa.array([f"{file.name}#{row}" for row in numbers], pa.string())
    ids = numbered if layout.id is None else empty_as_null(role_text(raw, layout.id))
    # A row keeps its first problem.
    problems: dict[int, Problem] = {
        row: (RejectReason.BAD_VALUE, told) for row, told in rows.faults.items()
    }
    for row in np.flatnonzero(null_rows(ids)).tolist():
        problems.setdefault(row, (RejectReason.BAD_ID, "the id is empty"))
    pictures = {}
    for name in filter(None, (layout.image, *layout.pictures)):
        found = rows.places.get(name)
        if found is None:
            found = _find_pictures(_parts_of(rows, name), file, request, writer, problems)
        missing = None if name != layout.image or request.may_lack_images else _NO_IMAGE
        for row, one in enumerate(found):
            problem = one or missing
            if problem is not None and not isinstance(problem, ImagePlace):
                problems.setdefault(row, problem)
        places = [one if isinstance(one, ImagePlace) else None for one in found]
        pictures[name] = pa.array(places, PICTURE_TYPE)
    main = pictures[layout.image] if layout.image else pa.nulls(raw.num_rows, PICTURE_TYPE)
    columns: dict[str, pa.Array] = {
        # A row without an id is a reject, which needs a name, too.
        "id": pc.coalesce(ids, numbered),
        "uri": pc.fill_null(pc.struct_field(main, "uri"), file.uri),
        "offset": pc.if_else(main.is_null(), pa.scalar(0, pa.int64()), main.field("offset")),
        "num_bytes": pc.fill_null(pc.struct_field(main, "num_bytes"), 0),
        "etag": pc.coalesce(pc.struct_field(main, "etag"), pa.scalar(etag, pa.string())),
        "row": pa.array(numbers, pa.int64()),
        "split": canonical_splits(role_text(raw, layout.split))
        if layout.split
        else pa.array([file.split] * raw.num_rows, pa.string()),
        "group": empty_as_null(role_text(raw, layout.group)),
        "label": _labels(raw, layout, problems),
    }
    for name in layout.extras:
        columns[extra_name(name)] = (
            pictures[name] if name in pictures else _named(raw.column(name), layout.names_in(name))
        )
    if layout.structs is not None and layout.image is not None:
        columns[extra_name(layout.structs.column)] = raw.column(layout.structs.column)
        sizes = [data and boxes.size_in(data) for data, _ in _parts_of(rows, layout.image)]
        for name, side in zip(HEADER_SIZE, (0, 1), strict=True):
            columns[name] = pa.array([one and one[side] for one in sizes], pa.float64())
    batch = pa.RecordBatch.from_pydict(columns)
    rejects, keep = [], np.ones(batch.num_rows, bool)
    for row, (reason, told) in sorted(problems.items()):
        keep[row] = False
        name, uri = (batch[column][row].as_py() for column in ("id", "uri"))
        rejects.append(Reject(name, uri, reason, f"row {numbers[row]} of {file.name}: {told}"))
    return keep_rows(batch, keep), rejects


def _parts_of(rows: RawRows, name: str) -> Sequence[PictureParts]:
    return rows.pictures.get(name) or picture_parts(rows.columns.column(name))


def _labels(raw: pa.RecordBatch, layout: Columns, problems: dict[int, Problem]) -> pa.Array:
    """Return the label of each row, and add to `problems`."""
    name = layout.label
    if name is None:
        return pa.nulls(raw.num_rows, pa.string())
    texts, bad = class_texts(raw.column(name), name)
    for row in np.flatnonzero(bad).tolist():
        told = f"the label {texts[row]} {NOT_A_CLASS}"
        problems.setdefault(row, (RejectReason.BAD_VALUE, told))
    names = layout.class_names.get(name)
    return texts if names is None else names_of(raw.column(name), names)


def _find_pictures(
    parts: Sequence[PictureParts],
    file: InputFile,
    request: SourceRequest,
    writer: SpoolWriter | None,
    problems: Container[int],
) -> list[Found]:
    """Return where each row's image is; embedded images go to the spool, unless of bad rows."""
    # Relative paths of images that are not embedded start from the file's folder.
    root = request.image_root or os.path.dirname(file.uri)
    paths = [None if data is not None else path for data, path in parts]
    found: list[Found] = []
    for each in look_up_pictures(paths, request.storage, root):
        uri, one = each or ("", None)
        found.append(
            one if one is None or isinstance(one, ImagePlace) else (one[0], f"{uri}: {one[1]}")
        )
    for row, (data, _) in enumerate(parts):
        if data is not None and row not in problems:
            assert writer is not None
            found[row] = size_problem(len(data)) or writer.place(data)
    return found


def _named(column: pa.Array, names: Sequence[str] | None) -> pa.Array:
    """Return a column; with class names, these in place of its numbers."""
    if names is None:
        return column
    if not is_list(column.type):
        return names_of(column, names)
    lists = column.cast(pa.list_(column.type.value_type))
    return pa.ListArray.from_arrays(
        lists.offsets, names_of(lists.values, names), mask=lists.is_null()
    )
