"""Declare the features of a dataset's examples.

One `ExampleSchema` makes the encoder's input, the parser's spec, `features.json`, `schema.pbtxt`
and the manifest's copy: no feature name is typed twice, and a reader needs only the dataset.
"""

from __future__ import annotations

import pickle
import re
import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from shardwright.errors import UsageError
from shardwright.format.features import (
    ARROW_TYPES,
    CLASSES,
    CROPPED,
    INDEXED,
    NUMBERS,
    PICTURES,
    POSITIONS,
    WORDS,
    Feature,
    FeatureKind,
    Source,
    StoredFeature,
    VocabularyRule,
    check_feature,
)
from shardwright.format.json_files import check_fields, typed

__all__ = [
    "ARROW_TYPES",
    "CLASSES",
    "CROPPED",
    "INDEXED",
    "NUMBERS",
    "PICTURES",
    "POSITIONS",
    "WORDS",
    "ExampleSchema",
    "Feature",
    "FeatureKind",
    "Source",
    "StoredFeature",
    "VocabularyRule",
]

_FOLDERS = re.compile("/")
_KEPT = 4  # schemas of a build: as it is declared, and with its vocabularies


@lru_cache(_KEPT)
def _unpickled(data: bytes) -> ExampleSchema:
    return ExampleSchema(*pickle.loads(zlib.decompress(data)))


@lru_cache(_KEPT)
def _pickled(schema: ExampleSchema) -> bytes:
    # Fast and small: Beam compresses each step of its graph again, with bz2.
    data = pickle.dumps((schema.features, schema.class_names, schema.vocabularies))
    return zlib.compress(data, 1)


def erased_name(number: int) -> str:
    """Return the placeholder of a class name or a word that only erased records had."""
    return f"<erased {number}>"


def same_names(there: Sequence[str], here: Sequence[str]) -> bool:
    """Return whether names are equal, but for those that were erased from the first ones."""
    return len(there) == len(here) and all(
        old in (new, erased_name(number))
        for number, (old, new) in enumerate(zip(there, here, strict=True))
    )


@dataclass(frozen=True, slots=True)
class ExampleSchema:
    """The features of a dataset, and the names that their indices stand for.

    Attributes:
        features: In writing order.
        class_names: Of the label (`Source.LABEL`), in label order.
        vocabularies: By feature name, the class names or words of other features with indices.
    """

    features: tuple[Feature, ...] = field(hash=False)  # of thousands, a hash would take long
    class_names: tuple[str, ...] = ()
    vocabularies: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for feature in self.features:
            check_feature(feature)
        names = [key for feature in self.features for key in feature.stored_keys]
        counts = Counter(names)
        if len(counts) < len(names):
            name = next(name for name in names if counts[name] > 1)
            raise UsageError(f"two features have the name {name!r}: rename one in the input")
        for inside in names:
            for end in _FOLDERS.finditer(inside):
                if (name := inside[: end.start()]) in counts:
                    raise UsageError(
                        f"feature {name!r} is also the folder of {inside!r}: "
                        "rename one of the two columns"
                    )

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what pickle makes it of: one value, because Beam looks at each object.

        Every step of a graph has the schema, and a process makes it once.
        """
        return _unpickled, (_pickled(self),)

    def find(self, source: Source) -> Feature | None:
        """Return the first feature that is filled from `source`."""
        return next((feature for feature in self.features if feature.source == source), None)

    @property
    def column_features(self) -> list[Feature]:
        """The features that columns of a source fill, in writing order."""
        return [feature for feature in self.features if feature.source == Source.COLUMN]

    @property
    def image(self) -> Feature | None:
        """The main image; None if records have none."""
        return self.find(Source.IMAGE)

    @property
    def may_lack_image(self) -> bool:
        """True if a record without a main image is valid."""
        return self.image is None or self.image.is_optional

    @property
    def label(self) -> Feature | None:
        return self.find(Source.LABEL)

    @property
    def main_classes(self) -> Feature | None:
        """The label; without a label, the only feature of classes, or None."""
        found = [
            feature
            for feature in self.features
            if feature.kind in (FeatureKind.CLASS_LABEL, FeatureKind.MULTI_LABEL)
        ]
        return self.label or (found[0] if len(found) == 1 else None)

    @property
    def main_class_names(self) -> tuple[str, ...]:
        """The class names of `main_classes`, or ()."""
        feature = self.main_classes
        return self.names_of(feature) if feature is not None else ()

    @property
    def small_features(self) -> tuple[Feature, ...]:
        """The features other than the image; they are encoded from Arrow, a batch at a time."""
        return tuple(feature for feature in self.features if feature.source != Source.IMAGE)

    def with_class_names(self, class_names: tuple[str, ...]) -> ExampleSchema:
        """Return the schema with these classes; without classes, it has no label features."""
        return self._with_names(class_names, self.vocabularies)

    def _with_names(
        self, class_names: tuple[str, ...], vocabularies: Mapping[str, tuple[str, ...]]
    ) -> ExampleSchema:
        labels = () if class_names else (Source.LABEL, Source.LABEL_TEXT)
        features = tuple(feature for feature in self.features if feature.source not in labels)
        return ExampleSchema(features, class_names, vocabularies)

    def with_vocabularies(self, vocabularies: Mapping[str, tuple[str, ...]]) -> ExampleSchema:
        """Return the schema with learned names by feature name, those of the label included."""
        own = self.label.name if self.label else ""
        others = {name: words for name, words in vocabularies.items() if name != own}
        return self._with_names(vocabularies.get(own, ()), others)

    def names_of(self, feature: Feature) -> tuple[str, ...]:
        """Return the class names or words of a feature, by index; () if it holds no indices."""
        return (
            self.class_names
            if feature.source == Source.LABEL
            else self.vocabularies.get(feature.name, feature.names)
        )

    def without_names(self, numbers: Mapping[str, Collection[int]]) -> ExampleSchema:
        """Return the schema with placeholders for some class names and words.

        Args:
            numbers: The numbers of the names, by feature name.
        """

        def left(feature: str, names: tuple[str, ...]) -> tuple[str, ...]:
            gone = set(numbers.get(feature, ()))
            return tuple(
                erased_name(number) if number in gone else name for number, name in enumerate(names)
            )

        return replace(
            self,
            features=tuple(
                replace(each, names=left(each.name, each.names)) for each in self.features
            ),
            class_names=left(self.label.name, self.class_names) if self.label else (),
            vocabularies={name: left(name, words) for name, words in self.vocabularies.items()},
        )

    def to_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {
            "features": [feature.to_json() for feature in self.features],
            "class_names": list(self.class_names),
        }
        if self.vocabularies:
            record["vocabularies"] = {
                name: list(words) for name, words in self.vocabularies.items()
            }
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> ExampleSchema:
        """Return the schema of a `to_json` record.

        Raises:
            ValueError: The record is invalid.
        """
        found = typed(record, cls)
        check_fields(record["features"], Feature)
        return found
