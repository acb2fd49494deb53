"""Turn Python records into Arrow batches with the columns of the first records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.schema import PICTURES, Feature, FeatureKind
from shardwright.format.tensors import TENSOR_DTYPES
from shardwright.transforms.features.lists import is_list
from shardwright.transforms.inputs.columns import ROLE_COLUMNS
from shardwright.transforms.inputs.formats.record_forms import (
    IndexedPixels,
    Record,
    column_value,
    is_picture,
    picture_bytes,
    picture_path,
)
from shardwright.transforms.inputs.rows import (
    NOT_FITTING,
    PictureParts,
    RawRows,
    array_and_misfits,
)

Shape = tuple[int | None, ...]

_STATED = {
    FeatureKind.FLOAT32: pa.float64(), FeatureKind.INT64: pa.int64(), FeatureKind.TEXT: pa.string()
}  # fmt: skip
_LARGE_BYTES = 8 << 10  # of an array that a thread encodes
URI = "python"  # stands for the place of records in rejects
_PICTURE = pa.struct([("bytes", pa.large_binary()), ("path", pa.string())])
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_null)


def type_of(name: str, values: Sequence[Any], said: FeatureKind | None) -> pa.DataType:
    """Return the Arrow type of a column's values; a schema decides that of integers and of none.

    Values that do not fit a type that the schema decides are rejects later.

    Args:
        name: The key of the values.
        values: Simple values.
        said: The kind of the feature that the schema fills from them, or None.

    Raises:
        UsageError: The values have no common type.
    """
    wanted = _STATED.get(said) if said is not None else None
    plain = [column_value(value, as_lists=True) for value in values]
    try:
        kind = pa.array(plain).type
    except NOT_FITTING as error:
        if wanted is None:
            raise UsageError(_mixed(name, plain, error)) from error
        has_lists = any(isinstance(value, list | np.ndarray) for value in plain)
        return pa.list_(wanted) if has_lists else wanted
    inner = kind.value_type if is_list(kind) else kind
    may_change = pa.types.is_null(inner) or (pa.types.is_integer(inner) and wanted != pa.string())
    if wanted is None or not may_change:
        return kind
    return pa.list_(wanted) if is_list(kind) else wanted


def _mixed(name: str, plain: Sequence[Any], error: Exception) -> str:
    """Return the message about the first value that does not fit those before it."""
    for number in range(1, len(plain) + 1):
        try:
            pa.array(plain[:number])
        except NOT_FITTING:
            break
    return (
        f"key {name!r} of record {number - 1} is {plain[number - 1]!r:.80}, which cannot be stored "
        f"as one feature with the values before it ({error}): give all records values of one type, "
        "or declare the key with schema=, so that others are rejects"
    )


def tensor_feature(name: str, arrays: Sequence[np.ndarray[Any, Any]]) -> Feature:
    """Return the feature of arrays; only the first dimension of their shape may vary.

    Raises:
        UsageError: They differ in more than that.
    """
    first = arrays[0]
    shape: Shape = first.shape
    if any(array.shape != first.shape for array in arrays):
        shape = (None, *first.shape[1:])
    if first.dtype.name not in TENSOR_DTYPES or any(
        array.dtype != first.dtype or not _has_shape(array, shape) for array in arrays
    ):
        shapes = sorted({f"{array.dtype} {array.shape}" for array in arrays})
        raise UsageError(
            f"key {name!r} holds arrays of {', '.join(shapes[:3])}: a tensor has one dtype of "
            f"{', '.join(TENSOR_DTYPES)}, and only its first dimension may vary"
        )
    return Feature(name, FeatureKind.TENSOR, shape=shape, dtype=first.dtype.name)


def _has_shape(array: np.ndarray[Any, Any], shape: Shape) -> bool:
    """Return whether an array has a shape, with None for any size."""
    return len(array.shape) == len(shape) and all(
        size in (None, found) for size, found in zip(shape, array.shape, strict=True)
    )


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The columns of records.

    Attributes:
        schema: Name and type of each; that of images is a struct of bytes and path.
        tensors: The features of arrays of several dimensions.
        flat: The columns whose arrays are flattened, because a schema declares them as lists.
        shapes: The shapes that a schema declares for them.
        masks: The columns of `pictures` that hold class or instance numbers.
        numbered: Column for the numbers of records without an id, or "".
    """

    schema: pa.Schema
    tensors: Mapping[str, Feature] = field(default_factory=dict)
    flat: tuple[str, ...] = ()
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    masks: tuple[str, ...] = ()
    numbered: str = ""

    @property
    def pictures(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.schema if column.type == _PICTURE)

    def rows(self, records: Sequence[Record], ids: Sequence[str], pool: Executor) -> RawRows:
        """Return records as rows, with what is wrong with those that do not fit the columns.

        Args:
            records: The records, of simple values.
            ids: The number of each record as its id; for those without one.
            pool: Threads that encode images.
        """
        listed = ", ".join(name for name in self.schema.names if name != self.numbered)
        faults = {
            row: f"unknown key {name!r}; the known ones are {listed}"
            for row, record in enumerate(records)
            for name in record.keys() - {*self.schema.names}
        }
        arrays, pictures = [], {}
        for column in self.schema:
            values = [record.get(column.name) for record in records]
            if column.name == self.numbered:
                arrays.append(pa.array(ids, column.type))
            elif column.type == _PICTURE:
                arrays.append(pa.nulls(len(values), _PICTURE))
                is_mask = column.name in self.masks
                pictures[column.name], found = _pictures(values, column.name, pool, is_mask)
                faults |= found
            else:
                array, found = self._values(values, column)
                arrays.append(array)
                faults |= found
        rows = pa.RecordBatch.from_arrays(arrays, self.schema.names)
        return RawRows(rows, pictures, faults=faults)

    def plain_columns(self, records: Sequence[Record]) -> pa.RecordBatch:
        """Return all columns of records, with the values of numbers; others are null."""
        arrays = [
            array_and_misfits([record.get(column.name) for record in records], column.type)[0]
            if pa.types.is_floating(column.type)
            else pa.nulls(len(records), column.type)
            for column in self.schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _values(self, values: Sequence[Any], column: pa.Field) -> tuple[pa.Array, dict[int, str]]:
        name, shape = column.name, self.shapes.get(column.name, ())
        faults = {}
        for row, value in enumerate(values) if name in self.shapes else ():
            # A flat array has no shape of its own.
            if isinstance(value, np.ndarray) and value.ndim > 1 and not _has_shape(value, shape):
                sizes = ", ".join("any" if size is None else str(size) for size in shape)
                told = f"must have the shape ({sizes}), got {value.dtype} {value.shape}"
                faults[row] = f"key {name!r} {told}"
        plain = [
            None if row in faults else column_value(value, as_lists=name in self.flat)
            for row, value in enumerate(values)
        ]
        array, misfits = array_and_misfits(plain, column.type)
        told = f"key {name!r} must be {column.type}"
        return array, faults | {row: f"{told}, got {values[row]!r:.80}" for row in misfits}


def infer_columns(
    records: Sequence[Record],
    said: Mapping[str, FeatureKind],
    *,
    shapes: Mapping[str, Shape] | None = None,
    find_images: bool = True,
) -> RecordColumns:
    """Return the columns of the first records.

    Args:
        records: The first records, of simple values; a key may be missing in some.
        said: Column -> kind, where `--schema` or an option sets it.
        shapes: Column -> shape, where `--schema` sets it.
        find_images: Columns are images by their values, too; if False by `said` only.

    Raises:
        UsageError: A key is no text, the values of a key cannot be one feature, or a key of images
            has none.
    """
    keys = {name: None for record in records for name in record}
    if bad := [name for name in keys if not isinstance(name, str) or not name]:
        raise UsageError(f"the keys of records must be texts, got {bad[0]!r}: rename it")
    columns = {name: [record.get(name) for record in records] for name in keys}
    pictures = _picture_columns(columns, said, find_images=find_images)
    tensors: dict[str, Feature] = {}
    flat = []
    types = {}
    for name, values in columns.items():
        arrays = [value for value in values if isinstance(value, np.ndarray) and value.ndim > 1]
        if name in pictures:
            types[name] = _PICTURE
        elif arrays and said.get(name, FeatureKind.TENSOR) == FeatureKind.TENSOR:
            types[name] = pa.large_binary()
            tensors[name] = tensor_feature(name, arrays)
        else:
            flat.append(name)
            types[name] = type_of(name, values, said.get(name))
    return RecordColumns(
        pa.schema(list(types.items())),
        tensors,
        flat=tuple(flat),
        shapes={name: shape for name, shape in (shapes or {}).items() if name in flat},
        masks=tuple(name for name in sorted(pictures) if said.get(name) is FeatureKind.MASK),
    )


def hold_images(records: Sequence[Record]) -> bool:
    """Return whether records have images: by a key's values, or by its name.

    So a wrong value under a usual name, such as `image`, is an error, and not a feature.
    """
    keys = {name for record in records for name in record}
    names = {name.strip().lower() for name in keys if isinstance(name, str)}
    return not names.isdisjoint(ROLE_COLUMNS["image"]) or any(
        is_picture(value) for record in records for value in record.values()
    )


def _picture_columns(
    columns: Mapping[str, Sequence[Any]], said: Mapping[str, FeatureKind], *, find_images: bool
) -> set[str]:
    """Return the columns of images: by a schema, else by their values, else by a usual name."""
    pictures = {name for name in columns if said.get(name) in PICTURES}
    if find_images:
        pictures |= {name for name in columns.keys() - said if any(map(is_picture, columns[name]))}
        pictures = pictures or set(_usual_columns(columns, said)[:1])
    for name in pictures:
        _check_pictures(name, columns[name])
    return pictures


def _usual_columns(
    columns: Mapping[str, Sequence[Any]], said: Mapping[str, FeatureKind]
) -> list[str]:
    """Return the columns whose names are usual for images: those with paths, then undeclared ones.

    So a wrong value under such a name is an error that names the key.
    """
    by_lower = {name.strip().lower(): name for name in columns}
    usual = [by_lower[name] for name in ROLE_COLUMNS["image"] if name in by_lower]
    paths = [name for name in usual if any(isinstance(value, str) for value in columns[name])]
    return [*paths, *(name for name in usual if name not in said)]


def _check_pictures(name: str, values: Sequence[Any]) -> None:
    """Raise UsageError if no value of a column of images is one; otherwise, others are rejects."""
    given = [value for value in values if value is not None]
    if not given or any(isinstance(one, str | bytes) or is_picture(one) for one in given):
        return
    try:
        picture_bytes(given[0])
    except ValueError as error:
        raise UsageError(
            f"key {name!r}: {error}. Scale floats to uint8, or store them as a feature, a tensor: "
            "rename the key, or give --schema records"
        ) from error


def _pictures(
    values: Sequence[Any], name: str, pool: Executor, is_mask: bool
) -> tuple[list[PictureParts], dict[int, str]]:
    """Return the images of a column, and what is wrong with the others."""
    # Handing bytes or a few pixels to a thread takes longer than what it does with them.
    is_large = any(
        isinstance(value, IndexedPixels)
        or (isinstance(value, np.ndarray) and value.nbytes >= _LARGE_BYTES)
        for value in values
    )
    encode = partial(_encoded, is_mask=is_mask)
    encoded = list((pool.map if is_large else map)(encode, values))
    faults = {
        row: f"key {name!r}: {result}"
        for row, result in enumerate(encoded)
        if isinstance(result, ValueError)
    }
    data = (None if isinstance(result, ValueError) else result for result in encoded)
    return list(zip(data, map(picture_path, values), strict=True)), faults


def _encoded(value: Any, is_mask: bool) -> bytes | ValueError | None:
    try:
        return picture_bytes(value, is_mask=is_mask)
    except ValueError as error:
        return error
