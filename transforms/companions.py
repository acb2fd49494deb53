"""The files beside the shards that other tools read: TFDS's `features.json` and `dataset_info.json`, TFX's `schema.pbtxt`.

Formats: `tensorflow_datasets/core/proto/{feature,dataset_info}.proto` as JSON, `tensorflow_metadata/proto/v0/schema.proto` as
text. All come from the one `ExampleSchema`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from shardwright.manifest import Manifest
from shardwright.records import FRAME_BYTES
from shardwright.schema import ExampleSchema, Feature, FeatureKind

_TFDS = "tensorflow_datasets.core.features"
_SCALARS = {FeatureKind.INT64: "int64", FeatureKind.FLOAT32: "float32", FeatureKind.BYTES: "string"}


def features_json(schema: ExampleSchema) -> dict[str, Any]:
    """`features.json`: a FeaturesDict, nested where names have a `/`, as TFDS writes it."""
    tree: dict[str, Any] = {}
    for feature in schema.features:
        *folders, last = feature.name.split("/")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[last] = _tfds_feature(feature, schema)
    return _tfds_dict(tree)


def _tfds_dict(tree: Mapping[str, Any]) -> dict[str, Any]:
    features = {name: node if "pythonClassName" in node else _tfds_dict(node) for name, node in sorted(tree.items())}
    return {"pythonClassName": f"{_TFDS}.features_dict.FeaturesDict", "featuresDict": {"features": features}}


def _tfds_feature(feature: Feature, schema: ExampleSchema) -> dict[str, Any]:
    if feature.kind == FeatureKind.IMAGE:
        return _tfds_image(feature)
    if feature.kind == FeatureKind.CLASS_LABEL:
        classes = {"numClasses": str(len(schema.class_names))}
        return {"pythonClassName": f"{_TFDS}.class_label_feature.ClassLabel", "classLabel": classes}
    if feature.is_list:
        one = _tfds_feature(Feature(feature.name, feature.kind), schema)
        return {"pythonClassName": f"{_TFDS}.sequence_feature.Sequence", "sequence": {"feature": one, "length": "-1"}}
    if feature.kind == FeatureKind.TEXT:
        return {"pythonClassName": f"{_TFDS}.text_feature.Text", "text": {}}
    return _tfds_tensor("scalar.Scalar", _SCALARS[feature.kind], {}, "none")


def _tfds_image(feature: Feature) -> dict[str, Any]:
    """An Image, but of raw pixels a Tensor. TFDS decodes an Image from JPEG, PNG and BMP; of GIF and WebP it reads only the bytes."""
    if feature.encoding == "raw":
        return _tfds_tensor("tensor_feature.Tensor", "uint8", _dimensions(feature.shape), "bytes")
    shape = feature.shape or (None, None, 3)
    image: dict[str, Any] = {"shape": _dimensions(shape), "dtype": "uint8"}
    if feature.encoding:
        image["encodingFormat"] = feature.encoding
    return {"pythonClassName": f"{_TFDS}.image_feature.Image", "image": image}


def _tfds_tensor(python_class: str, dtype: str, shape: dict[str, Any], encoding: str) -> dict[str, Any]:
    tensor = {"shape": shape, "dtype": dtype, "encoding": encoding}
    return {"pythonClassName": f"{_TFDS}.{python_class}", "tensor": tensor}


def _dimensions(shape: tuple[int | None, ...]) -> dict[str, list[str]]:
    return {"dimensions": [str(-1 if size is None else size) for size in shape]}


def dataset_info_json(manifest: Manifest) -> dict[str, Any]:
    """`dataset_info.json`: the exact record count of every shard, which TFDS trusts."""
    splits = [
        {
            "name": split.name,
            "shardLengths": [str(shard.num_records) for shard in split.shards],
            # Of the examples alone: TFDS does not count TFRecord's frames.
            "numBytes": str(split.num_bytes - FRAME_BYTES * split.num_records),
            "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
        }
        for split in manifest.splits.values()
    ]
    info: dict[str, Any] = {"name": manifest.name, "version": manifest.version, "fileFormat": "tfrecord", "splits": splits}
    supervised = [feature.name for feature in (manifest.schema.image, manifest.schema.label) if feature is not None]
    if len(supervised) == 2 and not any("/" in name for name in supervised):  # TFDS has no way to name a nested one
        info["supervisedKeys"] = {"tuple": {"items": [_feature_key(name) for name in supervised]}}
    return info


def _feature_key(name: str) -> dict[str, str]:
    return {"featureKey": name}


def labels_text(schema: ExampleSchema) -> str:
    """`<label>.labels.txt`: one class name a line, in label order."""
    return "".join(f"{name}\n" for name in schema.class_names)


def schema_pbtxt(schema: ExampleSchema) -> str:
    """`schema.pbtxt`: each feature's type, shape and presence, for TFX and TensorFlow Data Validation."""
    types = {FeatureKind.CLASS_LABEL: schema_pb2.INT, FeatureKind.INT64: schema_pb2.INT, FeatureKind.FLOAT32: schema_pb2.FLOAT}
    proto = schema_pb2.Schema()
    for feature in schema.features:
        entry = proto.feature.add(name=feature.name, type=types.get(feature.kind, schema_pb2.BYTES))
        if feature.is_list:
            entry.value_count.min = 0
        else:
            entry.presence.min_fraction = 1.0
            entry.presence.min_count = 1
            entry.shape.SetInParent()
        if feature.kind == FeatureKind.IMAGE and feature.encoding != "raw":
            entry.image_domain.SetInParent()
        if feature.kind == FeatureKind.CLASS_LABEL:
            entry.int_domain.min, entry.int_domain.max = 0, max(len(schema.class_names) - 1, 0)
            entry.int_domain.is_categorical = True
    return text_format.MessageToString(proto)
