"""Make the files beside the manifest, such as TFDS's `dataset_info.json`, TFX's `schema.pbtxt`.

Formats: `tensorflow_datasets/core/proto/dataset_info.proto` as JSON, and
`tensorflow_metadata/proto/v0/schema.proto` as text. Both come from the `ExampleSchema`, like
`features.json` (`shardwright.format.tfds_features`) and the files of class names (`names_files`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import text_encoding, text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from shardwright.format import naming
from shardwright.format.manifest import Manifest, json_bytes
from shardwright.format.records import FRAME_BYTES
from shardwright.format.schema import (
    INDEXED,
    PICTURES,
    ExampleSchema,
    Feature,
    FeatureKind,
    StoredFeature,
)
from shardwright.format.tfds_features import features_json, names_files, names_text
from shardwright.transforms.publish.publication import Companion

_TFX_TYPES = {
    pa.int64(): schema_pb2.INT,
    pa.float32(): schema_pb2.FLOAT,
    pa.binary(): schema_pb2.BYTES,
}


class TfdsFiles(Companion):
    """The companion that writes them; TFDS, TFX and TFDV then read the dataset by its folder."""

    def files(self, manifest: Manifest) -> Mapping[str, bytes]:
        return companion_files(manifest)


def companion_files(manifest: Manifest) -> dict[str, bytes]:
    """Return the bytes of the files beside the manifest that follow from it alone, by name."""
    files = {
        naming.FEATURES: json_bytes(features_json(manifest.schema)),
        naming.DATASET_INFO: json_bytes(dataset_info_json(manifest)),
        naming.STATS: json_bytes(
            {name: dict(each.stats) for name, each in manifest.splits.items()}
        ),
        naming.SCHEMA_PBTXT: schema_pbtxt(manifest.schema).encode(),
    }
    for filename, names in names_files(manifest.schema).items():
        files[filename] = names_text(names).encode("utf-8", "surrogatepass")
    return files


def dataset_info_json(manifest: Manifest) -> dict[str, Any]:
    """Return `dataset_info.json`, with the exact record count of every shard, which TFDS trusts."""
    splits = [
        {
            "name": split.name,
            # As strings, as protobuf's JSON has 64-bit integers.
            "shardLengths": [str(shard.num_records) for shard in split.shards],
            # Only the examples: TFDS does not count the frames of TFRecord.
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
    # TFDS cannot refer to a nested feature.
    if len(supervised) == 2 and not any("/" in name for name in supervised):
        info["supervisedKeys"] = {"tuple": {"items": [{"featureKey": name} for name in supervised]}}
    return info


def schema_pbtxt(schema: ExampleSchema) -> str:
    """Return `schema.pbtxt`: type, shape, presence and range of each feature, for TFX and TFDV.

    A list of any length has a `value_count` instead of a shape. So has a list of arrays, because
    the format cannot express its inner shape. A bag of words is a sparse feature of two lists.
    """
    proto = schema_pb2.Schema()
    texts: list[str] = []
    # Most features differ by name only, and printing takes much longer than all else.
    same: dict[bytes, str] = {}
    for feature in schema.features:
        for stored in feature.stored:
            entry = schema_pb2.Feature(type=_TFX_TYPES[stored.type])
            _state_shape(entry, stored.shape)
            _state_domain(entry, feature, stored, len(schema.names_of(feature)))
            key = entry.SerializeToString(deterministic=True)
            if key not in same:
                same[key] = text_format.MessageToString(entry, indent=2)
            name = text_encoding.CEscape(stored.key, as_utf8=True)  # type: ignore[arg-type]  # takes str
            texts.append(f'feature {{\n  name: "{name}"\n{same[key]}}}\n')
        if feature.kind == FeatureKind.BAG_OF_WORDS:
            indices, values = (stored.key for stored in feature.stored)
            sparse = proto.sparse_feature.add(name=feature.name, is_sorted=True)
            sparse.index_feature.add(name=indices)
            sparse.value_feature.name = values
    return "".join(texts) + text_format.MessageToString(proto)


def _state_shape(entry: schema_pb2.Feature, shape: tuple[int | None, ...]) -> None:
    if None in shape:
        entry.value_count.min = 0
        return
    # A feature of fixed shape is in every record. A list may be empty, which TFX takes for missing.
    entry.presence.min_fraction = 1.0
    entry.presence.min_count = 1
    entry.shape.SetInParent()
    for size in shape:
        entry.shape.dim.add(size=size)


def _state_domain(
    entry: schema_pb2.Feature, feature: Feature, stored: StoredFeature, num_names: int
) -> None:
    """State the range of the values, if it is narrower than their type."""
    if feature.kind in INDEXED and stored == feature.stored[0]:
        entry.int_domain.min, entry.int_domain.max = 0, max(num_names - 1, 0)
        entry.int_domain.is_categorical = True
    elif feature.kind == FeatureKind.INT64 and feature.dtype:
        _state_integers(entry, feature.dtype)
    elif feature.kind == FeatureKind.BOX:
        entry.float_domain.min, entry.float_domain.max = 0, 1
    elif feature.kind in PICTURES and feature.encoding != "raw":
        entry.image_domain.SetInParent()


def _state_integers(entry: schema_pb2.Feature, dtype: str) -> None:
    if dtype == "bool":
        entry.bool_domain.SetInParent()
    # Its upper limit exceeds int64, so it cannot be stated.
    elif dtype == "uint64":
        entry.int_domain.min = 0
    elif dtype != "int64":
        entry.int_domain.min, entry.int_domain.max = (
            int(np.iinfo(dtype).min),
            int(np.iinfo(dtype).max),
        )
