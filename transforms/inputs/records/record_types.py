"""Decide the Arrow types of Python values, and check that later values fit them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.schema import Feature, FeatureKind
from shardwright.format.tensors import TENSOR_DTYPES
from shardwright.transforms.features.lists import is_list, value_type
from shardwright.transforms.inputs.records.record_values import column_value

Shape = tuple[int | None, ...]

_NOT_FITTING = (pa.ArrowException, TypeError, ValueError, OverflowError)
_STATED = {
    FeatureKind.FLOAT32: pa.float64(), FeatureKind.INT64: pa.int64(), FeatureKind.TEXT: pa.string()
}  # fmt: skip


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
    except _NOT_FITTING as error:
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
        except _NOT_FITTING:
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
        tensor_fault(array, shape, first.dtype.name) for array in arrays
    ):
        shapes = sorted({f"{array.dtype} {array.shape}" for array in arrays})
        raise UsageError(
            f"key {name!r} holds arrays of {', '.join(shapes[:3])}: a tensor has one dtype of "
            f"{', '.join(TENSOR_DTYPES)}, and only its first dimension may vary"
        )
    return Feature(name, FeatureKind.TENSOR, shape=shape, dtype=first.dtype.name)


def tensor_fault(value: Any, shape: Shape, dtype: str) -> str:
    """Return why a simple value is no tensor of a shape, with None for any size, and a dtype."""
    is_array = isinstance(value, np.ndarray)
    if value is None or (is_array and value.dtype.name == dtype and _fits_shape(value, shape)):
        return ""
    return f"must be a {dtype} array of shape {_text_of(shape)}, got {_told(value)}"


def shape_fault(value: Any, shape: Shape) -> str:
    """Return why an array of several dimensions does not have a shape; "" for other values."""
    if not isinstance(value, np.ndarray) or value.ndim < 2 or _fits_shape(value, shape):
        return ""
    return f"must have the shape {_text_of(shape)}, got {_told(value)}"


def _fits_shape(array: np.ndarray[Any, Any], shape: Shape) -> bool:
    return len(array.shape) == len(shape) and all(
        size is None or size == found for size, found in zip(shape, array.shape, strict=True)
    )


def _text_of(shape: Shape) -> str:
    return f"({', '.join('any' if size is None else str(size) for size in shape)})"


def _told(value: Any) -> str:
    is_array = isinstance(value, np.ndarray)
    return f"{value.dtype} {value.shape}" if is_array else f"{value!r:.80}"


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
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


def array_and_misfits(values: Sequence[Any], kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Return values as an array of a type, with nulls for those that do not fit, and their rows."""
    try:
        return array_of(values, kind), []
    except _NOT_FITTING:
        misfits = [row for row, value in enumerate(values) if not _fits(value, kind)]
    kept = list(values)
    for row in misfits:
        kept[row] = None
    return array_of(kept, kind), misfits


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        array_of([value], kind)
    except _NOT_FITTING:
        return False
    return True
