"""Convert single values to the type that their feature stores, and find misfits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.format.schema import Feature, FeatureKind
from shardwright.transforms.features.lists import BYTES_TYPES, Mask, is_any, to_texts
from shardwright.transforms.features.numerics import to_floats, to_integers
from shardwright.transforms.rejects import RejectReason

_LOG = logging.getLogger("shardwright.features")
# Of many random numbers a few become equal; of times in seconds, nearly all.
_LEAST_DISTINCT = 0.9
_told: set[str] = set()  # features of this process that were warned of


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


def misfits_at(
    rows: Mask, rule: str, reason: RejectReason = RejectReason.BAD_VALUE
) -> list[Misfit]:
    return [Misfit(rows, reason, rule)] if rows.any() else []


def _integers(values: pa.Array, feature: Feature) -> tuple[pa.Array, list[Misfit]]:
    numbers, bad = to_integers(values, feature.dtype)
    told = {
        "": "a signed 64-bit integer",
        "uint64": "uint64 within the range of a signed 64-bit integer",
    }
    return numbers, misfits_at(
        bad, f"is {{value}}, which does not fit {told.get(feature.dtype, feature.dtype)}"
    )


def _floats(values: pa.Array, feature: Feature) -> tuple[pa.Array, list[Misfit]]:
    numbers, bad = to_floats(values, feature.dtype)
    _warn_of_rounding(values, numbers, feature)
    kind = feature.dtype if feature.dtype not in ("", "float32", "float64") else "a 32-bit float"
    return numbers, misfits_at(bad, f"is {{value}}, which does not fit {kind}")


def _warn_of_rounding(values: pa.Array, numbers: pa.Array, feature: Feature) -> None:
    """Warn, once in a process, of a column of which many different numbers become equal."""
    is_number = pa.types.is_floating(values.type) or pa.types.is_integer(values.type)
    if not is_number or feature.name in _told:
        return
    given = pc.count_distinct(values.filter(numbers.is_valid())).as_py()
    left = pc.count_distinct(numbers).as_py()
    if left < _LEAST_DISTINCT * given:
        _told.add(feature.name)
        _LOG.warning(
            "column %r: of %s different numbers %d %s left as 32-bit floats, the only ones of "
            "tf.Example: make them whole numbers, such as microseconds, or a TENSOR of float64",
            feature.column_name,
            f"{given:,}",
            left,
            "is" if left == 1 else "are",
        )


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
    return numbers, misfits + misfits_at(bad, rule)


def _keypoints(values: pa.Array, feature: Feature) -> tuple[pa.Array, list[Misfit]]:
    numbers, misfits = _floats(values, feature)
    x, y, visibility = numbers.fill_null(0).to_numpy(zero_copy_only=False).reshape(-1, 3).T
    # Points may be outside of their image, but pixels given for fractions are far outside.
    near = (x >= -1) & (x <= 2) & (y >= -1) & (y <= 2)
    bad = np.repeat(~near | ~np.isin(visibility, (0, 1, 2)), 3)
    rule = (
        "is {value}; a keypoint must be x, y and visibility: x and y as fractions of width and "
        "height, and 0 for a point without a label, 1 for a hidden and 2 for a visible one"
    )
    return numbers, misfits + misfits_at(bad, rule)


def _texts(values: pa.Array, feature: Feature) -> tuple[pa.Array, list[Misfit]]:
    del feature
    is_bytes = is_any(values.type, BYTES_TYPES)
    return (values if is_bytes else values.cast(pa.string())).cast(pa.binary()), []


def _classes(values: pa.Array, feature: Feature) -> tuple[pa.Array, list[Misfit]]:
    """Return class names as texts.

    If names are given and none of them is a number, whole numbers are indices into them.
    """
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.string())
    if pa.types.is_floating(values.type):  # as pandas makes of a column with a gap
        present = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
        numbers, bad = to_integers(present, "")
        named, misfits = _classes(numbers, feature)
        return named, misfits + misfits_at(bad, "is {value}; a class is a text or a whole number")
    if not pa.types.is_integer(values.type):
        texts, bad = to_texts(values)
        return texts, misfits_at(bad, "is {value}, which is not UTF-8")
    numbers, bad = to_integers(values, "")
    misfits = misfits_at(bad, "is {value}, which does not fit a signed 64-bit integer")
    if not feature.names or any(name.lstrip("-").isdecimal() for name in feature.names):
        return numbers.cast(pa.string()), misfits
    indices = numbers.fill_null(0).to_numpy()
    outside = (indices < 0) | (indices >= len(feature.names))
    rule = f"is {{value}}; class indices must be at least 0 and below {len(feature.names)}"
    known = pc.if_else(pa.array(outside), pa.scalar(None, pa.int64()), numbers)
    return pa.array(feature.names, pa.string()).take(known), misfits + misfits_at(
        outside, rule, RejectReason.UNKNOWN_LABEL
    )


CONVERT: dict[FeatureKind, Callable[[pa.Array, Feature], tuple[pa.Array, list[Misfit]]]] = {
    FeatureKind.INT64: _integers,
    FeatureKind.FLOAT32: _floats,
    FeatureKind.BOX: _boxes,
    FeatureKind.KEYPOINTS: _keypoints,
    FeatureKind.TEXT: _texts,
    FeatureKind.BYTES: _texts,
    FeatureKind.CLASS_LABEL: _classes,
    FeatureKind.MULTI_LABEL: _classes,
}
