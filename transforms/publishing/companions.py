"""The files beside the shards that other tools read: TFDS's `dataset_info.json` and TFX's `schema.pbtxt`.

Formats: `tensorflow_datasets/core/proto/dataset_info.proto` as JSON, `tensorflow_metadata/proto/v0/schema.proto` as text. All come
from the one `ExampleSchema`, as do `features.json` (`shardwright.tfds_features`) and the files of class names (`names_files`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from shardwright.manifest import Manifest
from shardwright.names_files import INDEXED
from shardwright.records import FRAME_BYTES
from shardwright.schema import PICTURES, ExampleSchema, Feature, FeatureKind, StoredFeature

_TFX_TYPES = {
    pa.int64(): schema_pb2.INT,
    pa.float32(): schema_pb2.FLOAT,
    pa.binary(): schema_pb2.BYTES,
}


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
    info: dict[str, Any] = {
        "name": manifest.name,
        "version": manifest.version,
        "fileFormat": "tfrecord",
        "splits": splits,
    }
    supervised = [
        feature.name
        for feature in (manifest.schema.image, manifest.schema.label)
        if feature is not None
    ]
    if len(supervised) == 2 and not any(
        "/" in name for name in supervised
    ):  # TFDS has no way to name a nested one
        info["supervisedKeys"] = {"tuple": {"items": [_feature_key(name) for name in supervised]}}
    return info


def _feature_key(name: str) -> dict[str, str]:
    return {"featureKey": name}


def schema_pbtxt(schema: ExampleSchema) -> str:
    """`schema.pbtxt`: each feature's type, shape, presence and range, for TFX and TensorFlow Data Validation.

    A list of any length has a `value_count` in place of a shape, as has one of arrays, whose inner shape this format cannot say.
    A bag of words is a sparse feature of its two lists.
    """
    proto = schema_pb2.Schema()
    for feature in schema.features:
        for stored in feature.stored:
            entry = proto.feature.add(name=stored.key, type=_TFX_TYPES[stored.type])
            _state_shape(entry, stored.shape)
            _state_domain(entry, feature, stored, len(schema.names_of(feature)))
        if feature.kind == FeatureKind.BAG_OF_WORDS:
            indices, values = (stored.key for stored in feature.stored)
            sparse = proto.sparse_feature.add(name=feature.name, is_sorted=True)
            sparse.index_feature.add(name=indices)
            sparse.value_feature.name = values
    return text_format.MessageToString(proto)


def _state_shape(entry: schema_pb2.Feature, shape: tuple[int | None, ...]) -> None:
    if None in shape:
        entry.value_count.min = 0
        return
    entry.presence.min_fraction = 1.0
    entry.presence.min_count = 1
    entry.shape.SetInParent()
    for size in shape:
        entry.shape.dim.add(size=size)


def _state_domain(
    entry: schema_pb2.Feature, feature: Feature, stored: StoredFeature, num_names: int
) -> None:
    """What the values can be, where that is less than their type allows."""
    if feature.kind in INDEXED and stored.type == pa.int64():
        entry.int_domain.min, entry.int_domain.max = 0, max(num_names - 1, 0)
        entry.int_domain.is_categorical = True
    elif feature.kind == FeatureKind.INT64 and feature.dtype:
        _state_integers(entry, feature.dtype)
    elif feature.kind == FeatureKind.BOX:
        entry.float_domain.min, entry.float_domain.max = 0, 1
    elif feature.kind in PICTURES and feature.encoding not in ("raw", "tensor"):
        entry.image_domain.SetInParent()


def _state_integers(entry: schema_pb2.Feature, dtype: str) -> None:
    if dtype == "bool":
        entry.bool_domain.SetInParent()
    elif (
        dtype == "uint64"
    ):  # its greatest numbers are more than an int64, and so than any that is stored
        entry.int_domain.min = 0
    elif dtype != "int64":
        entry.int_domain.min, entry.int_domain.max = (
            int(np.iinfo(dtype).min),
            int(np.iinfo(dtype).max),
        )
