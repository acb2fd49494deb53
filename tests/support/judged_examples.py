"""Check an example against the dataset's schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from shardwright.format.example import ExampleFault, Values, one_value
from shardwright.format.schema import (
    INDEXED,
    PICTURES,
    ExampleSchema,
    Feature,
    FeatureKind,
    Source,
    StoredFeature,
)
from shardwright.format.tensors import read_tensor
from shardwright.sizes import counted

_KIND_NAMES = {int: "int64", float: "float", bytes: "bytes"}


class ExampleChecker:
    """A checker of examples against one schema."""

    def __init__(self, schema: ExampleSchema) -> None:
        self._stored = {
            stored.key: (feature, stored)
            for feature in schema.features
            for stored in feature.stored
        }
        self._schema = schema
        self._label_text = schema.find(Source.LABEL_TEXT)

    def faults(self, features: Mapping[str, Values]) -> Iterator[str]:
        """Yield a text for each fault of an example.

        Checks that the features are those of the schema, their kinds and numbers of values, and
        the values of images, tensors and indices.
        """
        if features.keys() != self._stored.keys():
            for name in sorted(self._stored.keys() - features.keys()):
                yield f"feature {name!r} is missing"
            for name in sorted(features.keys() - self._stored.keys()):
                yield f"feature {name!r} is not in the schema"
        for key, values in features.items():
            if key in self._stored:
                yield from self._feature_faults(*self._stored[key], values)
        yield from self._label_text_faults(features)

    def _feature_faults(
        self, feature: Feature, stored: StoredFeature, values: Values
    ) -> Iterator[str]:
        if not stored.takes(len(values)):
            yield (
                f"feature {stored.key!r} has {counted(len(values), 'value')}, "
                f"the schema says {stored.told_count}"
            )
        elif values and _KIND_NAMES[type(values[0])] != stored.told_kind:
            yield (
                f"feature {stored.key!r} holds {_KIND_NAMES[type(values[0])]} values, "
                f"the schema says {stored.told_kind}"
            )
        elif feature.kind in PICTURES and isinstance(values[0], bytes):
            yield from _image_faults(feature, values[0])
        elif feature.kind == FeatureKind.TENSOR and isinstance(values[0], bytes):
            yield from _tensor_faults(feature, values[0])
        elif feature.kind in INDEXED and stored == feature.stored[0]:
            num_names = len(self._schema.names_of(feature))
            what = "label" if feature.source == Source.LABEL else f"feature {stored.key!r}:"
            for value in values:
                if isinstance(value, int) and not 0 <= value < num_names:
                    known = f"{counted(num_names, 'class')} (0 to {num_names - 1})"
                    yield f"{what} {value} is not one of the {known}"
                    return

    def _label_text_faults(self, features: Mapping[str, Values]) -> Iterator[str]:
        label, names = one_value(features, self._schema.label), self._schema.class_names
        if self._label_text is None or not isinstance(label, int) or not 0 <= label < len(names):
            return
        text, expected = one_value(features, self._label_text), names[label]
        if isinstance(text, bytes) and text != expected.encode("utf-8", "surrogatepass"):
            there = text.decode("utf-8", "backslashreplace")
            yield (
                f"feature {self._label_text.name!r} is {there!r}, "
                f"but label {label} is class {expected!r}"
            )


def _image_faults(feature: Feature, image: bytes) -> Iterator[str]:
    if not image:
        if not feature.is_optional:
            yield f"feature {feature.name!r} is an image of 0 bytes"
    elif feature.encoding == "raw":
        height, width, channels = (size or 0 for size in feature.shape)
        num_bytes = height * width * channels
        if len(image) != num_bytes:
            yield (
                f"feature {feature.name!r} has {counted(len(image), 'byte')}, "
                f"a raw image of {height}x{width}x{channels} has {num_bytes}"
            )


def _tensor_faults(feature: Feature, data: bytes) -> Iterator[str]:
    try:
        read_tensor(feature, data)
    except ExampleFault as fault:
        yield str(fault)
