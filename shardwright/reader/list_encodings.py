"""Encode lists of any length as one padded array, or as coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.errors import UsageError
from shardwright.format.entries import Values
from shardwright.format.example import ExampleFault
from shardwright.format.schema import NUMBERS, Feature, FeatureKind
from shardwright.reader.encodings import Encoding, Spec
from shardwright.reader.values import (
    INTEGERS,
    SparseColumn,
    bag_of,
    blank_value,
    check_count,
    flatten,
    item_shape,
    list_array,
    told_kind,
    value_dtype,
)
from shardwright.sizes import counted


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
            check_count("Dense", "length", self.length)

    def complete(self, feature: Feature, class_names: Sequence[str]) -> Encoding:
        if feature.kind == FeatureKind.BAG_OF_WORDS:
            if self != Dense():
                raise UsageError(
                    f"feature {feature.name!r} is a bag of {counted(len(class_names), 'word')}, "
                    "one column each: give Dense() without arguments"
                )
            return Dense(max(len(class_names), 1), fill=0)
        _check_list("Dense", feature)
        if self.length is None:
            raise UsageError(f"feature {feature.name!r} is a list: give Dense(length=...)")
        if self.fill is None or (self.fill == 0 and type(self.fill) is int):
            return replace(self, fill=blank_value(feature))
        types, rule = _fill_rule(feature)
        if type(self.fill) not in types or not _fits(self.fill, value_dtype(feature)):
            raise UsageError(
                f"feature {feature.name!r} holds {told_kind(feature)} values, "
                f"so Dense(fill={self.fill!r}) must be {rule}"
            )
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


@dataclass(frozen=True, slots=True)
class Sparse(Encoding):
    """Lists as one `SparseColumn` per batch.

    Trainers get a `tf.sparse.SparseTensor` or a torch COO tensor.
    """

    def complete(self, feature: Feature, class_names: Sequence[str]) -> Encoding:
        del class_names
        _check_list("Sparse", feature)
        if not feature.is_list:
            raise UsageError(
                f"feature {feature.name!r} is a list of items of shape {item_shape(feature)}, "
                "and Sparse takes lists of single values: use Dense"
            )
        return self

    def spec(self, feature: Feature, batch: int | None) -> Spec:
        return (batch, None), value_dtype(feature)

    def finish(self, feature: Feature, column: npt.NDArray[Any]) -> SparseColumn:
        rows, values = flatten(column, value_dtype(feature))
        # For each value its index in its own list: its number among all, less that of the list's
        # first.
        places = np.arange(len(rows)) - np.searchsorted(rows, rows)
        shape = len(column), int(places.max(initial=-1)) + 1
        return SparseColumn(np.stack([rows, places], axis=1), values, shape, blank_value(feature))


def _fill_rule(feature: Feature) -> tuple[tuple[type, ...], str]:
    """Return the types that `fill` may have for this feature, and their name in messages."""
    if feature.kind in INTEGERS:
        return (int,), f"a value of {feature.dtype}" if feature.dtype else "a 64-bit integer"
    if feature.kind in NUMBERS:
        return (int, float), "a number"
    return ((str,), "a string") if feature.kind == FeatureKind.TEXT else ((bytes,), "bytes")


def _fits(fill: Any, dtype: np.dtype[Any]) -> bool:
    if dtype.kind not in "iub":
        return True
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return bool(low <= fill <= high)


def _check_list(encoding: str, feature: Feature) -> None:
    if feature.kind == FeatureKind.BAG_OF_WORDS:
        raise UsageError(
            f"feature {feature.name!r} is a bag of words, which is sparse already: "
            "leave its encoding out, or give Dense() or MultiHot()"
        )
    if feature.stored_shape[:1] != (None,):
        raise UsageError(
            f"feature {feature.name!r} is a single value, and {encoding} takes lists: "
            "leave its encoding out"
        )
