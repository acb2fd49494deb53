"""Turn Python records into Arrow batches with the columns of the first records."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.schema import PICTURES, Feature, FeatureKind
from shardwright.format.tensors import TENSOR_DTYPES
from transforms.features.lists import is_list, value_type
from transforms.inputs.embedded.embedded_layout import PictureParts
from transforms.inputs.embedded.embedded_references import RawRows
from transforms.inputs.records.record_values import (
    column_value,
    is_picture,
    picture_bytes,
    picture_path,
)
from transforms.inputs.tables.table_roles import ROLE_COLUMNS
from transforms.rejects import Reject, RejectReason

Record = Mapping[str, Any]
SAMPLE_RECORDS = 64  # the schema is inferred from them; as many are in memory at once
URI = "python"  # stands for the place of records in rejects
_PICTURE = pa.struct([("bytes", pa.large_binary()), ("path", pa.string())])
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_null)
_STATED = {
    FeatureKind.FLOAT32: pa.float64(), FeatureKind.INT64: pa.int64(), FeatureKind.TEXT: pa.string()
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The columns of records.

    Attributes:
        schema: Name and type of each; that of images is a struct of bytes and path.
        tensors: The features of arrays of several dimensions, unless a schema declares them.
        flat: The columns whose arrays are flattened, because a schema declares them as lists.
        numbered: Column for the numbers of records without an id, or "".
    """

    schema: pa.Schema
    tensors: Mapping[str, Feature] = field(default_factory=dict)
    flat: tuple[str, ...] = ()  # in a fixed order: its text decides the name of a spool
    numbered: str = ""

    @property
    def pictures(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.schema if column.type == _PICTURE)

    def rows(
        self, records: Sequence[Record], ids: Sequence[str], pool: Executor, uri: str = URI
    ) -> tuple[RawRows, list[Reject]]:
        """Return records as rows, and rejects of those whose values do not fit the columns.

        Args:
            records: The records, of simple values.
            ids: The number of each record as its id; for those without an id.
            pool: Threads that encode images.
            uri: The place of the records in rejects.
        """
        problems = {
            row: f"unknown key {name!r}: the first {SAMPLE_RECORDS} records do not have it"
            for row, record in enumerate(records)
            for name in record
            if name not in self.schema.names
        }
        arrays, pictures = [], {}
        for column in self.schema:
            if column.name == self.numbered:
                arrays.append(pa.array(ids, column.type))
                continue
            values = [record.get(column.name) for record in records]
            if column.type == _PICTURE:
                arrays.append(pa.nulls(len(values), _PICTURE))
                pictures[column.name], faults = _pictures(values, column.name, pool)
            else:
                array, faults = self._values(values, column)
                arrays.append(array)
            problems |= faults
        rejects = [
            Reject(ids[row], uri, RejectReason.BAD_VALUE, f"record {ids[row]}: {detail}")
            for row, detail in sorted(problems.items())
        ]
        whole = RawRows(pa.RecordBatch.from_arrays(arrays, self.schema.names), pictures)
        return _without(whole, problems) if problems else whole, rejects

    def _values(self, values: Sequence[Any], column: pa.Field) -> tuple[pa.Array, dict[int, str]]:
        plain = [column_value(value, as_lists=column.name in self.flat) for value in values]
        try:
            return _array_of(plain, column.type), {}
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            faults = {
                row: f"key {column.name!r} must be {column.type}, got {values[row]!r:.80}"
                for row, value in enumerate(plain)
                if not _fits(value, column.type)
            }
        kept = [None if row in faults else value for row, value in enumerate(plain)]
        return _array_of(kept, column.type), faults


def infer_columns(
    records: Sequence[Record], said: Mapping[str, FeatureKind], *, find_images: bool = True
) -> RecordColumns:
    """Return the columns of the first records.

    Args:
        records: The first records, of simple values; a key may be missing in some.
        said: Column -> kind, where `--schema` or an option sets it.
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
            tensors[name] = _tensor_feature(name, arrays)
        else:
            flat.append(name)
            types[name] = _type_of(name, values, said.get(name))
    return RecordColumns(pa.schema(list(types.items())), tensors, tuple(flat))


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
            f"key {name!r}: {error}. Scale floats to uint8 (--encode tensor --tensor-dtype float32 "
            "stores pixels as floats), or store them as a feature, a tensor: rename the key, or "
            "give --schema records"
        ) from error


def _tensor_feature(name: str, arrays: Sequence[np.ndarray[Any, Any]]) -> Feature:
    """Return the feature of arrays; only the first dimension of their shape may vary."""
    first = arrays[0]
    shape: tuple[int | None, ...] = first.shape
    if any(array.shape != first.shape for array in arrays):
        shape = (None, *first.shape[1:])
    if first.dtype.name not in TENSOR_DTYPES or any(
        array.shape[1:] != first.shape[1:] for array in arrays
    ):
        shapes = sorted({f"{array.dtype} {array.shape}" for array in arrays})
        raise UsageError(
            f"key {name!r} holds arrays of {', '.join(shapes[:3])}: a tensor has one dtype of "
            f"{', '.join(TENSOR_DTYPES)}, and only its first dimension may vary"
        )
    return Feature(name, FeatureKind.TENSOR, shape=shape, dtype=first.dtype.name)


def _type_of(name: str, values: Sequence[Any], said: FeatureKind | None) -> pa.DataType:
    """Return the Arrow type of a column's values; a schema decides that of integers and of none."""
    try:
        kind = pa.array([column_value(value, as_lists=True) for value in values]).type
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"the values of key {name!r} cannot be stored as one feature: {error}"
        ) from error
    wanted = _STATED.get(said) if said is not None else None
    inner = kind.value_type if is_list(kind) else kind
    may_change = pa.types.is_null(inner) or (pa.types.is_integer(inner) and wanted != pa.string())
    if wanted is None or not may_change:
        return kind
    return pa.list_(wanted) if is_list(kind) else wanted


def _pictures(
    values: Sequence[Any], name: str, pool: Executor
) -> tuple[list[PictureParts], dict[int, str]]:
    """Return the images of a column, and what is wrong with the others."""
    # Handing bytes to a thread takes longer than what it does with them.
    is_array = any(isinstance(value, np.ndarray) for value in values)
    encoded = list((pool.map if is_array else map)(_encoded, values))
    faults = {
        row: f"key {name!r}: {result}"
        for row, result in enumerate(encoded)
        if isinstance(result, ValueError)
    }
    data = (None if isinstance(result, ValueError) else result for result in encoded)
    return list(zip(data, map(picture_path, values), strict=True)), faults


def _without(rows: RawRows, left_out: Collection[int]) -> RawRows:
    fitting = [row not in left_out for row in range(rows.columns.num_rows)]
    pictures = {
        name: list(itertools.compress(parts, fitting)) for name, parts in rows.pictures.items()
    }
    return RawRows(rows.columns.filter(pa.array(fitting)), pictures)


def _encoded(value: Any) -> bytes | ValueError | None:
    try:
        return picture_bytes(value)
    except ValueError as error:
        return error


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        _array_of([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


def _array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values as an array of a type; raise an error for one that would change."""
    if not pa.types.is_integer(value_type(kind)):
        return pa.array(values, kind)
    # Given the type, Arrow would truncate 1.5 to 1; a cast does not.
    array = pa.array(values)
    found = value_type(array.type)
    if not any(
        test(found) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_null)
    ):
        raise TypeError(f"{found} is no number")
    return array.cast(kind)
