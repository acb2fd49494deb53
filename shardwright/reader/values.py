"""Represent feature values in NumPy and Python, and check that encodings fit features."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.errors import UsageError
from shardwright.format.entries import Values
from shardwright.format.example import ExampleFault
from shardwright.format.schema import CLASSES, NUMBERS, POSITIONS, Feature, FeatureKind
from shardwright.images.libraries import numpy_dtype
from shardwright.sizes import counted

INTEGERS = (*CLASSES, FeatureKind.TOKENS, FeatureKind.INT64)
BYTE_STRINGS = (FeatureKind.TEXT, FeatureKind.BYTES)
# Of values as they are stored.
_DTYPES: dict[FeatureKind, Any] = {
    **dict.fromkeys(INTEGERS, np.int64),
    **dict.fromkeys(POSITIONS | {FeatureKind.FLOAT32, FeatureKind.BAG_OF_WORDS}, np.float32),
}
_TYPED = NUMBERS | {FeatureKind.BAG_OF_WORDS}  # whose arrays have `Feature.dtype`


@dataclass(frozen=True, eq=False, slots=True)
class SparseColumn:
    """A batch of bags of words as `tf.SparseTensor` and `torch.sparse_coo_tensor` take them.

    Attributes:
        indices: int64 [nnz, 2], (row, index of the word) of each count, in row-major order.
        values: [nnz], the counts: int64 or float32.
        dense_shape: (rows of the batch, words of the vocabulary).
    """

    indices: npt.NDArray[np.int64]
    values: npt.NDArray[Any]
    dense_shape: tuple[int, int]


def value_dtype(feature: Feature) -> np.dtype[Any]:
    """Return the declared dtype of numbers, else int64 or float32; object for text and bytes."""
    if feature.dtype == "bfloat16":
        return numpy_dtype(feature.dtype)
    declared = feature.dtype if feature.kind in _TYPED else ""
    return np.dtype(declared or _DTYPES.get(feature.kind, object))


def blank_value(feature: Feature) -> Any:
    """Return 0, an empty string or empty bytes."""
    if feature.kind in _DTYPES:
        return 0
    return "" if feature.kind == FeatureKind.TEXT else b""


def as_text(value: bytes) -> str:
    """Decode UTF-8; invalid bytes become lone surrogates, which `as_bytes` turns back."""
    return value.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def readable(feature: Feature, value: Any) -> Any:
    """Return a stored value as users see it: text as str, numbers in the declared dtype."""
    if feature.dtype and feature.kind in NUMBERS:
        return list_array(feature, [value])[0]
    return as_text(value) if feature.kind == FeatureKind.TEXT else value


def item_shape(feature: Feature) -> tuple[int, ...]:
    """Return the shape of one item of a list: () for single values, (4,) for boxes."""
    return tuple(size or 0 for size in feature.stored_shape[1:])


def list_array(feature: Feature, values: Values) -> npt.NDArray[Any]:
    """Return an array of `value_dtype`: [items, *item_shape], or the fixed shape.

    Raises:
        ExampleFault: A number does not fit the declared dtype.
    """
    if feature.kind in _DTYPES:
        # Copied, because `values` may be a view of a whole block of records.
        array = np.array(values, _DTYPES[feature.kind])
        # `astype` wraps around without an error, so the result is compared. Floats may round.
        made = array.astype(value_dtype(feature), copy=False)
        if made is not array and array.dtype.kind == "i" and (misfits := array[made != array]).size:
            raise ExampleFault(
                f"feature {feature.name!r} holds {misfits[0]}, which does not fit {feature.dtype}"
            )
        array = made
    else:
        array = object_array([readable(feature, value) for value in values])
    return array if len(feature.stored_shape) == 1 else array.reshape((-1, *item_shape(feature)))


def bag_of(
    feature: Feature, values: Values, num_words: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any]]:
    """Return the indices and counts of a bag of words, the two `values`.

    Raises:
        ExampleFault: Their numbers differ, or an index is not below `num_words`.
    """
    indices, counts = np.array(values[0], np.int64), np.array(values[1], value_dtype(feature))
    if len(indices) != len(counts):
        raise ExampleFault(
            f"feature {feature.name!r} has {counted(len(indices), 'index', 'indices')} and "
            f"{counted(len(counts), 'count')}"
        )
    outside = indices[(indices < 0) | (indices >= num_words)]
    if len(outside):
        raise ExampleFault(
            f"feature {feature.name!r} has an index outside its vocabulary "
            f"of {counted(num_words, 'word')}: {outside[0]}"
        )
    return indices, counts


def object_array(values: Sequence[Any]) -> npt.NDArray[Any]:
    """Return a 1-D array of these objects, even if each has a length (NumPy would nest them)."""
    array = np.empty(len(values), object)
    for place, value in enumerate(values):
        array[place] = value
    return array


def flatten(column: Iterable[Values], dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], ...]:
    """Return the row of each value in a column of lists, int64 [n], and the values, [n]."""
    lists = list(column)
    rows = np.repeat(np.arange(len(lists)), np.array([len(items) for items in lists], np.int64))
    return rows, np.concatenate([np.empty(0, dtype), *(np.asarray(one, dtype) for one in lists)])


def told_kind(feature: Feature) -> str:
    """Return the name of a feature's value type for messages."""
    return feature.stored[-1].told_kind  # of a bag of words, its counts


def check_kind(encoding: str, feature: Feature, kinds: Sequence[FeatureKind]) -> None:
    """Raise `UsageError` if an encoding does not fit the values of a feature."""
    if feature.kind not in kinds:
        wanted = "integers" if kinds == INTEGERS else "text or bytes"
        raise UsageError(
            f"feature {feature.name!r} holds {told_kind(feature)} values, "
            f"and {encoding} takes {wanted}"
        )
