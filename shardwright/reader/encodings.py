"""How a feature of the records becomes a column of a batch, where a user wants another form than the stored one.

    features={"image": None, "label": OneHot(), "tags": MultiHot(vocabulary=["cat", "dog"]), "boxes": Dense(16)}

Each encoding is a frozen dataclass that checks its arguments when it is made, and whether it goes with a feature in `complete`.
A column is allocated blank for a whole batch, each row is set to what `encode` gives, and `finish` makes the array users see.

Here are what they all are, and those of single values; the others are in `class_encodings` and `list_encodings`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.errors import UsageError
from shardwright.example import ExampleFault
from shardwright.reader.values import (
    BYTE_STRINGS,
    SparseColumn,
    Values,
    as_text,
    blank_value,
    check_kind,
    list_array,
    object_array,
    readable,
    value_dtype,
)
from shardwright.schema import Feature, FeatureKind

Spec = tuple[tuple[int | None, ...], np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Encoding:
    """Values as they are stored: int64 [b], float32 [b], texts as objects [b] of str, bytes as objects [b] of bytes.

    Arrays of a fixed shape are [b, *shape]. Lists are objects [b], each an array [items] of int64, float32, or object for texts and
    bytes; of boxes, [items, 4]. Tensors and bags of words have forms of their own (`own_encodings`).
    """

    def complete(self, feature: Feature, class_names: Sequence[str]) -> Encoding:
        """This encoding with what it takes from the dataset, fit for `feature`.

        Raises:
            UsageError: It does not go with such a feature.
        """
        del feature, class_names
        return self

    def spec(self, feature: Feature, batch: int | None) -> Spec:
        """Shape and dtype of a finished column of `batch` rows; None where a size differs from batch to batch."""
        shape = feature.stored_shape
        return (
            ((batch,), np.dtype(object))
            if None in shape
            else ((batch, *shape), value_dtype(feature))
        )

    def allocate(self, feature: Feature, batch: int) -> npt.NDArray[Any]:
        """A column of blank rows: 0, "", b"" or an empty list."""
        shape = feature.stored_shape
        if None in shape:
            return object_array([list_array(feature, [])] * batch)
        return np.full(
            (batch, *(size or 0 for size in shape)), blank_value(feature), value_dtype(feature)
        )

    def encode(self, feature: Feature, values: Values) -> Any:
        """What a row is set to: `values` are as many as the feature's shape says; of a bag of words, indices and counts.

        Raises:
            ExampleFault: This encoding has no place for them.
        """
        return list_array(feature, values) if feature.stored_shape else readable(feature, values[0])

    def finish(self, feature: Feature, column: npt.NDArray[Any]) -> npt.NDArray[Any] | SparseColumn:
        """The column as users see it."""
        del feature
        return column


@dataclass(frozen=True, slots=True)
class Text(Encoding):
    """Bytes as text: objects [b] of str; of a list, objects [b], each a 1-D object array of str.

    The texts of a table's columns are stored as bytes. What is no UTF-8 becomes lone surrogates (`surrogateescape`).
    """

    def complete(self, feature: Feature, class_names: Sequence[str]) -> Encoding:
        del class_names
        check_kind("Text", feature, BYTE_STRINGS)
        return self

    def allocate(self, feature: Feature, batch: int) -> npt.NDArray[Any]:
        return Encoding.allocate(self, replace(feature, kind=FeatureKind.TEXT), batch)

    def encode(self, feature: Feature, values: Values) -> Any:
        return (
            object_array([as_text(value) for value in values])
            if feature.is_list
            else as_text(values[0])
        )


@dataclass(frozen=True, slots=True)
class RawTensor(Encoding):
    """Bytes as the tensor whose memory they are, [b, *shape]: what `array.tobytes()` gave.

    Attributes:
        dtype: Of the stored numbers, such as "float32" or `ml_dtypes.bfloat16`; ">f4" where they are big-endian. The column has
            it in the machine's own byte order.
        shape: Of one record's tensor; an integer is a vector's length.
    """

    dtype: npt.DTypeLike
    shape: int | tuple[int, ...]

    def __post_init__(self) -> None:
        dtype = _number_dtype(self.dtype)
        shape = (
            (self.shape,)
            if type(self.shape) is int
            else tuple(self.shape)
            if isinstance(self.shape, (tuple, list))
            else (0,)
        )
        if not all(type(size) is int and size > 0 for size in shape):
            raise UsageError(
                f"RawTensor(shape={self.shape!r}) must be whole numbers above 0, such as (16, 16, 4)"
            )
        object.__setattr__(self, "dtype", dtype)
        object.__setattr__(self, "shape", shape)

    @property
    def _stored(self) -> np.dtype[Any]:
        return np.dtype(self.dtype)

    @property
    def _sizes(self) -> tuple[int, ...]:
        return (self.shape,) if isinstance(self.shape, int) else self.shape

    def complete(self, feature: Feature, class_names: Sequence[str]) -> Encoding:
        del class_names
        check_kind("RawTensor", feature, BYTE_STRINGS)
        if feature.is_list:
            raise UsageError(
                f"feature {feature.name!r} is a list, and RawTensor takes the bytes of one tensor"
            )
        return self

    def spec(self, feature: Feature, batch: int | None) -> Spec:
        del feature
        return (batch, *self._sizes), self._stored.newbyteorder("=")

    def allocate(self, feature: Feature, batch: int) -> npt.NDArray[Any]:
        del feature
        return np.zeros((batch, *self._sizes), self._stored.newbyteorder("="))

    def encode(self, feature: Feature, values: Values) -> Any:
        num_bytes = math.prod(self._sizes) * self._stored.itemsize
        if len(values[0]) != num_bytes:
            raise ExampleFault(
                f"feature {feature.name!r} has {len(values[0])} bytes, and a tensor {list(self._sizes)} of {self._stored} has {num_bytes}"
            )
        return np.frombuffer(values[0], self._stored).reshape(self._sizes)


def _number_dtype(given: Any) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(given)
    except TypeError:
        dtype = np.dtype(object)
    is_registered = dtype.kind == "V" and dtype.isbuiltin == 2  # as ml_dtypes registers bfloat16
    if given is None or not (dtype.kind in "biufc" or is_registered):
        raise UsageError(
            f"RawTensor(dtype={given!r}) must be a type of numbers that NumPy knows, such as 'float32'"
        )
    return dtype
