"""The features of a dataset's examples, declared once.

One `ExampleSchema` makes the encoder's input, the parser's spec, `features.json`, `schema.pbtxt` and the manifest's copy,
so no feature name is typed twice and a reader needs nothing but the dataset.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

import pyarrow as pa

from shardwright.errors import UsageError


class FeatureKind(StrEnum):
    """What a feature holds. `tf.Example` stores ints as int64, floats as float32, the rest as bytes."""

    IMAGE = "image"  # an encoded image, raw pixels, or a serialized tensor of them
    MASK = "mask"  # an image whose pixels are class or instance numbers: one channel, never lossy, resized without mixing
    CLASS_LABEL = "class_label"  # an index into the feature's names; also what enums are
    MULTI_LABEL = "multi_label"  # the indices of a set of classes, ascending
    TEXT = "text"
    BYTES = "bytes"
    INT64 = "int64"  # integers and booleans of any width (`dtype`)
    FLOAT32 = "float32"  # floats of any width (`dtype`)
    BOX = "box"  # ymin, xmin, ymax, xmax as fractions of height and width: TFDS's BBox; the last of `shape` is 4
    TENSOR = "tensor"  # a serialized TensorProto, as tf.io.serialize_tensor gives it; `shape` is the tensor's
    TOKENS = "tokens"  # a text as indices of its tokens in a vocabulary
    BAG_OF_WORDS = "bag_of_words"  # a text as indices of its words and their counts: two lists, read as one sparse feature


class Source(StrEnum):
    """What the pipeline fills a feature with."""

    IMAGE = "image"
    ID = "id"
    LABEL = "label"
    LABEL_TEXT = "label_text"
    FORMAT = "format"
    HEIGHT = "height"
    WIDTH = "width"
    ORIENTATION = "orientation"  # EXIF's, 1 to 8, of bytes whose EXIF was taken out
    COLUMN = "column"


ARROW_TYPES: Mapping[FeatureKind, pa.DataType] = {
    FeatureKind.IMAGE: pa.binary(),
    FeatureKind.MASK: pa.binary(),
    FeatureKind.CLASS_LABEL: pa.int64(),
    FeatureKind.MULTI_LABEL: pa.int64(),
    FeatureKind.TEXT: pa.binary(),
    FeatureKind.BYTES: pa.binary(),
    FeatureKind.INT64: pa.int64(),
    FeatureKind.FLOAT32: pa.float32(),
    FeatureKind.BOX: pa.float32(),
    FeatureKind.TENSOR: pa.binary(),
    FeatureKind.TOKENS: pa.int64(),
    FeatureKind.BAG_OF_WORDS: pa.int64(),  # of its indices; the counts are float32
}
PICTURES = frozenset({FeatureKind.IMAGE, FeatureKind.MASK})
# One bytes value holds all of these, whatever `shape` says of what is in it.
_BLOBS = PICTURES | {FeatureKind.TENSOR}
# These are as long as what is in them.
_ALWAYS_LISTS = frozenset({FeatureKind.MULTI_LABEL, FeatureKind.TOKENS, FeatureKind.BAG_OF_WORDS})


@dataclass(frozen=True, slots=True)
class VocabularyRule:
    """How a vocabulary is learned from the texts of the train split. The defaults are scikit-learn's `CountVectorizer`'s.

    Attributes:
        max_size: The most words; of more, the most frequent stay, ties by the word itself. None for all.
        min_count: Occurrences in all texts below which a word is left out.
        lowercase: Texts are lower-cased first.
        token_pattern: A regular expression; what it matches, or its one group, is a token.
    """

    max_size: int | None = None
    min_count: int = 1
    lowercase: bool = True
    token_pattern: str = r"(?u)\b\w\w+\b"

    def __post_init__(self) -> None:
        """Raises UsageError for what would learn another vocabulary than is meant, or none."""
        if self.max_size is not None and not _is_count(self.max_size):
            raise UsageError(
                f"a vocabulary's max_size is {self.max_size!r}; give a whole number from 1, or None for all words"
            )
        if not _is_count(self.min_count):
            raise UsageError(
                f"a vocabulary's min_count is {self.min_count!r}; give a whole number from 1"
            )
        if not isinstance(self.token_pattern, str) or not self.token_pattern:
            raise UsageError(
                f"a vocabulary's token_pattern is {self.token_pattern!r}; give a regular expression"
            )


class StoredFeature(NamedTuple):
    """One key of a `tf.Example`.

    Attributes:
        key: Its name there.
        type: int64, float32 or binary.
        shape: Of its values: () one, (None,) any number, (4,) just four, (None, 4) any number of fours, one after another.
    """

    key: str
    type: pa.DataType
    shape: tuple[int | None, ...]

    @property
    def told_kind(self) -> str:
        """What its values are called in messages."""
        return {pa.int64(): "int64", pa.float32(): "float"}.get(self.type, "bytes")

    @property
    def told_count(self) -> str:
        """How many values there are, for messages."""
        fixed = math.prod(size for size in self.shape if size is not None)
        return f"{fixed}" if None not in self.shape else f"a multiple of {fixed}"

    def takes(self, num_values: int) -> bool:
        """Whether so many values have the shape."""
        if not self.shape:
            return num_values == 1
        fixed = math.prod(size for size in self.shape if size is not None)
        return num_values % max(fixed, 1) == 0 if None in self.shape else num_values == fixed


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature of every example.

    Attributes:
        name: The key in `tf.Example`; a `/` nests it, as TFDS does.
        kind: What it holds.
        source: What fills it.
        shape: () for one value, (None,) for a list of any length, (4,) or (None, 4) for arrays; of an image or a tensor its own,
            such as (height, width, 3).
        encoding: For images: "jpeg", "png", "raw" or "tensor" where all are stored so, None where each keeps its own.
        dtype: NumPy's name of the numbers' type, such as "uint8", "bool" or "float64"; "" for that of the kind.
        column: For `Source.COLUMN`, the column that fills it; "" for one of the feature's own name.
        default: What a record without a value gets; None: text is then "", a float NaN, a list empty, and all else a reject.
        names: Of a class label or multi-label, the class names in label order; () to learn them. The label's own
            (`Source.LABEL`) are in `ExampleSchema.class_names`.
        vocabulary: Of tokens and bags of words, how their vocabulary is learned; None with `names` given.
        keys: Of a bag of words, the keys of its indices and its counts.
        sequence: The folder of features that are lists of one length, item by item, as TFDS's Sequence of a dict; "" for none.
    """

    name: str
    kind: FeatureKind
    source: Source = Source.COLUMN
    shape: tuple[int | None, ...] = ()
    encoding: str | None = None
    dtype: str = ""
    column: str = ""
    default: bool | int | float | str | None = None
    names: tuple[str, ...] = ()
    vocabulary: VocabularyRule | None = None
    keys: tuple[str, str] | None = None
    sequence: str = ""

    @property
    def column_name(self) -> str:
        """The source's column that fills it."""
        return self.column or self.name

    @property
    def stored_shape(self) -> tuple[int | None, ...]:
        """The shape of its values in a `tf.Example`: a blob's is (), whatever is in it."""
        if self.kind in _BLOBS:
            return ()
        return (None,) if self.kind in _ALWAYS_LISTS else self.shape

    @property
    def is_list(self) -> bool:
        """Any number of single values."""
        return self.stored_shape == (None,)

    @property
    def stored(self) -> tuple[StoredFeature, ...]:
        """The keys it takes in a `tf.Example`: one, but two for a bag of words."""
        kind = ARROW_TYPES[self.kind]
        if self.kind != FeatureKind.BAG_OF_WORDS:
            return (StoredFeature(self.name, kind, self.stored_shape),)
        indices, values = self.keys or (f"{self.name}/indices", f"{self.name}/values")
        return (StoredFeature(indices, kind, (None,)), StoredFeature(values, pa.float32(), (None,)))

    def to_json(self) -> dict[str, Any]:
        """All that is not as it is by default."""
        record: dict[str, Any] = {
            "name": self.name,
            "kind": str(self.kind),
            "source": str(self.source),
        }
        record |= {
            key: list(value) for key in ("shape", "names", "keys") if (value := getattr(self, key))
        }
        record |= {
            key: value
            for key in ("encoding", "dtype", "column", "sequence")
            if (value := getattr(self, key))
        }
        if self.default is not None:
            record["default"] = self.default
        if self.vocabulary is not None:
            record["vocabulary"] = asdict(self.vocabulary)
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Feature:
        """Raises KeyError, TypeError or ValueError for what `to_json` never gave."""
        known = dict(record) | {
            "kind": FeatureKind(record["kind"]),
            "source": Source(record.get("source", Source.COLUMN)),
        }
        known |= {key: tuple(record[key]) for key in ("shape", "names", "keys") if key in record}
        if "vocabulary" in record:
            known["vocabulary"] = VocabularyRule(**record["vocabulary"])
        return cls(**known)


@dataclass(frozen=True, slots=True)
class ExampleSchema:
    """Every feature of a dataset, in writing order, and what their indices mean.

    Attributes:
        features: In writing order.
        class_names: Of the label (`Source.LABEL`), in label order.
        vocabularies: By feature name, of every other feature that holds indices: class names, or words.
    """

    features: tuple[Feature, ...]
    class_names: tuple[str, ...] = ()
    vocabularies: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for feature in self.features:
            _check_feature(feature)
        names = [stored.key for feature in self.features for stored in feature.stored]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(
                    f"two features are called {name!r}: rename the table's column of that name"
                )
            inside = next((other for other in names if other.startswith(f"{name}/")), None)
            if inside:
                raise UsageError(
                    f"feature {name!r} is also the folder of {inside!r}: rename one of the two columns"
                )

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
    def main_class_names(self) -> tuple[str, ...]:
        """Of the label; where there is none, of the only feature of classes, such as `objects/label`; () where there is none either."""
        found = [
            feature
            for feature in self.features
            if feature.kind in (FeatureKind.CLASS_LABEL, FeatureKind.MULTI_LABEL)
        ]
        feature = self.label or (found[0] if len(found) == 1 else None)
        return self.names_of(feature) if feature is not None else ()

    @property
    def small_features(self) -> tuple[Feature, ...]:
        """All but the image: what is encoded from Arrow, a batch at a time."""
        return tuple(feature for feature in self.features if feature.source != Source.IMAGE)

    def with_class_names(self, class_names: tuple[str, ...]) -> ExampleSchema:
        """The schema of a dataset with these classes; with none it is unlabeled, and has no label features."""
        labels = () if class_names else (Source.LABEL, Source.LABEL_TEXT)
        features = tuple(feature for feature in self.features if feature.source not in labels)
        return replace(self, features=features, class_names=class_names)

    def with_vocabularies(self, vocabularies: Mapping[str, tuple[str, ...]]) -> ExampleSchema:
        """The schema with what was learned: by feature name, the label's among them."""
        own = self.label.name if self.label else ""
        others = {name: words for name, words in vocabularies.items() if name != own}
        return replace(self.with_class_names(vocabularies.get(own, ())), vocabularies=others)

    def names_of(self, feature: Feature) -> tuple[str, ...]:
        """What the indices that a feature holds mean: its class names, or its words; () for one that holds none."""
        return (
            self.class_names
            if feature.source == Source.LABEL
            else self.vocabularies.get(feature.name, feature.names)
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
        return cls(
            features=tuple(Feature.from_json(feature) for feature in record["features"]),
            class_names=tuple(record.get("class_names", ())),
            vocabularies={
                name: tuple(words) for name, words in record.get("vocabularies", {}).items()
            },
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _check_feature(feature: Feature) -> None:
    if not feature.name:
        raise UsageError(f"a feature of kind {feature.kind} has no name: name it")
    if any(size is not None and not _is_count(size) for size in feature.shape):
        raise UsageError(
            f"feature {feature.name!r} has the shape {feature.shape!r}; its sizes are whole numbers from 1, or None for any"
        )
