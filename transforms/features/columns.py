"""Check columns of a source against their features, and convert them into what features store.

Values that do not fit are found. Values that need a vocabulary become texts here.
`rows.index_column` indexes them once the vocabulary is known.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError, UsageError
from shardwright.format.schema import (
    INDEXED,
    NUMBERS,
    PICTURES,
    POSITIONS,
    WORDS,
    Feature,
    FeatureKind,
    VocabularyRule,
)
from shardwright.format.tensors import TENSOR_DTYPES
from shardwright.transforms.features.conversions import (
    CONVERT,
    FLOAT_DTYPES,
    INTEGER_DTYPES,
    Misfit,
    check_words,
    misfits_at,
    to_floats,
    to_integers,
)
from shardwright.transforms.features.lists import (
    BYTES_TYPES,
    NUMBER_TYPES,
    STRING_TYPES,
    Items,
    empty_as_null,
    encode_tensors,
    is_any,
    is_list,
    is_text,
    null_rows,
    null_where,
    plain,
    take_apart,
    to_texts,
    value_type,
)
from shardwright.transforms.references import PICTURE_TYPE, stacked
from shardwright.transforms.rejects import RejectReason

TEXT_KINDS = frozenset({FeatureKind.TEXT, FeatureKind.BYTES})


# The dtypes of a kind beside "", its own.
_DTYPES: Mapping[FeatureKind, Collection[str]] = {
    FeatureKind.IMAGE: ("uint8", "float32"),
    FeatureKind.MASK: ("uint8", "uint16"),
    FeatureKind.CLASS_LABEL: ("int64",),
    FeatureKind.MULTI_LABEL: ("int64",),
    FeatureKind.TOKENS: ("int64",),
    FeatureKind.BAG_OF_WORDS: ("float32", "int64"),
    FeatureKind.INT64: sorted(INTEGER_DTYPES - {""}),
    FeatureKind.FLOAT32: sorted(FLOAT_DTYPES - {""}),
    **dict.fromkeys(POSITIONS, sorted(FLOAT_DTYPES - {""})),
    FeatureKind.TENSOR: TENSOR_DTYPES,
}


def check_dtype(feature: Feature) -> None:
    """Raise UsageError if a feature's dtype is not one of its kind."""
    known = _DTYPES.get(feature.kind, ())
    if feature.dtype and feature.dtype not in known:
        rule = f"give one of {', '.join(known)}" if known else "leave it out"
        raise UsageError(
            f"feature {feature.name!r} of kind {feature.kind} has the dtype {feature.dtype!r}; "
            f"{rule}"
        )


def check_column(kind: pa.DataType, feature: Feature) -> None:
    """Check that a column of this type can fill the feature.

    Raises:
        BuildError: The column's type cannot be stored as this kind of feature.
        UsageError: The feature's `dtype`, `default` or `vocabulary` is invalid for its kind.
    """
    check_dtype(feature)
    if not _fits(kind, feature):
        wanted = (
            "a feature of pictures, which needs a table column of paths"
            if feature.kind in PICTURES
            else f"a feature of kind {feature.kind}"
        )
        raise BuildError(
            f"column {feature.column_name!r} is of type {kind}, which cannot be {wanted}: "
            "cast it to text or a number, or leave it out"
        )


def check_computed(feature: Feature) -> None:
    """Check that `--transform` can compute a feature for which there is no column.

    Raises:
        UsageError: Its class names or words are not given, or its dtype is invalid.
    """
    check_dtype(feature)
    if feature.kind in INDEXED and not feature.names:
        raise UsageError(
            f"there is no column {feature.column_name!r} to learn the names of feature "
            f"{feature.name!r} from: give its names, or its column"
        )


def _fits(kind: pa.DataType, feature: Feature) -> bool:
    """Return whether a column's type can fill a feature. Raises `UsageError` as `check_column`."""
    value = value_type(kind)
    if feature.kind in PICTURES:
        return bool(kind == PICTURE_TYPE)
    if feature.kind in NUMBERS:
        _check_numbers(feature)
        return is_text(value) or pa.types.is_null(value) or is_any(value, NUMBER_TYPES)
    if feature.kind == FeatureKind.TENSOR:
        if isinstance(kind, pa.BaseExtensionType):
            return isinstance(kind, pa.FixedShapeTensorType)
        return is_any(value, (*STRING_TYPES, *NUMBER_TYPES, pa.types.is_null))
    if feature.kind in TEXT_KINDS:
        return not (pa.types.is_nested(value) or pa.types.is_union(value))
    if feature.kind in WORDS:
        check_words(feature.names, feature.vocabulary or VocabularyRule())
    elif is_any(value, NUMBER_TYPES):
        return not pa.types.is_decimal(value)
    return is_text(value) or is_any(value, BYTES_TYPES)


def _check_numbers(feature: Feature) -> None:
    convert = to_integers if feature.kind == FeatureKind.INT64 else to_floats
    told = f"feature {feature.name!r} of kind {feature.kind}"
    if feature.kind == FeatureKind.BOX and feature.shape[-1:] != (4,):
        raise UsageError(
            f"{told} has the shape {feature.shape}; "
            "give (4,) for one box, or (None, 4) for any number of boxes"
        )
    if feature.kind == FeatureKind.KEYPOINTS and not (
        len(feature.shape) > 1 and feature.shape[-1] == 3 and None not in feature.shape[1:]
    ):
        raise UsageError(
            f"{told} has the shape {feature.shape}; give (17, 3) for 17 points of one object, or "
            "(None, 17, 3) for those of any number of objects"
        )
    default = feature.default
    if default is not None and (
        isinstance(default, str) or convert(pa.array([default]), feature.dtype)[1].any()
    ):
        raise UsageError(
            f"{told} has the default {default!r}, which is not a value of "
            f"{feature.dtype or feature.kind}"
        )


# A cell that is no list, and may be several labels or one.
_OTHER_SEPARATORS = r"(?s)^\s*[^\[\s].*[,;]"
_UNCLEAR = (
    "is {value}: give --label-separator with the text between labels, such as ',', or '|' if this "
    "is one label"
)
_NO_CLASS = "has no class: add one, or give the feature a default"
# The message for a row without a value, if the feature has no default.
_NEEDED = {
    FeatureKind.CLASS_LABEL: _NO_CLASS,
    FeatureKind.MULTI_LABEL: _NO_CLASS,
    FeatureKind.INT64: "has no value, and an integer feature needs one",
    FeatureKind.BOX: "has no value, and a box needs all of its numbers",
    FeatureKind.KEYPOINTS: "has no value, and a keypoint needs all of its numbers",
}


class Settled(NamedTuple):
    """A column without dictionaries and views; nulls are in misfits only."""

    column: pa.Array
    misfits: list[Misfit]


def settle_column(column: pa.Array, feature: Feature) -> Settled:
    """Return the column as the feature stores it, and the rows that do not fit.

    The type is int64, float32, binary, lists of one of them, or PICTURE_TYPE. Classes, and the
    texts of tokens and bags of words, are strings.

    Raises:
        BuildError: The column's type cannot be stored as this kind of feature.
    """
    check_column(column.type, feature)
    if feature.kind in PICTURES:
        absent = null_rows(column) & (feature.default is None)
        return Settled(column, misfits_at(absent, "has no picture, and the feature has no default"))
    if feature.kind == FeatureKind.TENSOR:
        tensors, bad = encode_tensors(
            plain(column) if pa.types.is_dictionary(column.type) else column, feature
        )
        absent = null_rows(column)
        rule = (
            f"is {{value}}, which is not a {feature.dtype or 'float32'} tensor of shape "
            f"{_told_shape(feature)}"
        )
        return Settled(
            tensors,
            misfits_at(bad & absent, "has no value, and a tensor needs one")
            + misfits_at(bad & ~absent, rule),
        )
    if feature.kind in WORDS:
        return _settle_words(column, feature)
    settled = _settle_items(take_apart(column, feature.stored_shape, feature.separator), feature)
    if feature.kind == FeatureKind.MULTI_LABEL and not feature.separator and is_text(column.type):
        unclear = pc.match_substring_regex(column.cast(pa.string()), _OTHER_SEPARATORS)
        rows = unclear.fill_null(False).to_numpy(zero_copy_only=False)
        settled.misfits.extend(misfits_at(rows, _UNCLEAR))
    return settled


def settle_columns(columns: Sequence[tuple[Feature, pa.Array]]) -> list[Settled]:
    """Return what `settle_column` returns of each; single numbers and texts are settled together.

    Args:
        columns: Features with their columns, which have the same length.

    Raises:
        BuildError: As `settle_column`.
    """
    found: dict[int, Settled] = {}
    rules = [
        (feature.kind, feature.dtype, feature.default) if _is_single(feature, column) else number
        for number, (feature, column) in enumerate(columns)
    ]
    for numbers, whole in stacked([column for _, column in columns], rules):
        settled = settle_column(whole, columns[numbers[0]][0])
        if len(numbers) == 1:
            found[numbers[0]] = settled
        elif any(misfit.rows.any() for misfit in settled.misfits):
            found |= {each: settle_column(columns[each][1], columns[each][0]) for each in numbers}
        else:
            num_rows = len(whole) // len(numbers)
            for place, number in enumerate(numbers):
                found[number] = Settled(settled.column.slice(place * num_rows, num_rows), [])
    return [found[number] for number in range(len(columns))]


def _is_single(feature: Feature, column: pa.Array) -> bool:
    """Return whether a column holds one number or text per row."""
    if feature.stored_shape:
        return False
    if feature.kind in (FeatureKind.TEXT, FeatureKind.BYTES):
        return is_text(column.type) or pa.types.is_binary(column.type)
    return feature.kind in (FeatureKind.INT64, FeatureKind.FLOAT32)


def _settle_items(items: Items, feature: Feature) -> Settled:
    """Settle a column of single values or lists of them."""
    values = items.values
    if is_text(values.type) and feature.kind not in TEXT_KINDS:
        values = empty_as_null(values.cast(pa.string()))
    values, item_faults = CONVERT[feature.kind](values, feature)
    empty = null_rows(values)
    misfits = misfits_at(
        items.odd, f"is {{value}}, which does not have the shape {_told_shape(feature)}"
    )
    for fault in item_faults:
        empty = empty & ~fault.rows
        misfits.append(fault._replace(rows=items.rows_with(fault.rows)))
    filler = _filler(feature)
    if filler is None:
        absent = items.missing if _is_fixed(feature) else False
        rows = (items.rows_with(empty) | absent) & ~items.odd
        is_class = _NEEDED[feature.kind] == _NO_CLASS
        reason = RejectReason.MISSING_LABEL if is_class else RejectReason.BAD_VALUE
        misfits.insert(0, Misfit(rows, reason, _NEEDED[feature.kind]))
        filler = 0  # any value: these rows are rejected
    return Settled(_by_row(_fill(values, filler), items, feature, filler), misfits)


def _by_row(values: pa.Array, items: Items, feature: Feature, filler: Any) -> pa.Array:
    """Return one value or list per row.

    A row without a value has the default; a list of any length is [] then.
    """
    whole, absent, places = values, items.lengths != 1, np.cumsum(items.lengths) - 1
    default = pa.scalar(filler).cast(values.type).as_py()
    if feature.stored_shape:
        whole, places = items.as_lists(values), np.arange(len(items.lengths))
        absent = items.missing & _is_fixed(feature)
        default = [default] * math.prod(size or 0 for size in feature.stored_shape)
    if not absent.any():
        return whole
    rows = pa.array(np.where(absent, len(whole), places))
    return pa.concat_arrays([whole, pa.array([default], whole.type)]).take(rows)


def _is_fixed(feature: Feature) -> bool:
    return None not in feature.stored_shape


def _filler(feature: Feature) -> float | str | bytes | None:
    """Return the value for missing values; None if the feature needs one in each row."""
    default = feature.default
    if feature.kind in TEXT_KINDS:
        return str(default or "").encode()
    if default is None:
        return math.nan if feature.kind == FeatureKind.FLOAT32 else None
    if _NEEDED.get(feature.kind) == _NO_CLASS:
        return str(default)
    return int(default) if feature.kind == FeatureKind.INT64 else float(default)


def _fill(values: pa.Array, filler: Any) -> pa.Array:
    if not values.null_count:
        return values
    return pc.fill_null(values, pa.scalar(filler).cast(values.type))


def _settle_words(column: pa.Array, feature: Feature) -> Settled:
    """Settle a column of texts; several texts of a row are joined by spaces."""
    column = plain(column)
    if is_list(column.type):
        items = take_apart(column, (None,))
        texts, bad = to_texts(items.values)
        joined = pc.binary_join(items.as_lists(_fill(texts, "")), " ")
        texts, bad = (
            null_where(joined, items.missing),
            items.rows_with(bad),
        )
    else:
        texts, bad = to_texts(column)
    return Settled(
        _fill(texts, str(feature.default or "")), misfits_at(bad, "is {value}, which is not UTF-8")
    )


def _told_shape(feature: Feature) -> str:
    shape = feature.shape if feature.kind == FeatureKind.TENSOR else feature.stored_shape
    return "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
