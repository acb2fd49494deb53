"""Read what a folder of TFRecord files states about its features, and make objects of records.

Formats: this project's manifest (`shardwright.format.manifest`); TFDS's `features.json`
(`tensorflow_datasets/core/proto/feature.proto` as JSON) and `<feature>.labels.txt`, with one class
name a line (`tensorflow_datasets/core/features/class_label_feature.py`).

Objects are those of TensorFlow's Object Detection API, with the features of
`object_detection/dataset_tools/create_coco_tf_record.py`: a list for each edge of boxes, as
fractions, and lists of the same length for classes and other values. Class names are in the
records, or in a label map beside them (`string_int_label_map.proto` as text).
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa
from google.protobuf.text_encoding import CUnescape
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
from shardwright.storage.options import StorageOptions
from shardwright.transforms.features.conversions import FLOAT_DTYPES, INTEGER_DTYPES
from shardwright.transforms.features.lists import empty_as_null, to_texts
from shardwright.transforms.inputs import boxes
from shardwright.transforms.inputs.box_rows import BoxColumns, ObjectColumn
from shardwright.transforms.inputs.columns import Columns, can_be_classes, distinct_names
from shardwright.transforms.inputs.file_rules import decode_text, has_image_magic
from shardwright.transforms.inputs.source import Rows
from shardwright.transforms.references import extra_name

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


_OBJECT = "image/object/"
_EDGES = tuple(f"{_OBJECT}bbox/{edge}" for edge in ("xmin", "ymin", "xmax", "ymax"))
_TEXT, _NUMBER = f"{_OBJECT}class/text", f"{_OBJECT}class/label"
_CLASSES = (_TEXT, _NUMBER)
_STRING = r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'"
_ITEM = re.compile(rf"\bitem\s*:?\s*\{{((?:[^{{}}\"']|{_STRING}|\{{[^{{}}]*\}})*)\}}")
_FIELD = re.compile(rf"\b(id|name|display_name)\s*:\s*(-?\d+|{_STRING})")
_NESTED = re.compile(r"\{[^{}]*\}")
_MAX_MAP_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class DetectionKeys:
    """The features of records with boxes.

    Attributes:
        columns: The boxes' edges, the class, and other features with a value for each box.
        stored: Each of these features -> its type in the columns of records.
        left_out: Features that say the same as the class.
        names: Class number -> its name, from a label map; {} to take the class as it is stored.
    """

    columns: BoxColumns
    stored: Mapping[str, pa.DataType]
    left_out: tuple[str, ...]
    names: Mapping[int, str]

    @classmethod
    def find(
        cls, seen: RecordStatistics, folder: Folder, declared: Collection[str]
    ) -> DetectionKeys | None:
        """Return the features of boxes; None if there are none, or a schema fills features of them.

        Args:
            seen: Statistics of the first records.
            folder: The folder that may hold a label map.
            declared: The features that a schema takes.

        Raises:
            UsageError: There are several label maps, or one that cannot be read.
        """
        keys = {*_EDGES}
        if not keys <= seen.features.keys() or keys & {*declared}:
            return None
        if any(seen.stored(key) != pa.float32() for key in _EDGES):
            return None
        lengths = seen.features[_EDGES[0]].lengths

        def has_one_a_box(key: str) -> bool:
            found = seen.features[key].lengths
            # Of classes, a record with more or fewer is a fault of its own.
            return found == lengths or (
                key in _CLASSES and 2 * (found & lengths).total() > seen.num_records
            )

        lists = [
            key
            for key in seen.features
            if key.startswith(_OBJECT) and key not in keys and has_one_a_box(key)
        ]
        names = read_label_map(folder) if _NUMBER in lists else {}
        classes = [key for key in ((_NUMBER,) if names else _CLASSES) if key in lists][:1]
        is_number = classes == [_NUMBER] and not names
        label = [
            ObjectColumn(key, boxes.LABEL, pa.int64() if is_number else pa.string())
            for key in classes
        ]
        others = [key for key in lists if key not in _CLASSES]
        values = [
            ObjectColumn(key, f"objects/{key.removeprefix(_OBJECT)}", seen.stored(key))
            for key in others
        ]
        stored = {key: pa.list_(seen.stored(key)) for key in (*_EDGES, *classes, *others)}
        left_out = tuple(key for key in _CLASSES if key in lists and key not in classes)
        class_names = tuple(names[number] for number in sorted(names))
        columns = BoxColumns(_EDGES, objects=(*label, *values), class_names=class_names)
        return cls(columns, stored, left_out, names)

    def attributes(self, others: Columns) -> dict[str, Any]:
        """Return the source's attributes that follow; `others` are the records' other features."""
        found, label = self.columns.attributes(), self.columns.label or ""
        kinds = [(one.name, one.type) for one in others.columns if one.name in others.extras]
        return found | {
            "schema": self.columns.schema(kinds),
            "features": (*others.features, *found["features"]),
            "labels_from": "the label map" if self.names else f"feature {label!r}",
        }

    def with_objects(self, batch: pa.RecordBatch, storage: StorageOptions) -> Rows:
        """Yield references with `objects` in place of the features of boxes, and rejects."""
        lists = {key: batch.column(extra_name(key)) for key in self.stored}
        bare = batch.drop_columns([extra_name(key) for key in self.stored])
        return self.columns.in_lists(bare, lists, None, storage, self._classes)

    def _classes(self, values: pa.Array) -> pa.Array:
        if self.names:
            found = [self.names.get(number, str(number)) for number in values.to_pylist()]
            return pa.array(found, pa.string())
        if pa.types.is_integer(values.type):
            return values
        return empty_as_null(to_texts(values)[0])


def read_label_map(folder: Folder) -> dict[int, str]:
    """Return class number -> name of the label map (.pbtxt) in a folder, {} if there is none.

    Raises:
        UsageError: There are several, or it is neither UTF-8 nor UTF-16.
    """
    found = {}
    for name in folder.names():
        if not name.endswith(".pbtxt"):
            continue
        try:
            text = decode_text(folder.read_bytes(name, max_bytes=_MAX_MAP_BYTES))
        except UnicodeError as error:
            raise UsageError(f"{folder.path(name)} is {error}") from error
        if items := dict(_items(text)):
            found[name] = items
    if len(found) > 1:
        raise UsageError(f"{folder} holds several label maps, {', '.join(sorted(found))}: keep one")
    return distinct_names(next(iter(found.values()), {}))


def _items(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the name of each item of a label map; names to show come first."""
    for item in _ITEM.findall(re.sub(r"(?m)^\s*#.*$", "", text)):
        fields = dict(_FIELD.findall(_NESTED.sub("", item)))
        name = fields.get("display_name") or fields.get("name")
        if name and "id" in fields:
            yield int(fields["id"]), CUnescape(name[1:-1]).decode()
