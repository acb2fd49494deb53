"""Convert columns of a source into the columns that features store, and find misfits.

Values that need a vocabulary become texts or whole numbers here. `indices.index_column` indexes
them once the vocabulary is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.format.schema import PICTURES, WORDS, Feature, FeatureKind
from shardwright.transforms.features.column_types import TEXT_KINDS, check_column
from shardwright.transforms.features.conversions import CONVERT, Misfit, misfits_at
from shardwright.transforms.features.lists import (
    Items,
    empty_as_null,
    is_list,
    is_text,
    plain,
    take_apart,
    to_texts,
)
from shardwright.transforms.features.tensors import encode_tensors
from shardwright.transforms.references import stacked
from shardwright.transforms.rejects import RejectReason

# A cell that is no list, and may be several labels or one.
_OTHER_SEPARATORS = r"(?s)^\s*[^\[\s].*[,;]"
_UNCLEAR = (
    "is {value}: give --label-separator with the text between labels, such as ',', or '|' if this "
    "is one label"
)
_TOLD = {
    FeatureKind.INT64: "an integer",
    FeatureKind.FLOAT32: "a number",
    FeatureKind.BOX: "a box",
    FeatureKind.KEYPOINTS: "a keypoint",
    FeatureKind.TENSOR: "a tensor",
}


class Settled(NamedTuple):
    """A column without dictionaries and views; nulls are in misfits only."""

    column: pa.Array
    misfits: list[Misfit]


def settle_column(column: pa.Array, feature: Feature) -> Settled:
    """Return the column as the feature stores it, and the rows that do not fit.

    The type is int64, float32, binary, lists of one of them, or PICTURE_TYPE. Classes are texts or
    int64; the texts of tokens and bags of words are strings.

    Raises:
        BuildError: The column's type cannot be stored as this kind of feature.
    """
    check_column(column.type, feature)
    if feature.kind in PICTURES:
        absent = column.is_null().to_numpy(zero_copy_only=False)
        rows = absent if feature.default is None else np.zeros(len(column), bool)
        return Settled(column, misfits_at(rows, "has no picture, and the feature has no default"))
    if feature.kind == FeatureKind.TENSOR:
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
    alike = [
        number for number, (feature, column) in enumerate(columns) if _is_single(feature, column)
    ]
    rules = [
        (columns[number][0].kind, columns[number][0].dtype, columns[number][0].default)
        for number in alike
    ]
    for places, whole in stacked([columns[number][1] for number in alike], rules):
        if len(places) == 1:
            continue
        settled = settle_column(whole, columns[alike[places[0]]][0])
        if any(misfit.rows.any() for misfit in settled.misfits):
            continue
        num_rows = len(whole) // len(places)
        for place, number in enumerate(places):
            found[alike[number]] = Settled(settled.column.slice(place * num_rows, num_rows), [])
    return [
        found[number] if number in found else settle_column(column, feature)
        for number, (feature, column) in enumerate(columns)
    ]


def _is_single(feature: Feature, column: pa.Array) -> bool:
    """Return whether a column holds one number or text per row."""
    if feature.stored_shape:
        return False
    if feature.kind in (FeatureKind.TEXT, FeatureKind.BYTES):
        return is_text(column.type) or pa.types.is_binary(column.type)
    return feature.kind in (FeatureKind.INT64, FeatureKind.FLOAT32)


def _settle_items(items: Items, feature: Feature) -> Settled:
    """Settle a column of single values or lists of them."""
    values, item_faults = CONVERT[feature.kind](_blank_as_null(items.values, feature), feature)
    empty = values.is_null().to_numpy(zero_copy_only=False)
    misfits = misfits_at(
        items.odd, f"is {{value}}, which does not have the shape {_told_shape(feature)}"
    )
    for fault in item_faults:
        empty = empty & ~fault.rows
        misfits.append(fault._replace(rows=items.rows_with(fault.rows)))
    filler, needed = _filler(feature)
    if needed is not None:
        absent = items.missing if _is_fixed(feature) else False
        misfits.insert(0, needed._replace(rows=(items.rows_with(empty) | absent) & ~items.odd))
        # Any value: these rows are rejected.
        kind = values.type
        filler = pa.scalar("" if is_text(kind) else b"" if pa.types.is_binary(kind) else 0, kind)
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
    if feature.kind in TEXT_KINDS:
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


def _fill(values: pa.Array, filler: pa.Scalar | str) -> pa.Array:
    if not values.null_count:
        return values
    scalar = filler if isinstance(filler, pa.Scalar) else pa.scalar(filler)
    return pc.fill_null(values, scalar if scalar.type == values.type else scalar.cast(values.type))


def _blank_as_null(values: pa.Array, feature: Feature) -> pa.Array:
    """Replace blank texts by null, unless the feature stores texts."""
    if feature.kind in TEXT_KINDS or not is_text(values.type):
        return values
    return empty_as_null(values.cast(pa.string()))


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
        _fill(texts, str(feature.default or "")), misfits_at(bad, "is {value}, which is not UTF-8")
    )


def _told_shape(feature: Feature) -> str:
    shape = feature.shape if feature.kind == FeatureKind.TENSOR else feature.stored_shape
    return "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
