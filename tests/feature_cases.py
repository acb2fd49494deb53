"""Every kind of feature in two records, made by TensorFlow alone, with what TFDS users would declare for it and would be given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from shardwright import naming
from shardwright.manifest import Manifest, ShardInfo, SplitInfo, json_text
from shardwright.names_files import names_files, names_text
from shardwright.schema import ExampleSchema, Feature, FeatureKind, Source, VocabularyRule
from shardwright.tensors import to_tensor_proto
from shardwright.tfds_features import features_json
from transforms.publishing.companions import dataset_info_json, schema_pbtxt

K, f = FeatureKind, tfds.features
PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
CLASSES = ("cat", "dog", "Löwe")


def png(pixels: np.ndarray) -> bytes:
    return tf.io.encode_png(pixels).numpy()


@dataclass(frozen=True)
class Case:
    """Features, what a TFDS user would declare for them, and two records: as they are stored, and as TFDS gives them."""

    features: tuple[Feature, ...]
    declared: Mapping[str, Any]
    stored: Mapping[str, tuple[list[Any], list[Any]]]
    read: Mapping[str, tuple[Any, Any]]


def one(feature: Feature, declared: Any, *records: tuple[list[Any], Any]) -> Case:
    """Of one feature with one key: (stored values, what TFDS gives) of each record."""
    stored, read = zip(*records, strict=True)
    return Case((feature,), {feature.name: declared}, {feature.name: stored}, {feature.name: read})


def scalar(kind: FeatureKind, dtype: str, *records: tuple[list[Any], Any], name: str = "") -> Case:
    return one(Feature(name or dtype, kind, dtype=dtype), f.Scalar(np.dtype(dtype)), *records)


CASES: dict[str, Case] = {
    "image": one(Feature("image", K.IMAGE, Source.IMAGE), f.Image(), ([png(PIXELS)], PIXELS), ([png(PIXELS[:1])], PIXELS[:1])),
    "second image": one(
        Feature("left", K.IMAGE, encoding="png", shape=(2, 4, 3)), f.Image(shape=(2, 4, 3), encoding_format="png"),
        ([png(PIXELS)], PIXELS), ([png(PIXELS + 1)], PIXELS + 1),
    ),
    "mask": one(Feature("mask", K.MASK), f.Image(shape=(None, None, 1)), ([png(PIXELS[..., :1])], PIXELS[..., :1]),
                ([png(PIXELS[:1, :, 1:2])], PIXELS[:1, :, 1:2])),
    "deep mask": one(
        Feature("instances", K.MASK, dtype="uint16", encoding="png"),
        f.Image(shape=(None, None, 1), dtype=np.uint16, encoding_format="png"),
        *[([png(mask)], mask) for mask in (np.array([[[300], [65535]]], np.uint16), np.array([[[0]]], np.uint16))],
    ),
    "raw": one(
        Feature("raw", K.IMAGE, encoding="raw", shape=(2, 4, 3)), f.Tensor(shape=(2, 4, 3), dtype=np.uint8, encoding=f.Encoding.BYTES),
        ([PIXELS.tobytes()], PIXELS), ([(PIXELS + 1).tobytes()], PIXELS + 1),
    ),
    "image tensor": one(
        Feature("pixels", K.IMAGE, encoding="tensor", dtype="float32"), f.Scalar(np.str_),
        *[([to_tensor_proto(image)], to_tensor_proto(image)) for image in (PIXELS.astype(np.float32), PIXELS[:1])],
    ),
    "tensor": one(
        Feature("embedding", K.TENSOR, shape=(None, 3)), f.Scalar(np.str_),
        *[([to_tensor_proto(array)], to_tensor_proto(array)) for array in (np.eye(3, dtype=np.float32), np.zeros((0, 3), np.float32))],
    ),
    "label": one(Feature("label", K.CLASS_LABEL, Source.LABEL), f.ClassLabel(names=CLASSES), ([2], 2), ([0], 0)),
    "other label": one(Feature("weather/sky", K.CLASS_LABEL, names=("blue", "gray")), f.ClassLabel(names=("blue", "gray")),
                       ([1], 1), ([0], 0)),
    "labels": one(Feature("views", K.CLASS_LABEL, shape=(None,), names=("a",)), f.Sequence(f.ClassLabel(names=["a"])),
                  ([0, 0], [0, 0]), ([], [])),
    "three labels": one(Feature("three", K.CLASS_LABEL, shape=(3,), names=("a", "b")), f.Sequence(f.ClassLabel(names=["a", "b"]), length=3),
                        ([0, 1, 0], [0, 1, 0]), ([1, 1, 1], [1, 1, 1])),
    "multi-label": one(Feature("scenes", K.MULTI_LABEL), f.Sequence(f.ClassLabel(names=["indoor", "outdoor"])), ([0, 1], [0, 1]), ([], [])),
    "text": one(Feature("caption", K.TEXT), f.Text(), (["schön".encode()], "schön".encode()), ([b""], b"")),
    "texts": one(Feature("captions", K.TEXT, shape=(None,)), f.Sequence(f.Text()), ([b"a", b"b"], [b"a", b"b"]), ([], [])),
    "bytes": one(Feature("blob", K.BYTES), f.Scalar(np.str_), ([b"\xff\x00"], b"\xff\x00"), ([b""], b"")),
    "four texts": one(Feature("parts", K.BYTES, shape=(2, 2)), f.Tensor(shape=(2, 2), dtype=np.str_),
                      *[([b"a", b"b", b"c", end], [[b"a", b"b"], [b"c", end]]) for end in (b"d", b"")]),
    "int64": scalar(K.INT64, "int64", ([-(2**60)], -(2**60)), ([3], 3)),
    "uint8": scalar(K.INT64, "uint8", ([255], 255), ([0], 0)),
    "int16": scalar(K.INT64, "int16", ([-300], -300), ([0], 0)),
    "uint32": scalar(K.INT64, "uint32", ([2**32 - 1], 2**32 - 1), ([0], 0)),
    "bool": scalar(K.INT64, "bool", ([1], True), ([0], False)),
    "float32": scalar(K.FLOAT32, "float32", ([0.25], 0.25), ([float("inf")], float("inf"))),
    "float16": scalar(K.FLOAT32, "float16", ([0.25], 0.25), ([-2.0], -2.0)),
    "float64": scalar(K.FLOAT32, "float64", ([0.25], 0.25), ([-2.0], -2.0)),
    "list": one(Feature("sizes", K.INT64, shape=(None,), dtype="int32"), f.Sequence(f.Scalar(np.int32)), ([4, 5], [4, 5]), ([], [])),
    "array": one(Feature("pose", K.FLOAT32, shape=(2, 3)), f.Tensor(shape=(2, 3), dtype=np.float32),
                 (list(range(6)), [[0, 1, 2], [3, 4, 5]]), ([0.5] * 6, [[0.5] * 3] * 2)),
    "points": one(Feature("points", K.INT64, shape=(None, 2), dtype="int16"), f.Tensor(shape=(None, 2), dtype=np.int16),
                  ([1, 2, 3, 4], [[1, 2], [3, 4]]), ([], np.zeros((0, 2)))),
    "vector": one(Feature("vector", K.FLOAT32, shape=(2,)), f.Tensor(shape=(2,), dtype=np.float32), ([1, 2], [1, 2]), ([3, 4], [3, 4])),
    "box": one(Feature("crop", K.BOX, shape=(4,)), f.BBoxFeature(), ([0, 0.25, 0.5, 1], [0, 0.25, 0.5, 1]), ([0, 0, 1, 1], [0, 0, 1, 1])),
    "boxes": one(Feature("faces", K.BOX, shape=(None, 4)), f.Sequence(f.BBoxFeature()),
                 ([0, 0.25, 0.5, 1] * 2, [[0, 0.25, 0.5, 1]] * 2), ([], np.zeros((0, 4)))),
    "objects": Case(
        (
            Feature("objects/bbox", K.BOX, shape=(None, 4), sequence="objects"),
            Feature("objects/label", K.CLASS_LABEL, shape=(None,), sequence="objects", names=("car", "bus")),
            Feature("objects/is_crowd", K.INT64, shape=(None,), dtype="bool", sequence="objects"),
            Feature("objects/keypoints", K.FLOAT32, shape=(None, 2), sequence="objects"),
            Feature("objects/note", K.TEXT, shape=(None,), sequence="objects"),
        ),
        {"objects": f.Sequence({"bbox": f.BBoxFeature(), "label": f.ClassLabel(names=["car", "bus"]), "is_crowd": f.Scalar(np.bool_),
                                "keypoints": f.Tensor(shape=(2,), dtype=np.float32), "note": f.Text()})},
        {
            "objects/bbox": ([0, 0.25, 0.5, 1, 0, 0, 1, 1], []), "objects/label": ([1, 0], []), "objects/is_crowd": ([0, 1], []),
            "objects/keypoints": ([1, 2, 3, 4], []), "objects/note": ([b"left", b""], []),
        },
        {
            "objects/bbox": ([[0, 0.25, 0.5, 1], [0, 0, 1, 1]], np.zeros((0, 4))), "objects/label": ([1, 0], []),
            "objects/is_crowd": ([False, True], []), "objects/keypoints": ([[1, 2], [3, 4]], np.zeros((0, 2))),
            "objects/note": ([b"left", b""], []),
        },
    ),
    "sequence of a length": Case(
        (Feature("hands/box", K.BOX, shape=(2, 4), sequence="hands"), Feature("hands/age", K.INT64, shape=(2,), sequence="hands")),
        {"hands": f.Sequence({"box": f.BBoxFeature(), "age": f.Scalar(np.int64)}, length=2)},
        {"hands/box": ([0, 0, 1, 1, 0, 0, 0.5, 0.5], [0, 0, 1, 1] * 2), "hands/age": ([1, 2], [3, 4])},
        {"hands/box": ([[0, 0, 1, 1], [0, 0, 0.5, 0.5]], [[0, 0, 1, 1]] * 2), "hands/age": ([1, 2], [3, 4])},
    ),
    "a folder that is a sequence only in part": Case(
        (Feature("parts_of/size", K.INT64, shape=(None,), sequence="parts_of"), Feature("parts_of/count", K.INT64)),
        {"parts_of": {"size": f.Sequence(f.Scalar(np.int64)), "count": f.Scalar(np.int64)}},
        {"parts_of/size": ([7, 8], []), "parts_of/count": ([2], [0])},
        {"parts_of/size": ([7, 8], []), "parts_of/count": (2, 0)},
    ),
    "tokens": one(Feature("words", K.TOKENS, vocabulary=VocabularyRule()), f.Sequence(f.Scalar(np.int64)),
                  ([2, 0, 2], [2, 0, 2]), ([], [])),
    "bag of words": Case(
        (Feature("bag", K.BAG_OF_WORDS, vocabulary=VocabularyRule()),),
        {"bag": {"indices": f.Sequence(f.Scalar(np.int64)), "values": f.Sequence(f.Scalar(np.float32))}},
        {"bag/indices": ([0, 3], []), "bag/values": ([2, 1], [])},
        {"bag/indices": ([0, 3], []), "bag/values": ([2, 1], [])},
    ),
    "bag of words under other keys": Case(
        (Feature("tags", K.BAG_OF_WORDS, keys=("tag_ids", "tag_counts"), names=("x", "y")),),
        {"tag_ids": f.Sequence(f.Scalar(np.int64)), "tag_counts": f.Sequence(f.Scalar(np.float32))},
        {"tag_ids": ([1], [0, 1]), "tag_counts": ([2], [1, 1])},
        {"tag_ids": ([1], [0, 1]), "tag_counts": ([2], [1, 1])},
    ),
}  # fmt: skip
VOCABULARIES = {
    "scenes": ("indoor", "outdoor"),
    "words": ("a", "b", "c"),
    "bag": ("a", "b", "c", "d"),
}
SCHEMA = ExampleSchema(
    tuple(feature for case in CASES.values() for feature in case.features), CLASSES, VOCABULARIES
)


def declared_features() -> f.FeaturesDict:
    """All cases in one dict, nested where names have a `/`."""
    declared: dict[str, Any] = {}
    for case in CASES.values():
        for name, feature in case.declared.items():
            *folders, last = name.split("/")
            node = declared
            for folder in folders:
                node = node.setdefault(folder, {})
            node[last] = feature
    return f.FeaturesDict(declared)


def to_feature(kind: str, values: list[Any]) -> tf.train.Feature:
    if kind == "int64":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    if kind == "float":
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def make_example(number: int) -> bytes:
    """The record of that number, made by TensorFlow alone."""
    kinds = {
        stored.key: str(stored.type) for feature in SCHEMA.features for stored in feature.stored
    }
    stored = {key: values[number] for case in CASES.values() for key, values in case.stored.items()}
    features = {key: to_feature(kinds[key], values) for key, values in stored.items()}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


SHARD = naming.ShardName("everything", "train", 0, 1).shard


MANIFEST = Manifest(
    "everything",
    "1.0.0",
    SCHEMA,
    {"train": SplitInfo("train", (ShardInfo(0, 2, 1000, 1, "d"),))},
    {},
    2,
    {},
    "f",
    {},
)


def write_dataset(root: Path) -> Path:
    """A folder with a shard of the two records, the manifest, and the files that TFDS and TFX read."""
    with tf.io.TFRecordWriter(str(root / SHARD)) as writer:
        for number in (0, 1):
            writer.write(make_example(number))
    (root / naming.MANIFEST).write_text(json_text(MANIFEST.to_json()))
    (root / naming.STATS).write_text(json_text({"train": {}}))
    (root / naming.FEATURES).write_text(json_text(features_json(SCHEMA)))
    (root / naming.DATASET_INFO).write_text(json_text(dataset_info_json(MANIFEST)))
    (root / naming.SCHEMA_PBTXT).write_text(schema_pbtxt(SCHEMA))
    for filename, names in names_files(SCHEMA).items():
        (root / filename).write_text(names_text(names))
    return root
