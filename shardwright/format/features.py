"""Describe one feature: its kind, where its values come from, and how an example stores it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.naming import has_no_control_character
from shardwright.format.records import MAX_RECORD_BYTES


class FeatureKind(StrEnum):
    """The kind of a feature. A `tf.Example` stores ints as int64, floats as float32, else bytes."""

    IMAGE = "image"  # an encoded image, or raw pixels
    MASK = "mask"  # pixels are class or instance numbers: one channel, lossless, never interpolated
    CLASS_LABEL = "class_label"  # an index into the feature's names; enums too
    MULTI_LABEL = "multi_label"  # the indices of a set of classes, ascending
    TEXT = "text"
    BYTES = "bytes"
    INT64 = "int64"  # integers and booleans of any width (`dtype`)
    FLOAT32 = "float32"  # floats of any width (`dtype`)
    BOX = "box"  # TFDS's BBox: ymin, xmin, ymax, xmax as fractions; `shape` ends in 4
    KEYPOINTS = "keypoints"  # x and y as fractions, COCO's visibility 0 to 2; `shape` ends in 3
    TENSOR = "tensor"  # a TensorProto, as of tf.io.serialize_tensor; `shape` is the tensor's
    TOKENS = "tokens"  # a text as indices of its tokens in a vocabulary
    BAG_OF_WORDS = "bag_of_words"  # word indices and counts: two lists, one sparse feature


class Source(StrEnum):
    """The source of a feature's values in the pipeline."""

    IMAGE = "image"
    ID = "id"
    LABEL = "label"
    LABEL_TEXT = "label_text"
    FORMAT = "format"
    HEIGHT = "height"
    WIDTH = "width"
    ORIENTATION = "orientation"  # EXIF orientation, 1 to 8, of images stored without EXIF
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
    FeatureKind.KEYPOINTS: pa.float32(),
    FeatureKind.TENSOR: pa.binary(),
    FeatureKind.TOKENS: pa.int64(),
    FeatureKind.BAG_OF_WORDS: pa.int64(),  # the indices; the counts are float32 or int64
}
POSITIONS = frozenset({FeatureKind.BOX, FeatureKind.KEYPOINTS})  # as fractions of the image
NUMBERS = frozenset({FeatureKind.INT64, FeatureKind.FLOAT32}) | POSITIONS
PICTURES = frozenset({FeatureKind.IMAGE, FeatureKind.MASK})
CROPPED = POSITIONS | {FeatureKind.MASK}  # what a crop of the image has to move
CLASSES = frozenset({FeatureKind.CLASS_LABEL, FeatureKind.MULTI_LABEL})  # indices of class names
WORDS = frozenset({FeatureKind.TOKENS, FeatureKind.BAG_OF_WORDS})  # indices of words
INDEXED = CLASSES | WORDS
# Stored as one bytes value each; `shape` describes its content.
_BLOBS = PICTURES | {FeatureKind.TENSOR}
# Their length varies by record, so that `shape` does not apply.
_ALWAYS_LISTS = WORDS | {FeatureKind.MULTI_LABEL}


_COUNT = "a whole number of at least 1"


@dataclass(frozen=True, slots=True)
class VocabularyRule:
    """Rules to learn a vocabulary from the train split; defaults as in sklearn's `CountVectorizer`.

    Attributes:
        max_size: Maximum number of words; keeps the most frequent, ties by the word. None for all.
        min_count: Minimum number of occurrences of a word in all texts.
        lowercase: Whether to lower-case the texts first.
        token_pattern: A regular expression; each match, or its only group, is a token.
    """

    max_size: int | None = None
    min_count: int = 1
    lowercase: bool = True
    token_pattern: str = r"(?u)\b\w\w+\b"

    def __post_init__(self) -> None:
        """Raise UsageError for invalid values."""
        for name, is_valid, rule in (
            ("max_size", self.max_size is None or _is_count(self.max_size), f"{_COUNT}, or None"),
            ("min_count", _is_count(self.min_count), _COUNT),
            ("token_pattern", _is_pattern(self.token_pattern), "a regular expression"),
        ):
            if not is_valid:
                value = getattr(self, name)
                raise UsageError(f"a vocabulary's {name} must be {rule}, got {value!r}")


class StoredFeature(NamedTuple):
    """One key of a `tf.Example`.

    Attributes:
        key: The key.
        type: int64, float32 or binary.
        shape: () for one value, (None,) for any number, (4,) for exactly four, (None, 4) for any
            number of fours, flattened.
    """

    key: str
    type: pa.DataType
    shape: tuple[int | None, ...]

    @property
    def told_kind(self) -> str:
        """The type of its values in messages: "int64", "float" or "bytes"."""
        return {pa.int64(): "int64", pa.float32(): "float"}.get(self.type, "bytes")

    @property
    def told_count(self) -> str:
        """The number of its values in messages."""
        fixed = math.prod(size for size in self.shape if size is not None)
        return f"{fixed}" if None not in self.shape else f"a multiple of {fixed}"

    def takes(self, num_values: int) -> bool:
        """Return whether `num_values` values fit the shape."""
        if not self.shape:
            return num_values == 1
        fixed = math.prod(size for size in self.shape if size is not None)
        return num_values % max(fixed, 1) == 0 if None in self.shape else num_values == fixed


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature of every example.

    Attributes:
        name: The key in `tf.Example`; a `/` nests it, as in TFDS.
        kind: The kind of its values.
        source: The source of its values.
        shape: () for one value, (None,) for a list, (4,) or (None, 4) for arrays; the shape of an
            image or tensor, such as (height, width, 3).
        encoding: "jpeg", "png" or "raw" if all images are stored in it, None if each keeps its own.
        dtype: NumPy's name of the number type, such as "uint8" or "bool"; "" for the kind's own.
        column: The column of the input, for `Source.COLUMN`; "" for one with the feature's name.
        default: The value of records without one. With None, a text is "", a float NaN, a list
            empty, and any other record without a value a reject. "" for an image or a mask that
            records may lack.
        names: Class names in label order, of a class label or multi-label; () to learn them. Those
            of the label (`Source.LABEL`) are in `ExampleSchema.class_names`.
        vocabulary: Rules to learn the words of tokens and bags of words; None with `names` given.
        keys: The keys of a bag of words: its indices and its counts.
        sequence: The folder that this feature shares with other lists of the same length, as in
            TFDS's Sequence of a dict; "" for none.
        separator: The text between the labels in a cell of a table, as in `--label-separator`; ""
            for "|".
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
    separator: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what pickle makes it of: `dataclasses` would look up its fields each time."""
        return Feature, _VALUES_OF(self)

    @property
    def is_optional(self) -> bool:
        """True for an image or a mask that records may lack; it is then stored as no bytes."""
        return self.kind in PICTURES and self.default is not None

    @property
    def column_name(self) -> str:
        """The column of the input that it is filled from."""
        return self.column or self.name

    @property
    def stored_shape(self) -> tuple[int | None, ...]:
        """The shape of its values in a `tf.Example`: () for images and tensors."""
        if self.kind in _BLOBS:
            return ()
        return (None,) if self.kind in _ALWAYS_LISTS else self.shape

    @property
    def is_list(self) -> bool:
        """True for a list of single values, of any length."""
        return self.stored_shape == (None,)

    @property
    def stored_keys(self) -> tuple[str, ...]:
        """The names of `stored`."""
        if self.kind != FeatureKind.BAG_OF_WORDS:
            return (self.name,)
        return self.keys or (f"{self.name}/indices", f"{self.name}/values")

    @property
    def stored(self) -> tuple[StoredFeature, ...]:
        """The keys of a `tf.Example` that store it: two for a bag of words, else one."""
        kind = ARROW_TYPES[self.kind]
        if self.kind != FeatureKind.BAG_OF_WORDS:
            return (StoredFeature(self.name, kind, self.stored_shape),)
        indices, values = self.stored_keys
        counts = pa.int64() if self.dtype == "int64" else pa.float32()
        return (StoredFeature(indices, kind, (None,)), StoredFeature(values, counts, (None,)))

    def to_json(self) -> dict[str, Any]:
        """Return name, kind and source, and the other values that are not defaults."""
        record: dict[str, Any] = {
            key: str(value) if isinstance(value, str) else list(value)
            for key in _STATED
            if (value := getattr(self, key))
        }
        if self.default is not None:
            record["default"] = self.default
        if self.vocabulary is not None:
            record["vocabulary"] = asdict(self.vocabulary)
        return record


# In the order of the manifest.
_STATED = (
    *("name", "kind", "source", "shape", "names", "keys"),
    *("encoding", "dtype", "column", "sequence", "separator"),
)
_VALUES_OF = attrgetter(*(each.name for each in fields(Feature)))


def check_feature(feature: Feature) -> None:
    """Raise `UsageError` for an invalid name or shape."""
    if not feature.name:
        raise UsageError(f"a feature of kind {feature.kind} must have a name")
    if not has_no_control_character(feature.name):
        raise UsageError(
            f"feature {feature.name!r} has a control character in its name: rename the column"
        )
    if not feature.shape:
        return
    if any(size is not None and not _is_count(size) for size in feature.shape):
        raise UsageError(
            f"feature {feature.name!r} has the shape {feature.shape!r}; "
            "sizes must be whole numbers of at least 1, or None for any"
        )
    if math.prod(size or 1 for size in feature.shape) > MAX_RECORD_BYTES:
        raise UsageError(
            f"feature {feature.name!r} has the shape {feature.shape!r}; "
            f"a record holds at most {MAX_RECORD_BYTES:,} values"
        )


def _is_pattern(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
