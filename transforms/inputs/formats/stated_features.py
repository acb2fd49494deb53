"""Read what a folder of TFRecord files states about its features.

Formats: this project's manifest (`shardwright.format.manifest`); TFDS's `features.json`
(`tensorflow_datasets/core/proto/feature.proto` as JSON) and `<feature>.labels.txt`, with one class
name a line (`tensorflow_datasets/core/features/class_label_feature.py`).
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
from msgspec import UNSET

from shardwright.errors import MissingError, NotADatasetError, UsageError
from shardwright.format import naming
from shardwright.format.example import ExampleFault, parse_feature, split_example
from shardwright.format.json_files import read_json
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.format.tfds_features import TfdsFeature, TfdsTensor
from shardwright.format.versions import version_numbers
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.transforms.features.numerics import FLOAT_DTYPES, INTEGER_DTYPES
from shardwright.transforms.inputs.file_rules import has_image_magic
from shardwright.transforms.inputs.foreign_text import decode_text
from shardwright.transforms.inputs.label_values import can_be_classes, distinct_names

_LOG = logging.getLogger("shardwright.inputs")
_TYPES: Mapping[str, pa.DataType] = {
    "bytes_list": pa.binary(),
    "float_list": pa.float32(),
    "int64_list": pa.int64(),
}
T = TypeVar("T")
_DERIVED = (Source.FORMAT, Source.HEIGHT, Source.WIDTH, Source.LABEL_TEXT)
_WITH_WORDS = (FeatureKind.TOKENS, FeatureKind.BAG_OF_WORDS)
_LABELS = ".labels.txt"
_DEFAULT_DTYPES = ("int64", "float32")


@dataclass(slots=True)
class FeatureStatistics:
    """Statistics of one feature in some records."""

    kinds: Counter[str] = field(default_factory=Counter)  # "bytes_list", ... -> records
    lengths: Counter[int] = field(default_factory=Counter)  # number of values -> records
    images: int = 0  # records whose first value is an image
    has_fractions: bool = False

    def add(self, kind: str | None, values: Sequence[object]) -> None:
        self.lengths[len(values)] += 1
        if kind == "float_list":
            self.has_fractions |= not can_be_classes(pa.array(values, pa.float32()))
        if kind is not None:
            self.kinds[kind] += 1
            self.images += kind == "bytes_list" and bool(values) and has_image_magic(values[0])  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class RecordStatistics:
    """Statistics of some records.

    Attributes:
        num_records: Number of tf.Examples with features.
        features: Key -> statistics, sorted by key.
    """

    num_records: int
    features: Mapping[str, FeatureStatistics]

    def stored(self, key: str) -> pa.DataType:
        """Return the type of a feature's values; binary if no record has one."""
        kinds = self.features[key].kinds
        # Sorted, so that of two kinds in as many records the same one is chosen in every run.
        return _TYPES[max(sorted(kinds), key=kinds.__getitem__)] if kinds else pa.binary()

    def is_scalar(self, key: str) -> bool:
        """Return whether every record has exactly one value."""
        return key in self.features and self.features[key].lengths == {1: self.num_records}

    def as_rows(self) -> pa.RecordBatch:
        """Return a row with the types of the features, and a fraction if a number has one."""
        columns = {}
        for key, one in self.features.items():
            kind = self.stored(key)
            kind = pa.string() if kind == pa.binary() else kind
            value = 0.5 if one.has_fractions else None
            several = max(one.lengths) > 1
            columns[key] = pa.array([None], pa.list_(kind)) if several else pa.array([value], kind)
        return pa.RecordBatch.from_pydict(columns)

    def has_images(self, key: str) -> bool:
        """Return whether some records hold an image, and each at most one value."""
        seen = self.features[key]
        return bool(seen.images) and max(seen.lengths) == 1


def is_sequence_example(data: bytes) -> bool:
    """Return whether a message has a field 2: it is a tf.SequenceExample, no tf.Example."""
    place = 0
    while place < len(data) and data[place] == 0x0A:
        length, shift = 0, 0
        place += 1
        # A varint: seven bits a byte, and the last byte is below 0x80.
        while place < len(data):
            length |= (data[place] & 0x7F) << shift
            shift, place = shift + 7, place + 1
            if data[place - 1] < 0x80:
                break
        place += length
    return place < len(data) and data[place] == 0x12


def statistics_of(records: Iterable[bytes], place: str) -> RecordStatistics:
    """Return statistics of the features of some records.

    Raises:
        UsageError: There are no records, or none is a tf.Example.
    """
    found: dict[str, FeatureStatistics] = {}
    total = good = 0
    for data in records:
        total += 1
        if is_sequence_example(data):
            raise UsageError(
                f"{place} holds tf.SequenceExample records, which are not supported: "
                "write one tf.Example for each image"
            )
        try:
            features = {key: parse_feature(feature) for key, feature in split_example(data).items()}
        except ExampleFault:
            continue
        good += bool(features)
        for key, (kind, values) in features.items():
            found.setdefault(key, FeatureStatistics()).add(kind, values)
    if not good:
        told = f"no tf.Example with features in the first {counted(total, 'record')}"
        raise UsageError(f"{place}: {told if total else 'no valid record'}")
    return RecordStatistics(good, dict(sorted(found.items())))


@dataclass(frozen=True, slots=True)
class Stated:
    """The features that a data set's files state.

    Attributes:
        features: Key -> feature, in writing order.
        image, label, id: Their keys, or "" if not stated.
        derived: Keys that are recomputed in writing: properties of the image, the label's name.
        shards: The files of the data set; None for all files.
    """

    features: Mapping[str, Feature] = field(default_factory=dict)
    image: str = ""
    label: str = ""
    id: str = ""
    derived: frozenset[str] = frozenset()
    shards: frozenset[str] | None = None


def read_stated(folder: Folder) -> Stated:
    """Return what the files beside the TFRecord files state.

    Raises:
        UsageError: It is an unfinished dataset of this project, one that has grown, or one that
            stores images as pixels.
        StorageError: The files cannot be read.
    """
    names = set(folder.names())
    if naming.MANIFEST in names and "format_version" in (
        _read_object(folder, naming.MANIFEST, dict[str, Any]) or {}
    ):
        folder = Folder(folder.uri, folder.options)  # of a dataset, which has no links
        manifest = read_manifest(folder)
        for name, _ in manifest.named_shards():
            folder.own_path(name.shard)
        if version_numbers(folder)[-1] > 1:
            raise UsageError(
                f"{folder} holds a dataset that has grown, so its TFRecord files are not those of "
                f"its newest version: copy that with `shardwright build {folder} COPY`, and build "
                "from COPY"
            )
        if not manifest.folder:
            return _of_manifest(manifest, folder)
    if naming.PLAN in names and naming.INDEX_DIR in names:
        raise UsageError(
            f"{folder} holds an unfinished build of shardwright: run its command again first"
        )
    content = None
    if naming.FEATURES in names:
        content = _read_object(folder, naming.FEATURES, TfdsFeature)
    if content is None or content.features_dict is UNSET:
        return Stated()
    labels = (name for name in names if name.endswith(_LABELS))
    return _of_tfds(
        content, {name.removesuffix(_LABELS): _read_names(folder, name) for name in labels}
    )


def _read_object(folder: Folder, name: str, kind: type[T]) -> T | None:
    try:
        return read_json(folder, name, kind)
    except NotADatasetError as error:  # another program's file, or a damaged one
        if name == naming.FEATURES:
            _LOG.warning("types and class names follow from the records alone: %s", error)
        return None


def _read_names(folder: Folder, name: str) -> tuple[str, ...]:
    try:
        text = decode_text(folder.read_bytes(name))
    except (UnicodeError, MissingError) as error:
        raise UsageError(
            f"{folder.path(name)} must hold class names, one per line: {error}"
        ) from error
    lines = (line.strip() for line in text.split("\n"))
    return tuple(distinct_names(dict(enumerate(filter(None, lines)))).values())


def _of_manifest(manifest: Manifest, folder: Folder) -> Stated:
    schema, image = manifest.schema, manifest.schema.image
    if image is not None and image.encoding == "raw":
        raise UsageError(
            f"the images of {folder} are raw pixels, which cannot be an input: "
            "build from the original files"
        )
    shards = (name.shard for split in manifest.splits for name in manifest.shard_names(split))
    by_source = {feature.source: feature.name for feature in reversed(schema.features)}
    label = by_source.get(Source.LABEL, "")
    classes = Feature(label, FeatureKind.CLASS_LABEL, names=schema.class_names)
    return Stated(
        features={one.name: one for one in (*_own_features(schema), *[classes] * bool(label))},
        image="" if image is None else image.name,
        label=label,
        id=by_source.get(Source.ID, ""),
        derived=frozenset(
            feature.name for feature in schema.features if feature.source in _DERIVED
        ),
        shards=frozenset(shards),
    )


def _own_features(schema: ExampleSchema) -> Iterator[Feature]:
    """Yield the user's own features as a source brings them; texts as indices stay indices."""
    for feature in schema.features:
        # The orientation is kept as a feature, because the stored images no longer carry it.
        if feature.source not in (Source.COLUMN, Source.ORIENTATION):
            continue
        if feature.kind in _WITH_WORDS:
            for stored in feature.stored:
                is_float = stored.type == pa.float32()
                kind = FeatureKind.FLOAT32 if is_float else FeatureKind.INT64
                yield Feature(stored.key, kind, shape=(None,))
        else:
            yield dataclasses.replace(
                feature,
                source=Source.COLUMN,
                column="",
                encoding=None,
                names=schema.names_of(feature),
            )


def _of_tfds(content: TfdsFeature, labels: Mapping[str, tuple[str, ...]]) -> Stated:
    features = {feature.name: feature for feature in _tfds_features("", content, labels)}
    classes = [
        name
        for name, feature in features.items()
        if feature.kind == FeatureKind.CLASS_LABEL and not feature.shape
    ]
    images = [
        name
        for name, feature in features.items()
        if feature.kind == FeatureKind.IMAGE and not feature.sequence
    ]
    return Stated(features, image=_only(images), label=_only(classes))


def _only(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ""


def _tfds_features(
    name: str, node: TfdsFeature, labels: Mapping[str, tuple[str, ...]]
) -> Iterator[Feature]:
    """Yield the leaves of a features.json that have a kind; others are inferred from records."""
    if node.features_dict is not UNSET:
        for key, child in node.features_dict.features.items():
            yield from _tfds_features(f"{name}/{key}" if name else key, child, labels)
    elif node.sequence is not UNSET:
        child, size = node.sequence.feature, _size(node.sequence.length)
        sequence = "" if child.features_dict is UNSET else name
        for feature in _tfds_features(name, child, labels):
            if (
                None not in feature.shape
                and not feature.sequence
                and feature.kind not in (FeatureKind.IMAGE, FeatureKind.MASK)
            ):
                yield dataclasses.replace(feature, shape=(size, *feature.shape), sequence=sequence)
    else:
        leaf = _tfds_leaf(name, node, labels)
        if leaf is not None:
            yield leaf


def _tfds_leaf(
    name: str, node: TfdsFeature, labels: Mapping[str, tuple[str, ...]]
) -> Feature | None:
    if node.image is not UNSET:
        is_mask = node.python_class_name.endswith("LabeledImage")
        return Feature(name, FeatureKind.MASK if is_mask else FeatureKind.IMAGE)
    if node.class_label is not UNSET:
        numbers = map(str, range(int(node.class_label.num_classes)))
        return Feature(
            name,
            FeatureKind.CLASS_LABEL,
            names=labels.get(name.replace("/", "-")) or tuple(numbers),
        )
    if node.bounding_box is not UNSET:
        return Feature(name, FeatureKind.BOX, shape=(4,))
    if node.text is not UNSET:
        return Feature(name, FeatureKind.TEXT)
    return None if node.tensor is UNSET else _tfds_tensor(name, node.tensor)


def _size(text: str) -> int | None:
    return None if text == "-1" else int(text)


def _tfds_tensor(name: str, tensor: TfdsTensor) -> Feature | None:
    """Return the feature of a tensor stored as a list of values; only its first size may vary."""
    shape = tuple(map(_size, tensor.shape.dimensions))
    if tensor.encoding != "none" or None in shape[1:]:
        return None
    dtype = tensor.dtype
    short = "" if dtype in _DEFAULT_DTYPES else dtype
    if dtype in INTEGER_DTYPES:
        return Feature(name, FeatureKind.INT64, shape=shape, dtype=short)
    if dtype in FLOAT_DTYPES:
        return Feature(name, FeatureKind.FLOAT32, shape=shape, dtype=short)
    return Feature(name, FeatureKind.BYTES, shape=shape) if dtype in ("string", "object") else None
