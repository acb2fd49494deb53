"""The features of a dataset's examples, declared once.

One `ExampleSchema` makes the encoder's input, the parser's spec, `features.json`, `schema.pbtxt` and the manifest's copy,
so no feature name is typed twice and a reader needs nothing but the dataset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import pyarrow as pa

from shardwright.errors import UsageError


class FeatureKind(StrEnum):
    """What a feature holds. `tf.Example` stores ints as int64, floats as float32, the rest as bytes."""

    IMAGE = "image"
    CLASS_LABEL = "class_label"
    TEXT = "text"
    BYTES = "bytes"
    INT64 = "int64"
    FLOAT32 = "float32"


class Source(StrEnum):
    """What the pipeline fills a feature with."""

    IMAGE = "image"
    ID = "id"
    LABEL = "label"
    LABEL_TEXT = "label_text"
    FORMAT = "format"
    HEIGHT = "height"
    WIDTH = "width"
    COLUMN = "column"


ARROW_TYPES: Mapping[FeatureKind, pa.DataType] = {
    FeatureKind.CLASS_LABEL: pa.int64(),
    FeatureKind.INT64: pa.int64(),
    FeatureKind.FLOAT32: pa.float32(),
    FeatureKind.TEXT: pa.binary(),
    FeatureKind.BYTES: pa.binary(),
    FeatureKind.IMAGE: pa.binary(),
}


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature of every example.

    Attributes:
        name: The key in `tf.Example`; a `/` nests it, as TFDS does.
        kind: What it holds.
        source: What fills it; for `COLUMN`, the table's column of the same name.
        shape: () for one value, (None,) for a list of any length, (height, width, 3) for a raw image.
        encoding: For images: "jpeg", "png" or "raw" where all are stored so, None where each keeps its own.
    """

    name: str
    kind: FeatureKind
    source: Source = Source.COLUMN
    shape: tuple[int | None, ...] = ()
    encoding: str | None = None

    @property
    def is_list(self) -> bool:
        return self.kind != FeatureKind.IMAGE and self.shape == (None,)

    def to_json(self) -> dict[str, Any]:
        record: dict[str, Any] = {"name": self.name, "kind": str(self.kind), "source": str(self.source)}
        if self.shape:
            record["shape"] = list(self.shape)
        if self.encoding:
            record["encoding"] = self.encoding
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Feature:
        return cls(
            name=record["name"],
            kind=FeatureKind(record["kind"]),
            source=Source(record["source"]),
            shape=tuple(record.get("shape", ())),
            encoding=record.get("encoding"),
        )


@dataclass(frozen=True, slots=True)
class ExampleSchema:
    """Every feature of a dataset, in writing order, and the names of its classes in label order."""

    features: tuple[Feature, ...]
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [feature.name for feature in self.features]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"two features are called {name!r}: rename the table's column of that name")
            inside = next((other for other in names if other.startswith(f"{name}/")), None)
            if inside:
                raise UsageError(f"feature {name!r} is also the folder of {inside!r}: rename one of the two columns")

    def find(self, source: Source) -> Feature | None:
        """The first feature filled from `source`."""
        return next((feature for feature in self.features if feature.source == source), None)

    @property
    def image(self) -> Feature:
        feature = self.find(Source.IMAGE)
        if feature is None:
            raise UsageError("this dataset has no image feature")
        return feature

    @property
    def label(self) -> Feature | None:
        return self.find(Source.LABEL)

    @property
    def small_features(self) -> tuple[Feature, ...]:
        """All but the image: what is encoded from Arrow, a batch at a time."""
        return tuple(feature for feature in self.features if feature.source != Source.IMAGE)

    def with_class_names(self, class_names: tuple[str, ...]) -> ExampleSchema:
        """The schema of a dataset with these classes; with none it is unlabeled, and has no label features."""
        labels = () if class_names else (Source.LABEL, Source.LABEL_TEXT)
        features = tuple(feature for feature in self.features if feature.source not in labels)
        return replace(self, features=features, class_names=class_names)

    def to_json(self) -> dict[str, Any]:
        return {
            "features": [feature.to_json() for feature in self.features],
            "class_names": list(self.class_names),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> ExampleSchema:
        return cls(
            features=tuple(Feature.from_json(feature) for feature in record["features"]),
            class_names=tuple(record["class_names"]),
        )
