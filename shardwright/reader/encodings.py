"""Encode features as columns of a batch, for users who want another form than the stored one.

    features={"image": None, "label": OneHot(), "tags": MultiHot(vocabulary=["cat", "dog"]),
              "boxes": Dense(16)}

An encoding is a frozen dataclass. It checks its arguments when created, and the feature in
`complete`. A column is allocated blank for a whole batch, each row is set to the result of
`encode`, and `finish` makes the array that users see.

Here are the base class and the encodings of single values; for others see `class_encodings`,
`list_encodings` and `own_encodings`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from shardwright.errors import UsageError
from shardwright.format.entries import Values
from shardwright.format.example import ExampleFault
from shardwright.format.schema import Feature, FeatureKind
from shardwright.reader.values import (
    BYTE_STRINGS,
    SparseColumn,
    as_text,
    blank_value,
    check_kind,
    list_array,
    object_array,
    readable,
    value_dtype,
)
from shardwright.sizes import counted

Spec = tuple[tuple[int | None, ...], np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Encoding:
    """Values as stored: int64 [b], float32 [b], or objects [b] of str (text) or bytes.

    Arrays of a fixed shape are [b, *shape]. Lists are objects [b], each an array [items] of int64,
    float32, or object for text and bytes; boxes are [items, 4]. Tensors and bags of words have
    their own encodings (`own_encodings`).
    """

    def complete(self, feature: Feature, class_names: Sequence[str]) -> Encoding:
        """Return this encoding for `feature`, with what it needs from the dataset filled in.

        Raises:
            UsageError: The encoding does not fit the feature.
        """
        del feature, class_names
        return self

    def spec(self, feature: Feature, batch: int | None) -> Spec:
        """Return (shape, dtype) of a finished column of `batch` rows; sizes that vary are None."""
        shape = feature.stored_shape
        return (
            ((batch,), np.dtype(object))
            if None in shape
            else ((batch, *shape), value_dtype(feature))
        )

    def blank(self, feature: Feature) -> Any:
        """Return the value of a row without a record: 0, "", b"" or an empty list."""
        is_list = None in feature.stored_shape
        return list_array(feature, []) if is_list else blank_value(feature)

    def allocate(self, feature: Feature, batch: int) -> npt.NDArray[Any]:
        """Return a column of blank rows, as `finish` takes it."""
        blank, (shape, dtype) = self.blank(feature), self.spec(feature, batch)
        if isinstance(blank, np.ndarray | tuple):  # of lists, which differ in length
            return object_array([blank] * batch)
        return np.full(cast(tuple[int, ...], shape), blank, dtype)

    def encode(self, feature: Feature, values: Values) -> Any:
        """Return the value of one row.

        Args:
            values: As many as the feature's shape says; for a bag of words, indices and counts.

        Raises:
            ExampleFault: The values do not fit this encoding.
        """
        return list_array(feature, values) if feature.stored_shape else readable(feature, values[0])

    def finish(self, feature: Feature, column: npt.NDArray[Any]) -> npt.NDArray[Any] | SparseColumn:
        """Return the column as users see it."""
        del feature
        return column


@dataclass(frozen=True, slots=True)
class Text(Encoding):
    """Bytes as text: objects [b] of str; a list as objects [b], each a 1-D object array of str.

    Text columns of tables are stored as bytes. Invalid UTF-8 becomes lone surrogates
    (`surrogateescape`).
    """

    def complete(self, feature: Feature, class_names: Sequence[str]) -> Encoding:
        del class_names
        check_kind("Text", feature, BYTE_STRINGS)
        return self

    def blank(self, feature: Feature) -> Any:
        return Encoding.blank(self, replace(feature, kind=FeatureKind.TEXT))

    def encode(self, feature: Feature, values: Values) -> Any:
        return (
            object_array([as_text(value) for value in values])
            if feature.is_list
            else as_text(values[0])
        )


@dataclass(frozen=True, slots=True)
class RawTensor(Encoding):
    """Bytes as a tensor [b, *shape]: the inverse of `array.tobytes()`.

    Attributes:
        dtype: Stored number type, such as "float32" or `ml_dtypes.bfloat16`; ">f4" for big-endian.
            The column is in native byte order.
        shape: Shape of one record's tensor; an integer is a vector's length.
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
                f"RawTensor(shape={self.shape!r}) must be whole numbers above 0, "
                "such as (16, 16, 4)"
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

    def blank(self, feature: Feature) -> Any:
        del feature
        return 0

    def encode(self, feature: Feature, values: Values) -> Any:
        num_bytes = math.prod(self._sizes) * self._stored.itemsize
        if len(values[0]) != num_bytes:
            raise ExampleFault(
                f"feature {feature.name!r} has {counted(len(values[0]), 'byte')}, "
                f"but a tensor {list(self._sizes)} of {self._stored} has {num_bytes}"
            )
        # Assigned to a row in native order, which copies and swaps bytes if needed.
        return np.frombuffer(values[0], self._stored).reshape(self._sizes)


def _number_dtype(given: Any) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(given)
    except TypeError:
        dtype = np.dtype(object)
    is_registered = dtype.kind == "V" and dtype.isbuiltin == 2  # as ml_dtypes registers bfloat16
    if given is None or not (dtype.kind in "biufc" or is_registered):
        raise UsageError(
            f"RawTensor(dtype={given!r}) must be a numeric NumPy dtype, such as 'float32'"
        )
    return dtype
