"""The values of features as NumPy and Python see them, and what the encodings ask of features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.errors import UsageError
from shardwright.schema import Feature, FeatureKind

Values = Sequence[Any] | npt.NDArray[Any]  # of bytes, int or float

CLASSES = (
    FeatureKind.CLASS_LABEL,
    FeatureKind.MULTI_LABEL,
    FeatureKind.TOKENS,
)  # indices of the feature's own names
INTEGERS = (*CLASSES, FeatureKind.INT64)
BYTE_STRINGS = (FeatureKind.TEXT, FeatureKind.BYTES)
_DTYPES = {
    **dict.fromkeys(INTEGERS, np.int64),
    **dict.fromkeys((FeatureKind.FLOAT32, FeatureKind.BOX, FeatureKind.BAG_OF_WORDS), np.float32),
}


@dataclass(frozen=True, eq=False, slots=True)
class SparseColumn:
    """A batch of lists by coordinates, as `tf.sparse.SparseTensor` and `torch.sparse_coo_tensor` take them.

    Attributes:
        indices: int64 [nnz, 2], (row, place in its list) of each value, in row-major order.
        values: [nnz] of int64, float32, or object for texts and bytes.
        dense_shape: (rows of the batch, length of its longest list).
    """

    indices: npt.NDArray[np.int64]
    values: npt.NDArray[Any]
    dense_shape: tuple[int, int]

    def to_dense(self) -> npt.NDArray[Any]:
        """The same as an array of `dense_shape`, 0 or None where there is no value."""
        dense = np.zeros(self.dense_shape, self.values.dtype)
        dense[tuple(self.indices.T)] = self.values
        return dense


def value_dtype(feature: Feature) -> np.dtype[Any]:
    """int64, float32, or object for texts (str) and bytes."""
    return np.dtype(_DTYPES.get(feature.kind, object))


def blank_value(feature: Feature) -> Any:
    """0, an empty text or empty bytes."""
    if feature.kind in _DTYPES:
        return 0
    return "" if feature.kind == FeatureKind.TEXT else b""


def as_text(value: bytes) -> str:
    """UTF-8; what is none becomes lone surrogates, which `encode("utf-8", "surrogateescape")` turns into the same bytes again."""
    return value.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def readable(feature: Feature, value: Any) -> Any:
    """A stored value as users see it: texts as str."""
    return as_text(value) if feature.kind == FeatureKind.TEXT else value


def item_shape(feature: Feature) -> tuple[int, ...]:
    """The shape of one item of a list: () of single values, (4,) of boxes."""
    return tuple(size or 0 for size in feature.stored_shape[1:])


def list_array(feature: Feature, values: Values) -> npt.NDArray[Any]:
    """An array [items, *item_shape], or of the feature's fixed shape, of int64, float32, or object for texts and bytes."""
    if feature.kind in _DTYPES:
        array = np.array(
            values, value_dtype(feature)
        )  # a copy: `values` may be a view of a whole block of records
    else:
        array = object_array([readable(feature, value) for value in values])
    return array if len(feature.stored_shape) == 1 else array.reshape((-1, *item_shape(feature)))


def object_array(values: Sequence[Any]) -> npt.NDArray[Any]:
    """A 1-D array of these very objects, also where each has a length."""
    array = np.empty(len(values), object)
    for place, value in enumerate(values):
        array[place] = value
    return array


def told_kind(feature: Feature) -> str:
    """What a feature's values are called in messages."""
    return feature.stored[-1].told_kind  # of a bag of words, its counts


def check_kind(encoding: str, feature: Feature, kinds: Sequence[FeatureKind]) -> None:
    """Whether an encoding goes with what a feature holds.

    Raises:
        UsageError: It does not.
    """
    if feature.kind not in kinds:
        wanted = "integers" if kinds == INTEGERS else "texts or bytes"
        raise UsageError(
            f"feature {feature.name!r} holds {told_kind(feature)} values, and {encoding} takes {wanted}"
        )


def check_count(encoding: str, argument: str, value: object) -> None:
    """Whether an encoding's argument is a whole number above 0.

    Raises:
        UsageError: It is none.
    """
    if type(value) is not int or value < 1:
        raise UsageError(f"{encoding}({argument}={value!r}) must be a whole number above 0")
