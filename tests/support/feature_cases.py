"""Every kind of feature in two records made by TensorFlow, with the TFDS feature of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from shardwright.format import naming
from shardwright.format.manifest import Manifest, json_bytes
from shardwright.format.schema import ExampleSchema, Feature, Source, VocabularyRule
from shardwright.format.schema import FeatureKind as K
from shardwright.format.splits import ShardInfo, SplitInfo
from shardwright.format.tensors import to_tensor_proto
from shardwright.format.tfds_features import features_json, names_files, names_text
from shardwright.transforms.publish.companions import dataset_info_json, schema_pbtxt

F, f = Feature, tfds.features
PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
CLASSES = ("cat", "dog", "Löwe")
LIST: tuple[int | None, ...] = (None,)


@dataclass(frozen=True)
class Case:
    """Features, their TFDS declaration, and two records: as stored, and as TFDS reads them."""

    features: tuple[Feature, ...]
    declared: Mapping[str, Any]
    stored: Mapping[str, tuple[list[Any], list[Any]]]
    read: Mapping[str, tuple[Any, Any]]


def one(feature: Feature, declared: Any, *records: tuple[list[Any], Any]) -> Case:
    """Return the case of a feature with one key; a record is (stored values, value read)."""
    stored, read = zip(*records, strict=True)
    return Case((feature,), {feature.name: declared}, {feature.name: stored}, {feature.name: read})


def value(feature: Feature, declared: Any, *values: Any) -> Case:
    return one(feature, declared, *(([value], value) for value in values))


def values(feature: Feature, declared: Any, *lists: list[Any]) -> Case:
    return one(feature, declared, *((values, values) for values in lists))


def pictures(feature: Feature, declared: Any, *arrays: np.ndarray) -> Case:
    records = (([tf.io.encode_png(array).numpy()], array) for array in arrays)
    return one(feature, declared, *records)


def tensors(feature: Feature, *arrays: np.ndarray) -> Case:
    return value(feature, f.Scalar(np.str_), *map(to_tensor_proto, arrays))


def scalar(kind: K, dtype: str, *numbers: float) -> Case:
    return value(Feature(dtype, kind, dtype=dtype), f.Scalar(np.dtype(dtype)), *numbers)


def labels(*names: str, length: int | None = None) -> f.Sequence:
    return f.Sequence(f.ClassLabel(names=list(names)), length=length)


def array(*shape: int | None, dtype: Any = np.float32, **options: Any) -> f.Tensor:
    return f.Tensor(shape=shape, dtype=dtype, **options)


def item(name: str, kind: K, *sizes: int, length: int | None = None, **options: Any) -> Feature:
    """Return a feature of the sequence that is its folder."""
    folder = name.partition("/")[0]
    return Feature(name, kind, shape=(length, *sizes), sequence=folder, **options)


LEFT = F("left", K.IMAGE, encoding="png", shape=(2, 4, 3))
DEEP = F("instances", K.MASK, dtype="uint16", encoding="png")
RAW = F("raw", K.IMAGE, encoding="raw", shape=(2, 4, 3))
RULE = VocabularyRule()
BOX, INT, COUNTS = f.BBoxFeature(), f.Scalar(np.int64), f.Sequence(f.Scalar(np.float32))
ONE_BOX, NO_BOX = [0, 0.25, 0.5, 1], np.zeros((0, 4))
_CASES = (
    pictures(F("image", K.IMAGE, Source.IMAGE), f.Image(), PIXELS, PIXELS[:1]),
    pictures(LEFT, f.Image(shape=(2, 4, 3), encoding_format="png"), PIXELS, PIXELS + 1),
    pictures(F("mask", K.MASK), f.Image(shape=(None, None, 1)), PIXELS[..., :1],
             PIXELS[:1, :, 1:2]),
    pictures(DEEP, f.Image(shape=(None, None, 1), dtype=np.uint16, encoding_format="png"),
             np.array([[[300], [65535]]], np.uint16), np.array([[[0]]], np.uint16)),
    one(RAW, array(2, 4, 3, dtype=np.uint8, encoding=f.Encoding.BYTES),
        ([PIXELS.tobytes()], PIXELS), ([(PIXELS + 1).tobytes()], PIXELS + 1)),
    tensors(F("embedding", K.TENSOR, shape=(None, 3)), np.eye(3, dtype=np.float32),
            np.zeros((0, 3), np.float32)),
    value(F("label", K.CLASS_LABEL, Source.LABEL), f.ClassLabel(names=CLASSES), 2, 0),
    value(F("weather/sky", K.CLASS_LABEL, names=("blue", "gray")),
          f.ClassLabel(names=("blue", "gray")), 1, 0),
    values(F("views", K.CLASS_LABEL, shape=LIST, names=("a",)), labels("a"), [0, 0], []),
    values(F("three", K.CLASS_LABEL, shape=(3,), names=("a", "b")), labels("a", "b", length=3),
           [0, 1, 0], [1, 1, 1]),
    values(F("scenes", K.MULTI_LABEL), labels("indoor", "outdoor"), [0, 1], []),
    value(F("caption", K.TEXT), f.Text(), "schön".encode(), b""),
    values(F("captions", K.TEXT, shape=LIST), f.Sequence(f.Text()), [b"a", b"b"], []),
    value(F("blob", K.BYTES), f.Scalar(np.str_), b"\xff\x00", b""),
    one(F("parts", K.BYTES, shape=(2, 2)), array(2, 2, dtype=np.str_),
        *(([b"a", b"b", b"c", end], [[b"a", b"b"], [b"c", end]]) for end in (b"d", b""))),
    scalar(K.INT64, "int64", -(2**60), 3),
    scalar(K.INT64, "uint8", 255, 0),
    scalar(K.INT64, "int16", -300, 0),
    scalar(K.INT64, "uint32", 2**32 - 1, 0),
    scalar(K.INT64, "bool", True, False),
    scalar(K.FLOAT32, "float32", 0.25, float("inf")),
    scalar(K.FLOAT32, "float16", 0.25, -2.0),
    scalar(K.FLOAT32, "float64", 0.25, -2.0),
    values(F("sizes", K.INT64, shape=LIST, dtype="int32"), f.Sequence(f.Scalar(np.int32)),
           [4, 5], []),
    one(F("pose", K.FLOAT32, shape=(2, 3)), array(2, 3),
        (list(range(6)), [[0, 1, 2], [3, 4, 5]]), ([0.5] * 6, [[0.5] * 3] * 2)),
    one(F("points", K.INT64, shape=(None, 2), dtype="int16"), array(None, 2, dtype=np.int16),
        ([1, 2, 3, 4], [[1, 2], [3, 4]]), ([], np.zeros((0, 2)))),
    values(F("vector", K.FLOAT32, shape=(2,)), array(2), [1, 2], [3, 4]),
    values(F("crop", K.BOX, shape=(4,)), BOX, ONE_BOX, [0, 0, 1, 1]),
    one(F("faces", K.BOX, shape=(None, 4)), f.Sequence(BOX), (ONE_BOX * 2, [ONE_BOX] * 2),
        ([], NO_BOX)),
    Case(
        (item("objects/bbox", K.BOX, 4), item("objects/note", K.TEXT),
         item("objects/label", K.CLASS_LABEL, names=("car", "bus")),
         item("objects/is_crowd", K.INT64, dtype="bool"), item("objects/keypoints", K.FLOAT32, 2)),
        {"objects": f.Sequence({"bbox": BOX, "label": f.ClassLabel(names=["car", "bus"]),
                                "is_crowd": f.Scalar(np.bool_), "keypoints": array(2),
                                "note": f.Text()})},
        {"objects/bbox": ([*ONE_BOX, 0, 0, 1, 1], []), "objects/label": ([1, 0], []),
         "objects/is_crowd": ([0, 1], []), "objects/keypoints": ([1, 2, 3, 4], []),
         "objects/note": ([b"left", b""], [])},
        {"objects/bbox": ([ONE_BOX, [0, 0, 1, 1]], NO_BOX), "objects/label": ([1, 0], []),
         "objects/is_crowd": ([False, True], []), "objects/note": ([b"left", b""], []),
         "objects/keypoints": ([[1, 2], [3, 4]], np.zeros((0, 2)))},
    ),
    Case(
        (item("hands/box", K.BOX, 4, length=2), item("hands/age", K.INT64, length=2)),
        {"hands": f.Sequence({"box": BOX, "age": INT}, length=2)},
        {"hands/box": ([0, 0, 1, 1, *ONE_BOX], [0, 0, 1, 1] * 2), "hands/age": ([1, 2], [3, 4])},
        {"hands/box": ([[0, 0, 1, 1], ONE_BOX], [[0, 0, 1, 1]] * 2),
         "hands/age": ([1, 2], [3, 4])},
    ),
    Case(
        (item("parts_of/size", K.INT64), F("parts_of/count", K.INT64)),
        {"parts_of": {"size": f.Sequence(INT), "count": INT}},
        {"parts_of/size": ([7, 8], []), "parts_of/count": ([2], [0])},
        {"parts_of/size": ([7, 8], []), "parts_of/count": (2, 0)},
    ),
    values(F("words", K.TOKENS, vocabulary=RULE), f.Sequence(INT), [2, 0, 2], []),
    Case(
        (F("bag", K.BAG_OF_WORDS, vocabulary=RULE),),
        {"bag": {"indices": f.Sequence(INT), "values": COUNTS}},
        *[{"bag/indices": ([0, 3], []), "bag/values": ([2, 1], [])}] * 2,
    ),
    Case(
        (F("tags", K.BAG_OF_WORDS, dtype="int64", keys=("tag_ids", "tag_counts"),
           names=("x", "y")),),
        {"tag_ids": f.Sequence(INT), "tag_counts": f.Sequence(INT)},
        *[{"tag_ids": ([1], [0, 1]), "tag_counts": ([2], [1, 1])}] * 2,
    ),
)  # fmt: skip
CASES = {case.features[0].name: case for case in _CASES}
VOCABULARIES = {"scenes": ("indoor", "outdoor"), "words": tuple("abc"), "bag": tuple("abcd")}
SCHEMA = ExampleSchema(
    tuple(feature for case in CASES.values() for feature in case.features), CLASSES, VOCABULARIES
)
SHARD = naming.ShardName("everything", "train", 0, 1).shard
SPLITS = {"train": SplitInfo("train", (ShardInfo(0, 2, 1000, 1, "d", 0, 0),))}
MANIFEST = Manifest("everything", "1.0.0", SCHEMA, SPLITS, {}, 2, {}, "f", {})


def declared_features() -> f.FeaturesDict:
    """Return all cases in one dict, nested where names have a `/`."""
    declared: dict[str, Any] = {}
    for case in CASES.values():
        for name, feature in case.declared.items():
            *folders, last = name.split("/")
            node = declared
            for folder in folders:
                node = node.setdefault(folder, {})
            node[last] = feature
    return f.FeaturesDict(declared)


def make_example(number: int) -> bytes:
    """Return the record of that number, made by TensorFlow."""
    make = {
        "int64": lambda values: {"int64_list": tf.train.Int64List(value=values)},
        "float": lambda values: {"float_list": tf.train.FloatList(value=values)},
        "binary": lambda values: {"bytes_list": tf.train.BytesList(value=values)},
    }
    kinds = {
        stored.key: str(stored.type) for feature in SCHEMA.features for stored in feature.stored
    }
    stored = {key: values[number] for case in CASES.values() for key, values in case.stored.items()}
    features = {key: tf.train.Feature(**make[kinds[key]](values)) for key, values in stored.items()}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def write_dataset(root: Path) -> Path:
    """Write a shard of the two records, the manifest, and the files that TFDS and TFX read."""
    with tf.io.TFRecordWriter(str(root / SHARD)) as writer:
        for number in (0, 1):
            writer.write(make_example(number))
    contents = {
        naming.MANIFEST: MANIFEST.to_bytes(),
        naming.STATS: json_bytes({"train": {}}),
        naming.FEATURES: json_bytes(features_json(SCHEMA)),
        naming.DATASET_INFO: json_bytes(dataset_info_json(MANIFEST)),
        naming.SCHEMA_PBTXT: schema_pbtxt(SCHEMA).encode(),
        **{name: names_text(names).encode() for name, names in names_files(SCHEMA).items()},
    }
    for filename, data in contents.items():
        (root / filename).write_bytes(data)
    return root
