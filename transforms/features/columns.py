"""Convert columns of a source into the columns that features store, and find misfits.

Values that need a vocabulary become texts or whole numbers here. `indices.index_column` indexes
them once the vocabulary is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError, UsageError
from shardwright.schema import PICTURES, Feature, FeatureKind, VocabularyRule
from shardwright.tensors import TENSOR_DTYPES
from transforms.features.lists import (
    Items,
    Mask,
    is_list,
    is_text,
    plain,
    take_apart,
    to_texts,
    value_type,
)
from transforms.features.numerics import FLOAT_DTYPES, INTEGER_DTYPES, to_floats, to_integers
from transforms.features.tensors import encode_tensors
from transforms.features.texts import check_pattern
from transforms.features.vocabularies import WORDS
from transforms.references import PICTURE_TYPE
from transforms.rejects import RejectReason

_BYTES_TYPES = (
    pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view,
    pa.types.is_fixed_size_binary, pa.types.is_null,
)  # fmt: skip
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
_TEXT_KINDS = frozenset({FeatureKind.TEXT, FeatureKind.BYTES})
_NUMBER_KINDS = frozenset({FeatureKind.INT64, FeatureKind.FLOAT32, FeatureKind.BOX})
_TOLD = {
    FeatureKind.INT64: "an integer",
    FeatureKind.FLOAT32: "a number",
    FeatureKind.BOX: "a box",
    FeatureKind.TENSOR: "a tensor",
}


class Misfit(NamedTuple):
    """Rows whose value cannot be stored.

    Attributes:
        rows: The rows, bool [rows].
        reason: The typed reason.
        rule: The message after the feature's name; "{value}" stands for the value.
    """

    rows: Mask
    reason: RejectReason
    rule: str


class Settled(NamedTuple):
    """A column without dictionaries and views; nulls are in misfits only."""

    column: pa.Array
    misfits: list[Misfit]


def check_column(kind: pa.DataType, feature: Feature) -> None:
    """Check that a column of this type can fill the feature.

    Raises:
        BuildError: The column's type cannot be stored as this kind of feature.
        UsageError: The feature's `dtype`, `default` or `vocabulary` is invalid for its kind.
    """
    value = value_type(kind)
    if feature.kind in PICTURES:
        fits = kind == PICTURE_TYPE
    elif feature.kind in _NUMBER_KINDS:
        _check_numbers(feature)
        fits = is_text(value) or pa.types.is_null(value) or any(test(value) for test in _NUMBERS)
    elif feature.kind == FeatureKind.TENSOR:
        fits = _is_tensor_column(kind, feature)
    elif feature.kind in _TEXT_KINDS:
        fits = not (pa.types.is_nested(value) or pa.types.is_union(value))
    else:
        check_pattern((feature.vocabulary or VocabularyRule()).token_pattern)
        is_class = feature.kind not in WORDS and (
            pa.types.is_integer(value) or pa.types.is_boolean(value)
        )
        fits = is_class or is_text(value) or any(test(value) for test in _BYTES_TYPES)
    if not fits:
        wanted = (
            "a feature of pictures, which needs a table column of paths"
            if feature.kind in PICTURES
            else f"a feature of kind {feature.kind}"
        )
        raise BuildError(
            f"column {feature.column_name!r} is of type {kind}, which cannot be {wanted}: "
            "cast it to text or a number, or leave it out"
        )


def _is_tensor_column(kind: pa.DataType, feature: Feature) -> bool:
    if feature.dtype and feature.dtype not in TENSOR_DTYPES:
        raise UsageError(
            f"feature {feature.name!r} of kind tensor has the dtype {feature.dtype!r}; "
            f"give one of {', '.join(TENSOR_DTYPES)}"
        )
    if isinstance(kind, pa.BaseExtensionType):
        return isinstance(kind, pa.FixedShapeTensorType)
    try:
        encode_tensors(pa.nulls(0, kind), feature)
    except UsageError:
        return False
    return True


def _check_numbers(feature: Feature) -> None:
    known, convert = (
        (INTEGER_DTYPES, to_integers)
        if feature.kind == FeatureKind.INT64
        else (FLOAT_DTYPES, to_floats)
    )
    told = f"feature {feature.name!r} of kind {feature.kind}"
    if feature.dtype not in known:
        raise UsageError(
            f"{told} has the dtype {feature.dtype!r}; give one of {', '.join(sorted(known - {''}))}"
        )
    if feature.kind == FeatureKind.BOX and feature.shape[-1:] != (4,):
        raise UsageError(
            f"{told} has the shape {feature.shape}; "
            "give (4,) for one box, or (None, 4) for any number of boxes"
        )
    default = feature.default
    if default is not None and (
        isinstance(default, str) or convert(pa.array([default]), feature.dtype)[1].any()
    ):
        raise UsageError(
            f"{told} has the default {default!r}, which is not a value of "
            f"{feature.dtype or feature.kind}"
        )


def settle_column(column: pa.Array, feature: Feature) -> Settled:
    """Return the column as the feature stores it, and the rows that do not fit.

    The type is int64, float32, binary, lists of one of them, or PICTURE_TYPE. Classes are texts or
    int64; the texts of tokens and bags of words are strings.

    Raises:
        BuildError: The column's type cannot be stored as this kind of feature.
    """
    check_column(column.type, feature)
    if feature.kind in PICTURES:
        return _settle_pictures(column, feature)
    if feature.kind == FeatureKind.TENSOR:
        return _settle_tensors(column, feature)
    if feature.kind in WORDS:
        return _settle_words(column, feature)
    return _settle_items(take_apart(column, feature.stored_shape), feature)


def _settle_items(items: Items, feature: Feature) -> Settled:
    """Settle a column of single values or lists of them."""
    values, item_faults = _CONVERT[feature.kind](_blank_as_null(items.values, feature), feature)
    empty = values.is_null().to_numpy(zero_copy_only=False)
    misfits = _misfits(
        items.odd, f"is {{value}}, which does not have the shape {_told_shape(feature)}"
    )
    for fault in item_faults:
        empty = empty & ~fault.rows
        misfits.append(fault._replace(rows=items.rows_with(fault.rows)))
    filler, needed = _filler(feature)
    if needed is not None:
        absent = items.missing if _is_fixed(feature) else False
        misfits.insert(0, needed._replace(rows=(items.rows_with(empty) | absent) & ~items.odd))
        filler = _any_value(values.type)
    values = _fill(values, filler)
    build = _lists if feature.stored_shape else _one_each
    return Settled(build(values, items, feature, filler), misfits)


def _one_each(values: pa.Array, items: Items, feature: Feature, filler: pa.Scalar) -> pa.Array:
    """Return one value per row, the default for rows without one."""
    del feature
    if (items.lengths == 1).all():
        return values
    whole = pa.concat_arrays([values, pa.array([filler.as_py()], values.type)])
    return whole.take(
        pa.array(np.where(items.lengths == 1, np.cumsum(items.lengths) - 1, len(values)))
    )


def _lists(values: pa.Array, items: Items, feature: Feature, filler: pa.Scalar) -> pa.Array:
    """Return one list per row; a row without values is [], or a fixed shape of default values."""
    lists = items.as_lists(values)
    if not (_is_fixed(feature) and items.missing.any()):
        return lists
    count = math.prod(size for size in feature.stored_shape if size is not None)
    whole = pa.concat_arrays([lists, pa.array([[filler.as_py()] * count], lists.type)])
    return whole.take(pa.array(np.where(items.missing, len(lists), np.arange(len(lists)))))


def _is_fixed(feature: Feature) -> bool:
    return None not in feature.stored_shape


def _filler(feature: Feature) -> tuple[pa.Scalar, Misfit | None]:
    """Return the value for missing values, or else the misfit of their rows."""
    nowhere = np.zeros(0, bool)
    default = feature.default
    if feature.kind in (FeatureKind.CLASS_LABEL, FeatureKind.MULTI_LABEL):
        needed = Misfit(
            nowhere,
            RejectReason.MISSING_LABEL,
            "has no class: add one, or give the feature a default",
        )
        return pa.scalar(
            None if default is None else str(default)
        ), needed if default is None else None
    if feature.kind in _TEXT_KINDS:
        return pa.scalar(str(default or "").encode(), pa.binary()), None
    if feature.kind == FeatureKind.FLOAT32:
        return pa.scalar(float("nan" if default is None else default), pa.float32()), None
    told = (
        "an integer feature needs one"
        if feature.kind == FeatureKind.INT64
        else f"{_TOLD[feature.kind]} needs all of its numbers"
    )
    needed = Misfit(nowhere, RejectReason.BAD_VALUE, f"has no value, and {told}")
    if feature.kind == FeatureKind.INT64:
        return pa.scalar(
            None if default is None else int(default), pa.int64()
        ), needed if default is None else None
    return pa.scalar(
        None if default is None else float(default), pa.float32()
    ), needed if default is None else None


def _any_value(kind: pa.DataType) -> pa.Scalar:
    """Return a placeholder for rows that are rejected."""
    return pa.scalar("" if is_text(kind) else b"" if pa.types.is_binary(kind) else 0, kind)


def _fill(values: pa.Array, filler: pa.Scalar | str) -> pa.Array:
    if not values.null_count:
        return values
    scalar = filler if isinstance(filler, pa.Scalar) else pa.scalar(filler)
    return pc.fill_null(values, scalar if scalar.type == values.type else scalar.cast(values.type))


def _blank_as_null(values: pa.Array, feature: Feature) -> pa.Array:
    """Replace blank texts by null, unless the feature stores texts."""
    if feature.kind in _TEXT_KINDS or not is_text(values.type):
        return values
    trimmed = pc.utf8_trim_whitespace(values.cast(pa.string()))
    return pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, pa.string()), trimmed)


def _misfits(rows: Mask, rule: str, reason: RejectReason = RejectReason.BAD_VALUE) -> list[Misfit]:
    return [Misfit(rows, reason, rule)] if rows.any() else []


def _integers(values: pa.Array, feature: Feature) -> tuple[pa.Array, list[Misfit]]:
    numbers, bad = to_integers(values, feature.dtype)
    told = {
        "": "a signed 64-bit integer",
        "uint64": "uint64 within the range of a signed 64-bit integer",
    }
    return numbers, _misfits(
        bad, f"is {{value}}, which does not fit {told.get(feature.dtype, feature.dtype)}"
    )


def _floats(values: pa.Array, feature: Feature) -> tuple[pa.Array, list[Misfit]]:
    numbers, bad = to_floats(values, feature.dtype)
    return numbers, _misfits(bad, f"is {{value}}, which does not fit {_told_float(feature.dtype)}")


def _told_float(dtype: str) -> str:
    return "a 32-bit float" if dtype in ("", "float32", "float64") else dtype


def _boxes(values: pa.Array, feature: Feature) -> tuple[pa.Array, list[Misfit]]:
    numbers, misfits = _floats(values, feature)
    corners = numbers.fill_null(0).to_numpy(zero_copy_only=False).reshape(-1, 4)
    ymin, xmin, ymax, xmax = corners.T
    inside = ((corners >= 0) & (corners <= 1)).all(1)
    bad = np.repeat(~inside | (ymin > ymax) | (xmin > xmax), 4)
    rule = (
        "is {value}; a box must be ymin, xmin, ymax, xmax as fractions from 0 to 1 of height and "
        "width, with ymin <= ymax and xmin <= xmax"
    )
    return numbers, misfits + _misfits(bad, rule)


def _texts(values: pa.Array, feature: Feature) -> tuple[pa.Array, list[Misfit]]:
    del feature
    is_bytes = any(test(values.type) for test in _BYTES_TYPES)
    return (values if is_bytes else values.cast(pa.string())).cast(pa.binary()), []


def _classes(values: pa.Array, feature: Feature) -> tuple[pa.Array, list[Misfit]]:
    """Return class names as texts; whole numbers stay int64 if their names are learned.

    If names are given and none of them is a number, whole numbers are indices into them.
    """
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.string())
    if not pa.types.is_integer(values.type):
        texts, bad = to_texts(values)
        return texts, _misfits(bad, "is {value}, which is not UTF-8")
    numbers, bad = to_integers(values, "")
    misfits = _misfits(bad, "is {value}, which does not fit a signed 64-bit integer")
    if not feature.names or any(name.lstrip("-").isdecimal() for name in feature.names):
        return (
            numbers.cast(pa.string()) if feature.names or feature.default is not None else numbers
        ), misfits
    outside = (
        pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, len(feature.names)))
        .fill_null(False)
        .to_numpy(zero_copy_only=False)
    )
    rule = f"is {{value}}; class indices must be at least 0 and below {len(feature.names)}"
    known = pc.if_else(pa.array(outside), pa.scalar(None, pa.int64()), numbers)
    return pa.array(feature.names, pa.string()).take(known), misfits + _misfits(
        outside, rule, RejectReason.UNKNOWN_LABEL
    )


def _settle_words(column: pa.Array, feature: Feature) -> Settled:
    """Settle a column of texts; several texts of a row are joined by spaces."""
    column = plain(column)
    if is_list(column.type):
        items = take_apart(column, (None,))
        texts, bad = to_texts(items.values)
        joined = pc.binary_join(items.as_lists(_fill(texts, "")), " ")
        texts, bad = (
            pc.if_else(pa.array(items.missing), pa.scalar(None, pa.string()), joined),
            items.rows_with(bad),
        )
    else:
        texts, bad = to_texts(column)
    return Settled(
        _fill(texts, str(feature.default or "")), _misfits(bad, "is {value}, which is not UTF-8")
    )


def _settle_pictures(column: pa.Array, feature: Feature) -> Settled:
    absent = column.is_null().to_numpy(zero_copy_only=False)
    rows = absent if feature.default is None else np.zeros(len(column), bool)
    return Settled(column, _misfits(rows, "has no picture, and the feature has no default"))


def _settle_tensors(column: pa.Array, feature: Feature) -> Settled:
    tensors, bad = encode_tensors(
        plain(column) if pa.types.is_dictionary(column.type) else column, feature
    )
    absent = column.is_null().to_numpy(zero_copy_only=False)
    rule = (
        f"is {{value}}, which is not a {feature.dtype or 'float32'} tensor of shape "
        f"{_told_shape(feature)}"
    )
    return Settled(
        tensors,
        _misfits(bad & absent, "has no value, and a tensor needs one")
        + _misfits(bad & ~absent, rule),
    )


def _told_shape(feature: Feature) -> str:
    shape = feature.shape if feature.kind == FeatureKind.TENSOR else feature.stored_shape
    return "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"


_CONVERT: dict[FeatureKind, Callable[[pa.Array, Feature], tuple[pa.Array, list[Misfit]]]] = {
    FeatureKind.INT64: _integers,
    FeatureKind.FLOAT32: _floats,
    FeatureKind.BOX: _boxes,
    FeatureKind.TEXT: _texts,
    FeatureKind.BYTES: _texts,
    FeatureKind.CLASS_LABEL: _classes,
    FeatureKind.MULTI_LABEL: _classes,
}
