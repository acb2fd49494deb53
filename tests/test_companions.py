"""The files other tools read, from one schema, and TFX reading records of every kind with its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.public.tfxio import RecordBatchesOptions, TensorFlowDatasetOptions, TFExampleRecord

from schemas.image_classification import image_classification
from shardwright.manifest import Manifest, ShardInfo, SplitInfo
from shardwright.schema import ExampleSchema, Feature, FeatureKind
from shardwright.tfds_features import features_json
from tests.feature_cases import CASES, SHARD, write_dataset
from transforms.publishing.companions import dataset_info_json, schema_pbtxt

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
    found: dict[str, Any] = json.loads(json.dumps(features_json(schema)))["featuresDict"][
        "features"
    ]
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
    classes = {
        name: node["pythonClassName"].rpartition(".")[2]
        for name, node in features_of(make_schema()).items()
    }
    assert classes == {
        "age": "Scalar", "boxes": "Sequence", "id": "Text", "image": "Image", "label": "ClassLabel", "note": "Scalar", "score": "Scalar"
    }  # fmt: skip


def test_slashes_nest() -> None:
    features = features_of(make_schema(feature_names="model-garden"))
    assert set(features["image"]["featuresDict"]["features"]) == {
        "class",
        "encoded",
        "filename",
        "format",
        "height",
        "width",
    }


@pytest.mark.parametrize(
    ("encoding", "shape", "node"),
    [
        (None, (), {"shape": {"dimensions": ["-1", "-1", "3"]}, "dtype": "uint8"}),
        (
            "jpeg",
            (),
            {
                "shape": {"dimensions": ["-1", "-1", "3"]},
                "dtype": "uint8",
                "encodingFormat": "jpeg",
            },
        ),
        (
            "png",
            (4, 6, 3),
            {"shape": {"dimensions": ["4", "6", "3"]}, "dtype": "uint8", "encodingFormat": "png"},
        ),
    ],
)
def test_the_image_says_how_it_is_stored(
    encoding: str | None, shape: tuple[int, ...], node: dict[str, Any]
) -> None:
    assert (
        features_of(make_schema(image_encoding=encoding, image_shape=shape))["image"]["image"]
        == node
    )


def test_raw_pixels_are_a_tensor_of_bytes() -> None:
    node = features_of(make_schema(image_encoding="raw", image_shape=(4, 6, 3)))["image"]
    assert node["tensor"] == {
        "shape": {"dimensions": ["4", "6", "3"]},
        "dtype": "uint8",
        "encoding": "bytes",
    }


def test_dataset_info_has_the_exact_length_of_every_shard() -> None:
    info = dataset_info_json(make_manifest(make_schema()))
    assert (info["name"], info["version"], info["fileFormat"]) == ("pets", "1.2.3", "tfrecord")
    assert {split["name"]: split["shardLengths"] for split in info["splits"]} == {
        "test": ["3"],
        "train": ["3", "2"],
    }
    assert {split["numBytes"] for split in info["splits"]} == {"300", "500"}, (
        "without the 16 bytes of each frame"
    )
    assert info["supervisedKeys"]["tuple"]["items"] == [
        {"featureKey": "image"},
        {"featureKey": "label"},
    ]


@pytest.mark.parametrize(
    "schema",
    [make_schema(feature_names="model-garden"), make_schema().with_class_names(())],
    ids=["nested", "no labels"],
)
def test_pairs_are_left_out_where_tfds_cannot_name_them(schema: ExampleSchema) -> None:
    assert "supervisedKeys" not in dataset_info_json(make_manifest(schema))


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


def entries_of(
    *features: Feature, vocabularies: Mapping[str, tuple[str, ...]] | None = None
) -> dict[str, schema_pb2.Feature]:
    proto = text_format.Parse(
        schema_pbtxt(ExampleSchema(features, vocabularies=vocabularies or {})), schema_pb2.Schema()
    )
    return {feature.name: feature for feature in proto.feature}


@pytest.mark.parametrize(
    ("dtype", "domain"),
    [
        ("", ""), ("int64", ""), ("bool", "bool_domain {}"), ("uint8", "int_domain { min: 0 max: 255 }"),
        ("int16", "int_domain { min: -32768 max: 32767 }"), ("uint32", "int_domain { min: 0 max: 4294967295 }"),
        ("uint64", "int_domain { min: 0 }"),
    ],
)  # fmt: skip
def test_integers_have_the_range_of_their_type(dtype: str, domain: str) -> None:
    entry = entries_of(Feature("x", FeatureKind.INT64, dtype=dtype))["x"]
    wanted = text_format.Parse(
        f'name: "x" type: INT presence {{ min_fraction: 1 min_count: 1 }} shape {{}} {domain}',
        schema_pb2.Feature(),
    )
    assert entry == wanted


@pytest.mark.parametrize(
    ("feature", "wanted"),
    [
        (Feature("x", FeatureKind.FLOAT32, shape=(2, 3)), "type: FLOAT presence { min_fraction: 1 min_count: 1 } "
         "shape { dim { size: 2 } dim { size: 3 } }"),
        (Feature("x", FeatureKind.BOX, shape=(4,)), "type: FLOAT presence { min_fraction: 1 min_count: 1 } shape { dim { size: 4 } } "
         "float_domain { min: 0 max: 1 }"),
        (Feature("x", FeatureKind.BOX, shape=(None, 4)), "type: FLOAT value_count { min: 0 } float_domain { min: 0 max: 1 }"),
        (Feature("x", FeatureKind.MASK), "type: BYTES presence { min_fraction: 1 min_count: 1 } shape {} image_domain {}"),
        (Feature("x", FeatureKind.IMAGE, encoding="tensor"), "type: BYTES presence { min_fraction: 1 min_count: 1 } shape {}"),
        (Feature("x", FeatureKind.TENSOR, shape=(None, 3)), "type: BYTES presence { min_fraction: 1 min_count: 1 } shape {}"),
        (Feature("x", FeatureKind.MULTI_LABEL), "type: INT value_count { min: 0 } int_domain { min: 0 max: 2 is_categorical: true }"),
        (Feature("x", FeatureKind.TOKENS), "type: INT value_count { min: 0 } int_domain { min: 0 max: 2 is_categorical: true }"),
        (Feature("x", FeatureKind.CLASS_LABEL, names=("a", "b")), "type: INT presence { min_fraction: 1 min_count: 1 } shape {} "
         "int_domain { min: 0 max: 2 is_categorical: true }"),
    ],
    ids=lambda value: f"{value.kind}{list(value.shape)}" if isinstance(value, Feature) else "",
)  # fmt: skip
def test_each_kind_has_its_shape_and_range(feature: Feature, wanted: str) -> None:
    entry = entries_of(feature, vocabularies={"x": ("a", "b", "c")})["x"]
    assert entry == text_format.Parse(f'name: "x" {wanted}', schema_pb2.Feature())


def test_a_bag_of_words_is_a_sparse_feature_of_its_two_lists() -> None:
    bag = Feature("text", FeatureKind.BAG_OF_WORDS, keys=("ids", "counts"))
    proto = text_format.Parse(
        schema_pbtxt(ExampleSchema((bag,), vocabularies={"text": ("a", "b")})), schema_pb2.Schema()
    )
    wanted = """
        feature { name: "ids" type: INT value_count { min: 0 } int_domain { min: 0 max: 1 is_categorical: true } }
        feature { name: "counts" type: FLOAT value_count { min: 0 } }
        sparse_feature { name: "text" is_sorted: true index_feature { name: "ids" } value_feature { name: "counts" } }
    """
    assert proto == text_format.Parse(wanted, schema_pb2.Schema())


@pytest.fixture(scope="module")
def tfxio(tmp_path_factory: pytest.TempPathFactory) -> TFExampleRecord:
    root = write_dataset(tmp_path_factory.mktemp("everything"))
    schema = text_format.Parse((root / "schema.pbtxt").read_text(), schema_pb2.Schema())
    return TFExampleRecord([str(root / SHARD)], schema=schema, telemetry_descriptors=["test"])


def test_tfx_reads_every_kind_as_arrow(tfxio: TFExampleRecord) -> None:
    (batch,) = tfxio.RecordBatches(RecordBatchesOptions(batch_size=2, num_epochs=1, shuffle=False))
    assert batch.schema == tfxio.ArrowSchema()
    stored = {key: values for case in CASES.values() for key, values in case.stored.items()}
    assert {key: batch.column(key).to_pylist() for key in batch.schema.names} == {
        key: list(values) for key, values in stored.items()
    }


def test_tfx_reads_arrays_as_arrays_and_bags_of_words_as_one_sparse_tensor(
    tfxio: TFExampleRecord,
) -> None:
    (batch,) = tfxio.TensorFlowDataset(
        TensorFlowDatasetOptions(batch_size=2, num_epochs=1, shuffle=False)
    )
    assert tf.sparse.to_dense(batch["bag"]).numpy().tolist() == [[2, 0, 0, 1], [0, 0, 0, 0]]
    assert tf.sparse.to_dense(batch["tags"]).numpy().tolist() == [[0, 2], [1, 1]]
    assert batch["pose"].shape == (2, 2, 3)
    assert batch["crop"].numpy().tolist() == [[0, 0.25, 0.5, 1], [0, 0, 1, 1]]
    assert not {"bag/indices", "bag/values", "tag_ids", "tag_counts"} & batch.keys()
