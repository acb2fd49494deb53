"""Take columns of lists apart into values and lengths, and encode columns of arrays as tensors.

Lists are checked against a shape. Arrays are nested lists, Arrow's fixed-shape tensors, `.npy`
files and serialized tensors.
"""

from __future__ import annotations

import ast
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.format.example import ExampleFault
from shardwright.format.schema import Feature
from shardwright.format.tensors import parse_tensor_proto, to_tensor_proto
from shardwright.transforms.hashing import sort_pairs

Mask = npt.NDArray[np.bool_]
Shape = tuple[int | None, ...]
_SEPARATOR = "|"
BYTES_TYPES = (
    pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view,
    pa.types.is_fixed_size_binary, pa.types.is_null,
)  # fmt: skip
NUMBER_TYPES = (
    pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal,
)  # fmt: skip
_TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
STRING_TYPES = (*_TEXT_TYPES, pa.types.is_binary, pa.types.is_large_binary)
_LIST_TYPES = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


@dataclass(frozen=True, slots=True)
class Items:
    """The values of a column of lists.

    Attributes:
        values: The innermost values of all rows, concatenated; may contain nulls.
        lengths: Number of values of each row, int64 [rows]; 0 for odd rows.
        missing: Rows without a value, bool [rows].
        odd: Rows that do not have the shape and whose values are left out, bool [rows].
    """

    values: pa.Array
    lengths: npt.NDArray[np.int64]
    missing: Mask
    odd: Mask

    def rows_with(self, marked: Mask) -> Mask:
        """Return the rows that contain a value in `marked`, a mask over `values`."""
        rows = np.zeros(len(self.lengths), bool)
        rows[np.repeat(np.arange(len(self.lengths)), self.lengths)[marked]] = True
        return rows

    def as_lists(self, values: pa.Array) -> pa.Array:
        """Return `values`, one for each of `self.values`, as lists by row."""
        return as_lists(values, self.lengths)


def list_lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return the number of values of each list, 0 for null."""
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    return lengths.to_numpy(zero_copy_only=False).astype(np.int64)


def as_lists(values: pa.Array, lengths: npt.NDArray[np.int64]) -> pa.Array:
    """Return values as one list per row, of these lengths."""
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def as_sets(
    values: npt.NDArray[Any], lengths: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return the distinct values of each row, ascending, and their numbers."""
    rows = np.repeat(np.arange(len(lengths)), lengths)
    order, starts = sort_pairs(rows, values)
    kept = order[starts]
    return values[kept], np.bincount(rows[kept], minlength=len(lengths))


def is_any(kind: pa.DataType, tests: Iterable[Callable[[pa.DataType], bool]]) -> bool:
    """Return whether one of Arrow's tests is true of a type."""
    return any(test(kind) for test in tests)


def is_text(kind: pa.DataType) -> bool:
    return is_any(kind, _TEXT_TYPES)


def is_number(kind: pa.DataType) -> bool:
    return is_any(kind, (pa.types.is_integer, pa.types.is_floating))


def null_rows(column: pa.Array) -> Mask:
    """Return which values are null, bool [values]."""
    rows: Mask = column.is_null().to_numpy(zero_copy_only=False)
    return rows


def null_where(values: pa.Array, bad: pa.Array | Mask) -> pa.Array:
    """Return values with nulls in place of the bad ones."""
    return pc.if_else(bad, pa.scalar(None, values.type), values)


def empty_as_null(column: pa.Array) -> pa.Array:
    """Return texts without white space around them, and null for empty ones."""
    trimmed = pc.utf8_trim_whitespace(column)
    return null_where(trimmed, pc.equal(trimmed, ""))


def is_list(kind: pa.DataType) -> bool:
    return is_any(kind, _LIST_TYPES)


def plain(column: pa.Array) -> pa.Array:
    """Return the column without extension type and dictionary."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the innermost values of a column."""
    if isinstance(kind, pa.BaseExtensionType):
        return value_type(kind.storage_type)
    return value_type(kind.value_type) if is_list(kind) or pa.types.is_dictionary(kind) else kind


def take_apart(column: pa.Array, shape: Shape, separator: str = "") -> Items:
    """Return the values of each row.

    A list may be flat, nested like the shape, or a text: JSON, Python's `str` of a list, or parts
    with `separator` between them, "" for "|". A single value counts as a list of one, and a list of
    one as a single value.
    """
    column = plain(column)
    missing = null_rows(column)
    if not is_list(column.type):
        if not shape or not is_text(column.type):
            return Items(
                column, np.ones(len(column), np.int64), missing, np.zeros(len(column), bool)
            )
        missing |= pc.equal(column, "").fill_null(True).to_numpy(zero_copy_only=False)
        texts = column.cast(pa.string()).dictionary_encode()  # each distinct text once
        parsed = [_parts(text, separator or _SEPARATOR) for text in texts.dictionary.to_pylist()]
        column = pa.array(parsed, pa.list_(pa.string())).take(texts.indices)
    values, lengths, odd = _flatten(column, shape)
    fixed = math.prod(size for size in shape if size is not None)
    fits = lengths % max(fixed, 1) == 0 if None in shape else lengths == fixed
    odd = (odd | ~fits) & ~missing
    if odd.any():
        values = values.filter(pa.array(np.repeat(~odd, lengths)))
        lengths = np.where(odd, 0, lengths)
    return Items(values, lengths, missing, odd)


def _flatten(column: pa.Array, shape: Shape) -> tuple[pa.Array, npt.NDArray[np.int64], Mask]:
    """Return the innermost values, their number per row, and rows whose inner lists do not fit."""
    values, lengths = _open_lists(column)
    odd = np.zeros(len(column), bool)
    inner = shape[1:]
    while is_list(values.type):
        wanted, inner = (inner[0], inner[1:]) if inner else (None, ())
        rows = np.repeat(np.arange(len(column)), lengths)
        values, inner_lengths = _open_lists(values)
        if wanted is not None:
            odd[rows[inner_lengths != wanted]] = True
        # A row's values are those of all its inner lists.
        lengths = np.bincount(rows, inner_lengths, minlength=len(column)).astype(np.int64)
    return values, lengths, odd


def _open_lists(column: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    lengths = list_lengths(column)
    if pa.types.is_fixed_size_list(column.type):
        lengths[null_rows(column)] = 0
    return plain(column.flatten()), lengths


def _parts(text: str, separator: str) -> list[str | None]:
    text = text.strip()
    if not text:
        return []
    if not text.startswith("["):
        return [part.strip() for part in text.split(separator)]
    for parse in (json.loads, ast.literal_eval):  # pandas writes lists as Python does
        with suppress(ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            return list(_leaves(parse(text)))
    return [text]  # invalid: no number, but a valid text


def _leaves(value: Any) -> Iterator[str | None]:
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif value is None or isinstance(value, str):
        yield value
    elif isinstance(value, bool | int | float | dict):
        yield json.dumps(value)
    else:
        raise ValueError(f"{value!r} is no value of a list")


def to_texts(values: pa.Array) -> tuple[pa.Array, Mask]:
    """Return values as strings, and a mask of the bytes that are not UTF-8."""
    try:
        return values.cast(pa.string()), np.zeros(len(values), bool)
    # Not UTF-8, or a type that Arrow does not cast to text.
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        texts = pa.array([_decoded(value) for value in values.to_pylist()], pa.string())
        bad = pc.and_(texts.is_null(), values.is_valid())
        return texts, bad.to_numpy(zero_copy_only=False)


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


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
