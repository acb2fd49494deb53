"""The files other tools read, from one schema; `test_outside_readers` has those tools read them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from schemas.image_classification import image_classification
from shardwright.manifest import Manifest, ShardInfo, SplitInfo
from shardwright.schema import ExampleSchema, Feature, FeatureKind
from transforms.companions import dataset_info_json, features_json, labels_text, schema_pbtxt

EXTRAS = (
    Feature("age", FeatureKind.INT64),
    Feature("score", FeatureKind.FLOAT32),
    Feature("note", FeatureKind.BYTES),
    Feature("boxes", FeatureKind.FLOAT32, shape=(None,)),
)


def make_schema(**options: Any) -> ExampleSchema:
    return image_classification(extras=EXTRAS, **options).with_class_names(("cat", "dog"))


def make_manifest(schema: ExampleSchema) -> Manifest:
    shards = (ShardInfo(0, 3, 348, 1, "d"), ShardInfo(1, 2, 232, 1, "d"))
    splits = {"test": SplitInfo("test", shards[:1]), "train": SplitInfo("train", shards)}
    return Manifest("pets", "1.2.3", schema, splits, {}, 8, {}, "f", {})


def features_of(schema: ExampleSchema) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(features_json(schema)))["featuresDict"]["features"]
    return found


def nodes_of(node: dict[str, Any]) -> list[dict[str, Any]]:
    inner = [*node.get("featuresDict", {}).get("features", {}).values()]
    inner += [node["sequence"]["feature"]] if "sequence" in node else []
    return [node, *(found for child in inner for found in nodes_of(child))]


@pytest.mark.parametrize("feature_names", ["tfds", "model-garden"])
def test_every_node_of_features_json_names_its_class(feature_names: str) -> None:
    for node in nodes_of(features_json(make_schema(feature_names=feature_names))):
        assert node["pythonClassName"].startswith("tensorflow_datasets.core.features.")


def test_each_kind_of_feature_has_its_own_class() -> None:
    classes = {name: node["pythonClassName"].rpartition(".")[2] for name, node in features_of(make_schema()).items()}
    assert classes == {
        "age": "Scalar", "boxes": "Sequence", "id": "Text", "image": "Image", "label": "ClassLabel", "note": "Scalar", "score": "Scalar"
    }  # fmt: skip


def test_slashes_nest() -> None:
    features = features_of(make_schema(feature_names="model-garden"))
    assert set(features["image"]["featuresDict"]["features"]) == {"class", "encoded", "filename", "format", "height", "width"}


@pytest.mark.parametrize(
    ("encoding", "shape", "node"),
    [
        (None, (), {"shape": {"dimensions": ["-1", "-1", "3"]}, "dtype": "uint8"}),
        ("jpeg", (), {"shape": {"dimensions": ["-1", "-1", "3"]}, "dtype": "uint8", "encodingFormat": "jpeg"}),
        ("png", (4, 6, 3), {"shape": {"dimensions": ["4", "6", "3"]}, "dtype": "uint8", "encodingFormat": "png"}),
    ],
)
def test_the_image_says_how_it_is_stored(encoding: str | None, shape: tuple[int, ...], node: dict[str, Any]) -> None:
    assert features_of(make_schema(image_encoding=encoding, image_shape=shape))["image"]["image"] == node


def test_raw_pixels_are_a_tensor_of_bytes() -> None:
    node = features_of(make_schema(image_encoding="raw", image_shape=(4, 6, 3)))["image"]
    assert node["tensor"] == {"shape": {"dimensions": ["4", "6", "3"]}, "dtype": "uint8", "encoding": "bytes"}


def test_dataset_info_has_the_exact_length_of_every_shard() -> None:
    info = dataset_info_json(make_manifest(make_schema()))
    assert (info["name"], info["version"], info["fileFormat"]) == ("pets", "1.2.3", "tfrecord")
    assert {split["name"]: split["shardLengths"] for split in info["splits"]} == {"test": ["3"], "train": ["3", "2"]}
    assert {split["numBytes"] for split in info["splits"]} == {"300", "500"}, "without the 16 bytes of each frame"
    assert info["supervisedKeys"]["tuple"]["items"] == [{"featureKey": "image"}, {"featureKey": "label"}]


@pytest.mark.parametrize(
    "schema", [make_schema(feature_names="model-garden"), make_schema().with_class_names(())], ids=["nested", "no labels"]
)
def test_pairs_are_left_out_where_tfds_cannot_name_them(schema: ExampleSchema) -> None:
    assert "supervisedKeys" not in dataset_info_json(make_manifest(schema))


def test_class_names_are_one_a_line_in_label_order() -> None:
    assert labels_text(make_schema()) == "cat\ndog\n"


def test_the_schema_for_tfx_has_every_feature_with_its_type() -> None:
    proto = text_format.Parse(schema_pbtxt(make_schema()), schema_pb2.Schema())
    types = {feature.name: schema_pb2.FeatureType.Name(feature.type) for feature in proto.feature}
    assert types == {
        "image": "BYTES", "id": "BYTES", "label": "INT", "age": "INT", "score": "FLOAT", "note": "BYTES", "boxes": "FLOAT"
    }  # fmt: skip
    by_name = {feature.name: feature for feature in proto.feature}
    assert (by_name["label"].int_domain.min, by_name["label"].int_domain.max) == (0, 1)
    assert by_name["image"].HasField("image_domain")
    assert by_name["boxes"].HasField("value_count")
    assert not by_name["boxes"].HasField("shape")
    assert by_name["age"].presence.min_fraction == 1.0
