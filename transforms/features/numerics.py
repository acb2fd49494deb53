"""Convert numbers to the types of tf.Example: integers and booleans to int64, floats to float32.

These are the types of TensorFlow's tf.Example guide. Values that do not fit are reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.transforms.features.lists import Mask

_INTEGER_RANGES = {
    name: (int(np.iinfo(name).min), int(np.iinfo(name).max))
    for name in ("int8", "int16", "int32", "uint8", "uint16", "uint32")
}
_INT64 = (-(2**63), 2**63 - 1)
_INTEGER_RANGES |= {"": _INT64, "int64": _INT64, "uint64": (0, 2**63 - 1), "bool": (0, 1)}
_MAX_FLOAT32 = float(np.finfo(np.float32).max)
_BFLOAT16_MAX = 3.3895313892515355e38
_FLOAT_LIMITS = {
    "": _MAX_FLOAT32,
    "float32": _MAX_FLOAT32,
    "float64": _MAX_FLOAT32,
    "float16": 65504.0,
    "bfloat16": _BFLOAT16_MAX,
}
INTEGER_DTYPES, FLOAT_DTYPES = frozenset(_INTEGER_RANGES), frozenset(_FLOAT_LIMITS)

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII)
_NO_NUMBER = re.compile("[+-]?(nan|inf|infinity)")
_TRUTH = {"true": "1", "false": "0"}


def to_integers(values: pa.Array, dtype: str) -> tuple[pa.Array, Mask]:
    """Return values as int64, and a mask of values that do not fit `dtype`; nulls stay null."""
    low, high = _INTEGER_RANGES[dtype]
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int64())
    elif pa.types.is_floating(kind):
        return _whole_numbers(values, low, high)
    elif not pa.types.is_integer(kind):
        return _each(values, lambda value: _to_integer(value, low, high), pa.int64())
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    bad = np.asarray((numbers < low) | (numbers > high))
    return _without(values, bad).cast(pa.int64()), bad


def to_floats(values: pa.Array, dtype: str) -> tuple[pa.Array, Mask]:
    """Return values as rounded float32, and a mask of invalid ones; nulls stay null.

    A value is invalid if it is not a number, or finite and too large for `dtype`.
    """
    limit = _FLOAT_LIMITS[dtype]
    kind = values.type
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        values, bad = _each(values, _to_float, pa.float64())
        return values.cast(pa.float32(), safe=False), bad | _too_large(values, limit)
    doubles = values.cast(pa.float64(), safe=False)
    bad = _too_large(doubles, limit)
    return _without(doubles, bad).cast(pa.float32(), safe=False), bad


def _whole_numbers(values: pa.Array, low: int, high: int) -> tuple[pa.Array, Mask]:
    numbers = values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
    # 2**63 - 1 has no exact float: the next one up is 2**63, which does not fit.
    bad = (
        ~np.isfinite(numbers)
        | (numbers != np.trunc(numbers))
        | (numbers < low)
        | (numbers >= float(high) + (high < 2**53))
    )
    whole = np.where(bad, 0, numbers).astype(np.int64)
    return pa.array(whole, mask=values.is_null().to_numpy(zero_copy_only=False)), np.asarray(bad)


def _too_large(values: pa.Array, limit: float) -> Mask:
    numbers = np.abs(values.fill_null(0.0).to_numpy(zero_copy_only=False))
    return np.asarray((numbers > limit) & (numbers < np.inf))


def _without(values: pa.Array, bad: Mask) -> pa.Array:
    return pc.if_else(pa.array(bad), pa.scalar(None, values.type), values) if bad.any() else values


def _mask(found: pa.Array) -> Mask:
    return np.asarray(found.fill_null(False).to_numpy(zero_copy_only=False))


def _each(
    values: pa.Array, convert: Callable[[Any], Any], kind: pa.DataType
) -> tuple[pa.Array, Mask]:
    """Convert each distinct value once; a None from `convert` marks a bad value."""
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind), np.zeros(len(values), bool)
    encoded = values.dictionary_encode()
    converted = [convert(value) for value in encoded.dictionary.to_pylist()]
    result = pa.array(converted, kind).take(encoded.indices)
    return result, _mask(pc.and_(result.is_null(), values.is_valid()))


def _to_integer(value: Any, low: int, high: int) -> int | None:
    text = _text_of(value)
    if not _NUMBER.fullmatch(text):
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:  # an exponent of more than 18 digits
        return None
    # Before the integer is made: 1e999999 would take all memory.
    if number.adjusted() > 20 or number != number.to_integral_value():
        return None
    return int(number) if low <= int(number) <= high else None


def _to_float(value: Any) -> float | None:
    text = _text_of(value)
    if _NO_NUMBER.fullmatch(text):
        return float(text)
    number = float(text) if _NUMBER.fullmatch(text) else np.inf
    return None if np.isinf(number) else number  # float() turns numbers beyond float64 into inf


def _text_of(value: Any) -> str:
    """Return the text of a number; 1 for true, and 0 for false."""
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    text = text.strip().lower()
    return _TRUTH.get(text, text)
