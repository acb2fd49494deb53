"""Encode features as columns of a batch, for users who want another form than the stored one.

    features={"image": None, "label": OneHot(), "tags": MultiHot(),
              "boxes": Dense(16)}

An encoding is a frozen dataclass. It checks its arguments when created, and the feature in
`complete`. A column is allocated blank for a whole batch, each row is set to the result of
`encode`, and `finish` makes the array that users see.

Users need not ask for the encodings of tensors, bags of words and decoded masks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from shardwright.errors import UsageError
from shardwright.format.entries import Values
from shardwright.format.example import ExampleFault
from shardwright.format.schema import INDEXED, NUMBERS, Feature, FeatureKind
from shardwright.format.tensors import read_tensor
from shardwright.images.masks import mask_dtype
from shardwright.reader.values import (
    BYTE_STRINGS,
    INTEGERS,
    SparseColumn,
    as_text,
    bag_of,
    blank_value,
    check_kind,
    flatten,
    item_shape,
    list_array,
    object_array,
    readable,
    told_kind,
    value_dtype,
)
from shardwright.sizes import check_whole, counted

Spec = tuple[tuple[int | None, ...], np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Encoding:
    """Values as stored: int64 [b], float32 [b], or objects [b] of str (text) or bytes.

    Arrays of a fixed shape are [b, *shape]. Lists are objects [b], each an array [items] of int64,
    float32, or object for text and bytes; boxes are [items, 4]. Tensors and bags of words have
    their own encodings.
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
class OneHot(Encoding):
    """An integer as float32 [b, num_classes]: 1 at its index, 0 elsewhere.

    Attributes:
        num_classes: Length of a row; None for the number of the feature's own classes.
    """

    num_classes: int | None = None

    def __post_init__(self) -> None:
        if self.num_classes is not None:
            check_whole(f"{type(self).__name__}(num_classes)", self.num_classes, 1)

    def complete(self, feature: Feature, class_names: Sequence[str]) -> Encoding:
        self._check(feature)
        if self.num_classes:
            return self
        if feature.kind in INDEXED and class_names:
            return replace(self, num_classes=len(class_names))
        raise UsageError(
            f"feature {feature.name!r} has no class names: "
            f"pass {type(self).__name__}(num_classes=...)"
        )

    def _check(self, feature: Feature) -> None:
        check_kind("OneHot", feature, INTEGERS)
        if feature.stored_shape:
            raise UsageError(
                f"feature {feature.name!r} is a list, and OneHot takes one integer: use MultiHot"
            )

    @property
    def _length(self) -> int:
        return self.num_classes or 0

    def spec(self, feature: Feature, batch: int | None) -> Spec:
        del feature
        return (batch, self._length), np.dtype(np.float32)

    def blank(self, feature: Feature) -> Any:
        """Return the indices of the ones: none."""
        del feature
        return ()

    def encode(self, feature: Feature, values: Values) -> Any:
        """Return the indices of the ones."""
        for value in values:
            if not 0 <= value < self._length:
                raise ExampleFault(
                    f"feature {feature.name!r} is {value}; "
                    f"labels of {counted(self._length, 'class')} are 0 to {self._length - 1}"
                )
        return [*map(int, values)]

    def finish(self, feature: Feature, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        del feature
        encoded = np.zeros((len(column), self._length), np.float32)
        encoded[flatten(column, np.int64)] = 1
        return encoded


@dataclass(frozen=True, slots=True)
class MultiHot(OneHot):
    """A list or one value as float32 [b, n]: 1 at the index of each value present, 0 elsewhere.

    A bag of words has 1 at the index of each word that occurs.

    Attributes:
        num_classes: n, for integers from 0 to n - 1; None for the number of the feature's own
            classes.
    """

    def _check(self, feature: Feature) -> None:
        if feature.kind in BYTE_STRINGS:
            raise UsageError(
                f"feature {feature.name!r} is text: give it the kind multi_label in the schema of "
                "the build, which numbers its values"
            )
        if feature.kind != FeatureKind.BAG_OF_WORDS:
            check_kind("MultiHot", feature, INTEGERS)

    def encode(self, feature: Feature, values: Values) -> Any:
        if feature.kind == FeatureKind.BAG_OF_WORDS:
            return bag_of(feature, values, self._length)[0]
        return OneHot.encode(self, feature, values)


@dataclass(frozen=True, slots=True)
class Dense(Encoding):
    """A list padded to [b, length] of numbers or object (text, bytes); boxes [b, length, 4].

    A bag of words becomes [b, words of its vocabulary], with each word's count at its index.

    Attributes:
        length: Items in a row; None for a bag of words, which has the size of its vocabulary.
        fill: Padding after the last value; None for 0, an empty string or empty bytes.
        truncate: Drop values beyond `length`. Otherwise a longer list makes its record a bad one.
    """

    length: int | None = None
    fill: float | str | bytes | None = None
    truncate: bool = False

    def __post_init__(self) -> None:
        if self.length is not None:
            check_whole("Dense(length)", self.length, 1)

    def complete(self, feature: Feature, class_names: Sequence[str]) -> Encoding:
        if feature.kind == FeatureKind.BAG_OF_WORDS:
            if self != Dense():
                raise UsageError(
                    f"feature {feature.name!r} is a bag of {counted(len(class_names), 'word')}, "
                    "one column each: give Dense() without arguments"
                )
            return Dense(max(len(class_names), 1), fill=0)
        if feature.stored_shape[:1] != (None,):
            raise UsageError(
                f"feature {feature.name!r} is a single value, and Dense takes lists: leave its "
                "encoding out"
            )
        if self.length is None:
            raise UsageError(f"feature {feature.name!r} is a list: give Dense(length=...)")
        if self.fill is None or (self.fill == 0 and type(self.fill) is int):
            return replace(self, fill=blank_value(feature))
        _check_fill(feature, self.fill)
        return self

    def spec(self, feature: Feature, batch: int | None) -> Spec:
        return (batch, self.length or 0, *item_shape(feature)), value_dtype(feature)

    def blank(self, feature: Feature) -> Any:
        del feature
        return self.fill

    def encode(self, feature: Feature, values: Values) -> Any:
        row, length = self.allocate(feature, 1)[0], self.length or 0
        if feature.kind == FeatureKind.BAG_OF_WORDS:
            indices, row_counts = bag_of(feature, values, length)
            row[indices] = row_counts
            return row
        items = list_array(feature, values)
        if len(items) > length and not self.truncate:
            raise ExampleFault(
                f"feature {feature.name!r} has {counted(len(items), 'value')}, "
                f"but Dense(length={self.length}) takes at most {self.length}: "
                "pass a larger length or truncate=True"
            )
        row[: len(items)] = items[:length]
        return row


def _check_fill(feature: Feature, fill: float | str | bytes) -> None:
    dtype, blank = value_dtype(feature), blank_value(feature)
    if feature.kind in INTEGERS:
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        fits, rule = isinstance(fill, int) and low <= fill <= high, f"a value of {dtype}"
    elif feature.kind in NUMBERS:
        fits, rule = isinstance(fill, int | float), "a number"
    else:
        fits, rule = isinstance(fill, type(blank)), f"of type {type(blank).__name__}"
    if not fits:
        raise UsageError(
            f"feature {feature.name!r} holds {told_kind(feature)} values, "
            f"so Dense(fill={fill!r}) must be {rule}"
        )


@dataclass(frozen=True, slots=True)
class Tensors(Encoding):
    """Serialized TensorProtos as [b, *shape]; objects [b] of arrays if they vary."""

    def spec(self, feature: Feature, batch: int | None) -> Spec:
        if _is_fixed(feature):
            return (batch, *feature.shape), np.dtype(feature.dtype)
        return (batch,), np.dtype(object)

    def blank(self, feature: Feature) -> Any:
        if _is_fixed(feature):
            return 0
        return np.zeros([size or 0 for size in feature.shape], feature.dtype or "f4")

    def encode(self, feature: Feature, values: Values) -> Any:
        return read_tensor(feature, values[0])


def _is_fixed(feature: Feature) -> bool:
    return bool(feature.dtype) and None not in feature.shape


@dataclass(frozen=True, slots=True)
class Bags(Encoding):
    """Bags of words as one `SparseColumn` of counts per batch: (rows, num_words).

    Attributes:
        num_words: Size of the vocabulary, from the dataset.
    """

    num_words: int = 0

    def complete(self, feature: Feature, class_names: Sequence[str]) -> Encoding:
        del feature
        return Bags(len(class_names))

    def spec(self, feature: Feature, batch: int | None) -> Spec:
        return (batch, self.num_words), value_dtype(feature)

    def blank(self, feature: Feature) -> Any:
        return np.empty(0, np.int64), np.empty(0, value_dtype(feature))

    def encode(self, feature: Feature, values: Values) -> Any:
        return bag_of(feature, values, self.num_words)

    def finish(self, feature: Feature, column: npt.NDArray[Any]) -> SparseColumn:
        rows, places = flatten((indices for indices, _ in column), np.int64)
        _, counts = flatten((counts for _, counts in column), value_dtype(feature))
        return SparseColumn(np.stack([rows, places], axis=1), counts, (len(column), self.num_words))


@dataclass(frozen=True, slots=True)
class MaskPixels(Encoding):
    """Decoded masks as [b, height, width, 1]; as objects [b] of arrays where they differ in size.

    Attributes:
        shape: (height, width) of all masks; None where they differ.
    """

    shape: tuple[int | None, int | None] = (None, None)

    def spec(self, feature: Feature, batch: int | None) -> Spec:
        if None in self.shape:
            return (batch,), np.dtype(object)
        return (batch, *self.shape, 1), mask_dtype(feature)

    def blank(self, feature: Feature) -> Any:
        if None not in self.shape:
            return 0
        return np.zeros([*(size or 0 for size in self.shape), 1], mask_dtype(feature))


def natural_encoding(feature: Feature) -> Encoding:
    """Return the default encoding of a feature."""
    if feature.kind == FeatureKind.TENSOR:
        return Tensors()
    return Bags() if feature.kind == FeatureKind.BAG_OF_WORDS else Encoding()
