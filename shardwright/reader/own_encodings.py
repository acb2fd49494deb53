"""Encodings of tensors, bags of words and decoded masks; users need not request them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.format.entries import Values
from shardwright.format.schema import Feature, FeatureKind
from shardwright.format.tensors import read_tensor
from shardwright.images.masks import mask_dtype
from shardwright.reader.encodings import Encoding, Spec
from shardwright.reader.values import SparseColumn, bag_of, flatten, value_dtype

_STRING = "string"


def natural_encoding(feature: Feature) -> Encoding:
    """Return the default encoding of a feature."""
    if feature.kind == FeatureKind.TENSOR:
        return Tensors()
    return Bags() if feature.kind == FeatureKind.BAG_OF_WORDS else Encoding()


@dataclass(frozen=True, slots=True)
class Tensors(Encoding):
    """Serialized TensorProtos as [b, *shape]; objects [b] of arrays of strings, or if they vary."""

    def spec(self, feature: Feature, batch: int | None) -> Spec:
        if _is_fixed(feature):
            return (batch, *feature.shape), np.dtype(feature.dtype)
        return (batch,), np.dtype(object)

    def blank(self, feature: Feature) -> Any:
        if _is_fixed(feature):
            return 0
        sizes = [size or 0 for size in feature.shape]
        is_text = feature.dtype == _STRING
        return np.full(sizes, b"", object) if is_text else np.zeros(sizes, feature.dtype or "f4")

    def encode(self, feature: Feature, values: Values) -> Any:
        return read_tensor(feature, values[0])


def _is_fixed(feature: Feature) -> bool:
    return feature.dtype not in ("", _STRING) and None not in feature.shape


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
