"""Encode classes as vectors of zeros and ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.errors import UsageError
from shardwright.format.entries import Values
from shardwright.format.example import ExampleFault
from shardwright.format.schema import INDEXED, Feature, FeatureKind
from shardwright.reader.encodings import Encoding, Spec
from shardwright.reader.values import (
    BYTE_STRINGS,
    INTEGERS,
    as_bytes,
    as_text,
    bag_of,
    check_count,
    check_kind,
    flatten,
)
from shardwright.sizes import counted


@dataclass(frozen=True, slots=True)
class OneHot(Encoding):
    """An integer as float32 [b, num_classes]: 1 at its index, 0 elsewhere.

    Attributes:
        num_classes: Length of a row; None for the number of the feature's own classes.
    """

    num_classes: int | None = None

    def __post_init__(self) -> None:
        if self.num_classes is not None:
            check_count(type(self).__name__, "num_classes", self.num_classes)

    def complete(self, feature: Feature, class_names: Sequence[str]) -> Encoding:
        check_kind("OneHot", feature, INTEGERS)
        if feature.stored_shape:
            raise UsageError(
                f"feature {feature.name!r} is a list, and OneHot takes one integer: use MultiHot"
            )
        return self if self.num_classes else OneHot(_count_classes("OneHot", feature, class_names))

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
        return [self._place(feature, value) for value in values]

    def _place(self, feature: Feature, value: Any) -> int:
        if not 0 <= value < self._length:
            raise ExampleFault(
                f"feature {feature.name!r} is {value}; "
                f"labels of {counted(self._length, 'class')} are 0 to {self._length - 1}"
            )
        return int(value)

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
        num_classes: n, for integers from 0 to n - 1. Without it and a vocabulary, n is the number
            of the feature's own classes.
        vocabulary: All possible values, text or integers, in the order of a row.
    """

    vocabulary: Sequence[str] | Sequence[int] | None = field(default=None, repr=False)
    _places: Mapping[bytes | int, int] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        OneHot.__post_init__(self)
        if self.vocabulary is None:
            return
        if self.num_classes is not None:
            raise UsageError(
                f"MultiHot(num_classes={self.num_classes}, vocabulary=...): give one of the two"
            )
        words = _check_vocabulary(self.vocabulary)
        object.__setattr__(self, "vocabulary", words)
        places = {
            as_bytes(word) if isinstance(word, str) else word: place
            for place, word in enumerate(words)
        }
        object.__setattr__(self, "_places", places)

    def complete(self, feature: Feature, class_names: Sequence[str]) -> Encoding:
        if self.vocabulary is not None:
            texts = isinstance(self.vocabulary[0], str)
            check_kind(
                f"MultiHot with {'a text' if texts else 'an integer'} vocabulary",
                feature,
                BYTE_STRINGS if texts else INTEGERS,
            )
            return self
        if feature.kind in BYTE_STRINGS:
            raise UsageError(f"feature {feature.name!r} is text: pass MultiHot(vocabulary=[...])")
        if feature.kind != FeatureKind.BAG_OF_WORDS:
            check_kind("MultiHot", feature, INTEGERS)
        return (
            self if self.num_classes else MultiHot(_count_classes("MultiHot", feature, class_names))
        )

    @property
    def _length(self) -> int:
        return self.num_classes or len(self._places)

    def encode(self, feature: Feature, values: Values) -> Any:
        if feature.kind == FeatureKind.BAG_OF_WORDS:
            return bag_of(feature, values, self._length)[0]
        return OneHot.encode(self, feature, values)

    def _place(self, feature: Feature, value: Any) -> int:
        if not self._places:
            return OneHot._place(self, feature, value)
        place = self._places.get(value)
        if place is None:
            shown = as_text(value) if isinstance(value, bytes) else value
            raise ExampleFault(
                f"feature {feature.name!r} holds {shown!r}, "
                f"which is not in MultiHot's vocabulary of {self._length}"
            )
        return place


def _count_classes(encoding: str, feature: Feature, class_names: Sequence[str]) -> int:
    if feature.kind in INDEXED and class_names:
        return len(class_names)
    raise UsageError(
        f"feature {feature.name!r} has no class names: pass {encoding}(num_classes=...)"
    )


def _check_vocabulary(vocabulary: Any) -> tuple[str, ...] | tuple[int, ...]:
    words = (
        tuple(vocabulary)
        if isinstance(vocabulary, Sequence) and not isinstance(vocabulary, (str, bytes))
        else ()
    )
    kinds = {type(word) for word in words}
    if kinds not in ({str}, {int}):
        raise UsageError(
            f"MultiHot(vocabulary={vocabulary!r:.80}) must be a list of strings or of integers"
        )
    if len(set(words)) < len(words):
        twice = next(word for word in words if words.count(word) > 1)
        raise UsageError(
            f"MultiHot's vocabulary has {twice!r} more than once: values must be unique"
        )
    return words
