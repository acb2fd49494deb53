"""Check that columns of a type can fill a feature."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

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
from shardwright.transforms.features.lists import (
    BYTES_TYPES,
    NUMBER_TYPES,
    STRING_TYPES,
    is_any,
    is_text,
    value_type,
)
from shardwright.transforms.features.numerics import (
    FLOAT_DTYPES,
    INTEGER_DTYPES,
    to_floats,
    to_integers,
)
from shardwright.transforms.features.texts import check_words
from shardwright.transforms.references import PICTURE_TYPE

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
