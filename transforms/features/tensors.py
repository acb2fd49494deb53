"""Encode columns of arrays as serialized tensors.

Inputs are nested lists, Arrow's fixed-shape tensors, `.npy` files and serialized tensors.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.format.example import ExampleFault
from shardwright.format.schema import Feature
from shardwright.format.tensors import parse_tensor_proto, to_tensor_proto
from shardwright.transforms.features.lists import STRING_TYPES, is_any, is_list

_NPY_MAGIC = b"\x93NUMPY"

Array = npt.NDArray[Any]


def encode_tensors(column: pa.Array, feature: Feature) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Encode each row as a TensorProto of `feature.shape` and `feature.dtype`.

    The dtype "" is float32. Numbers are converted if they fit:
    integers in range, floats to integers only if whole, floats to shorter floats by rounding. A
    finite number never becomes infinite.

    Args:
        column: Lists of numbers or booleans, nested or flat; fixed-shape tensors; bytes of
            `.npy` files or TensorProtos; single values for a `feature.shape` of ().
        feature: The feature, of kind tensor.

    Returns:
        The tensors as binary, null in bad rows, and a mask of the bad rows. A row is bad if it has
        another shape, is ragged, contains a null, or cannot be converted. A null row is bad unless
        `feature.default` can fill the shape.
    """
    empty = _default_of(feature)
    encoded = [
        empty if not there else None if row is None else _encode(row, feature)
        for there, row in zip(
            column.is_valid().to_pylist(), _rows_of(column, feature.shape), strict=True
        )
    ]
    return pa.array(encoded, pa.binary()), np.array([data is None for data in encoded], bool)


def _default_of(feature: Feature) -> bytes | None:
    if feature.default is None or None in feature.shape:
        return None
    sizes = [size or 0 for size in feature.shape]
    return _encode(np.full(sizes, feature.default), feature)


def _encode(row: Array | bytes | str, feature: Feature) -> bytes | None:
    if isinstance(row, str):
        return None
    array = _load(row) if isinstance(row, bytes) else _in_shape(row, feature.shape)
    if array is None or len(array.shape) != len(feature.shape):
        return None
    if any(size not in (None, got) for got, size in zip(array.shape, feature.shape, strict=True)):
        return None
    converted = _convert(array, feature.dtype or "float32")
    return None if converted is None else to_tensor_proto(converted)


def _in_shape(array: Array, shape: tuple[int | None, ...]) -> Array:
    """Return a flat list's array in the shape, if its length fits; nested lists as they are."""
    fixed = math.prod(size for size in shape if size is not None)
    fits = array.size % fixed == 0 if None in shape else array.size == fixed
    if array.ndim != 1 or len(shape) < 2 or shape.count(None) > 1 or not fits:
        return array
    return array.reshape([-1 if size is None else size for size in shape])


def _load(data: bytes) -> Array | None:
    try:
        if data.startswith(_NPY_MAGIC):
            loaded: Array = np.load(io.BytesIO(data), allow_pickle=False)
            return loaded
        return parse_tensor_proto(data)
    except (ValueError, EOFError, OSError, MemoryError, ExampleFault):
        return None


def _convert(array: Array, dtype: str) -> Array | None:
    """Return the array as `dtype`, or None if it does not fit."""
    wanted = np.dtype(dtype)
    if array.dtype == wanted:
        return array
    if (
        array.dtype.kind not in "biufc"
        or (array.dtype.kind == "c" and wanted.kind != "c")
        or not _fits(array, wanted)
    ):
        return None
    with np.errstate(over="ignore"):
        converted = array.astype(wanted)
    overflows = wanted.kind in "fc" and bool((np.isinf(converted) & np.isfinite(array)).any())
    return None if overflows else converted


def _fits(array: Array, wanted: np.dtype[Any]) -> bool:
    """Return whether all numbers fit, if `wanted` is an integer or boolean type."""
    if wanted.kind not in "biu" or not array.size:
        return True
    if array.dtype.kind == "f" and not (np.isfinite(array) & (array == np.trunc(array))).all():
        return False
    if wanted.kind == "b":
        low, high = 0, 1
    else:
        low, high = int(np.iinfo(wanted).min), int(np.iinfo(wanted).max)
    # As integers: as a float, the largest may round up to the next one, which does not fit.
    return low <= int(array.min()) and int(array.max()) <= high


def _rows_of(
    column: pa.Array, shape: tuple[int | None, ...]
) -> Iterator[Array | bytes | str | None]:
    """Yield each row's value; None for nulls, ragged lists and lists with nulls."""
    if isinstance(column.type, pa.FixedShapeTensorType):
        whole = iter(
            column.drop_null().to_numpy_ndarray() if len(column) > column.null_count else ()
        )
        yield from (next(whole) if there else None for there in column.is_valid().to_pylist())
        return
    if is_any(column.type, STRING_TYPES):
        yield from column.to_pylist()
        return
    whole = _array_of(column, shape)
    if whole is not None:
        yield from whole
        return
    for row in range(len(column)):
        array = _array_of(column.slice(row, 1), shape)
        yield None if array is None else array[0]


def _array_of(values: pa.Array, shape: tuple[int | None, ...]) -> Array | None:
    """Return the rows of a column as one array; None if they differ in shape, or have nulls."""
    sizes = [len(values)]
    while is_list(values.type):
        if values.null_count or len(np.unique(pc.list_value_length(values))) > 1:
            return None
        below = values.flatten()
        if len(values):
            sizes.append(len(below) // len(values))
        elif pa.types.is_fixed_size_list(values.type):
            sizes.append(values.type.list_size)
        else:  # an empty list does not show the size of those in it
            sizes.append(next(iter(shape[len(sizes) - 1 :]), None) or 0)
        values = below
    if values.null_count:
        return None
    if pa.types.is_decimal(values.type) or pa.types.is_null(values.type):
        values = values.cast(pa.float64())
    array: Array = values.to_numpy(zero_copy_only=False)
    return array.reshape(sizes)
