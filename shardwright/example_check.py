"""Checking one example against the dataset's schema."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from shardwright.schema import ExampleSchema, Feature, FeatureKind, Source

_TYPES: Mapping[FeatureKind, type] = {FeatureKind.CLASS_LABEL: int, FeatureKind.INT64: int, FeatureKind.FLOAT32: float}
_KIND_NAMES = {int: "int64", float: "float", bytes: "bytes"}
Values = list[bytes] | list[int] | list[float]


class ExampleChecker:
    """Says what is wrong with examples of one schema."""

    def __init__(self, schema: ExampleSchema) -> None:
        self._features = {feature.name: feature for feature in schema.features}
        self._class_names = schema.class_names
        self._label, self._label_text = schema.label, schema.find(Source.LABEL_TEXT)

    def faults(self, features: Mapping[str, Values]) -> Iterator[str]:
        """What each feature lacks: its presence, kind, number of values and, for images and labels, its value."""
        if features.keys() != self._features.keys():
            yield from self._strangers(features)
        for name, values in features.items():
            feature = self._features.get(name)
            if feature is not None:
                yield from _feature_faults(feature, values)
        yield from self._label_faults(features)

    def _strangers(self, features: Mapping[str, Values]) -> Iterator[str]:
        for name in sorted(self._features.keys() - features.keys()):
            yield f"feature {name!r} is missing"
        for name in sorted(features.keys() - self._features.keys()):
            yield f"feature {name!r} is not in the schema"

    def _label_faults(self, features: Mapping[str, Values]) -> Iterator[str]:
        label = one_value(features, self._label)
        if not isinstance(label, int):
            return
        if not 0 <= label < len(self._class_names):
            yield f"label {label} is not one of the {len(self._class_names)} classes (0 to {len(self._class_names) - 1})"
            return
        text, expected = one_value(features, self._label_text), self._class_names[label]
        if self._label_text is not None and isinstance(text, bytes) and text != expected.encode("utf-8", "surrogatepass"):
            yield f"feature {self._label_text.name!r} is {_text(text)}, but label {label} is class {expected!r}"


def one_value(features: Mapping[str, Values], feature: Feature | None) -> Any:
    """The value of a feature that has one value; None where the feature is absent or has another number of values."""
    values = features.get(feature.name, []) if feature is not None else []
    return values[0] if len(values) == 1 else None


def _feature_faults(feature: Feature, values: Values) -> Iterator[str]:
    wanted = _TYPES.get(feature.kind, bytes)
    if not feature.is_list and len(values) != 1:
        yield f"feature {feature.name!r} has {len(values)} values, the schema says 1"
    elif values and not isinstance(values[0], wanted):
        yield f"feature {feature.name!r} holds {_KIND_NAMES[type(values[0])]} values, the schema says {_KIND_NAMES[wanted]}"
    elif feature.kind == FeatureKind.IMAGE and isinstance(values[0], bytes):
        yield from _image_faults(feature, values[0])


def _image_faults(feature: Feature, image: bytes) -> Iterator[str]:
    if not image:
        yield f"feature {feature.name!r} is an image of 0 bytes"
    elif feature.encoding == "raw":
        height, width, channels = (size or 0 for size in feature.shape)
        if len(image) != math.prod((height, width, channels)):
            yield (
                f"feature {feature.name!r} has {len(image)} bytes, a raw image of {height}x{width}x{channels} "
                f"has {height * width * channels}"
            )


def _text(value: bytes) -> str:
    return repr(value.decode("utf-8", "backslashreplace"))
