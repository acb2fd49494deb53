"""The files beside the shards: TFX reads with them, and `verify` checks them by the manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.public.tfxio import RecordBatchesOptions, TensorFlowDatasetOptions, TFExampleRecord

from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind
from shardwright.format.splits import ShardInfo, SplitInfo
from shardwright.schemas.ready import image_classification
from shardwright.storage.folder import Folder
from shardwright.transforms.publish.companions import dataset_info_json, schema_pbtxt
from tests.support.feature_cases import CASES, MANIFEST, SHARD, write_dataset
from tests.support.judged_companions import check_companions

K = FeatureKind
EXTRAS = (
    Feature("age", K.INT64), Feature("score", K.FLOAT32), Feature("note", K.BYTES),
    Feature("boxes", K.FLOAT32, shape=(None,)),
)  # fmt: skip


def make_schema(**options: Any) -> ExampleSchema:
    return image_classification(extras=EXTRAS, **options).with_class_names(("cat", "dog"))


def make_manifest(schema: ExampleSchema) -> Manifest:
    shards = (ShardInfo(0, 3, 348, 1, "d", 0, 0), ShardInfo(1, 2, 232, 1, "d", 0, 0))
    splits = {"test": SplitInfo("test", shards[:1]), "train": SplitInfo("train", shards)}
    return Manifest("pets", "1.2.3", schema, splits, {}, 8, {}, "f", {})


def test_dataset_info_has_the_exact_length_of_every_shard() -> None:
    info = dataset_info_json(make_manifest(make_schema()))
    assert (info["name"], info["version"], info["fileFormat"]) == ("pets", "1.2.3", "tfrecord")
    # numBytes are without the 16 bytes of each frame.
    splits = [(split["name"], split["shardLengths"], split["numBytes"]) for split in info["splits"]]
    assert splits == [("test", ["3"], "300"), ("train", ["3", "2"], "500")]
    pair = [{"featureKey": "image"}, {"featureKey": "label"}]
    assert info["supervisedKeys"]["tuple"]["items"] == pair


@pytest.mark.parametrize("schema", [
    make_schema(feature_names="model-garden"), make_schema().with_class_names(()),
], ids=["nested", "no labels"])  # fmt: skip
def test_pairs_are_left_out_where_tfds_cannot_name_them(schema: ExampleSchema) -> None:
    assert "supervisedKeys" not in dataset_info_json(make_manifest(schema))


def test_the_schema_for_tfx_has_every_feature_with_its_type() -> None:
    by_name = entries_of(make_schema())
    types = {name: schema_pb2.FeatureType.Name(entry.type) for name, entry in by_name.items()}
    assert types == {
        "image": "BYTES", "id": "BYTES", "label": "INT", "age": "INT", "score": "FLOAT",
        "note": "BYTES", "boxes": "FLOAT",
    }  # fmt: skip
    assert (by_name["label"].int_domain.min, by_name["label"].int_domain.max) == (0, 1)
    assert by_name["image"].HasField("image_domain")
    assert by_name["boxes"].HasField("value_count")
    assert not by_name["boxes"].HasField("shape")
    assert by_name["age"].presence.min_fraction == 1.0


def proto_of(schema: ExampleSchema) -> schema_pb2.Schema:
    text = schema_pbtxt(schema)
    proto = text_format.Parse(text, schema_pb2.Schema())
    assert text == text_format.MessageToString(proto)
    return proto


def test_names_are_escaped() -> None:
    names = ['two "words"', "it's", "back\\slash", "äöü 日本", "a/b"]
    schema = ExampleSchema(tuple(Feature(name, K.INT64) for name in names))
    assert list(entries_of(schema)) == names


def entries_of(schema: ExampleSchema) -> dict[str, schema_pb2.Feature]:
    return {feature.name: feature for feature in proto_of(schema).feature}


INT64 = K.INT64
ONE = "presence { min_fraction: 1 min_count: 1 }"
SCALAR = f"{ONE} shape {{}}"
ANY = "value_count { min: 0 }"
CLASSES = "int_domain { min: 0 max: 2 is_categorical: true }"


def x(kind: FeatureKind, **options: Any) -> Feature:
    return Feature("x", kind, **options)


@pytest.mark.parametrize(("feature", "wanted"), [
    (x(INT64), f"type: INT {SCALAR}"),
    (x(INT64, dtype="int64"), f"type: INT {SCALAR}"),
    (x(INT64, dtype="bool"), f"type: INT {SCALAR} bool_domain {{}}"),
    (x(INT64, dtype="uint8"), f"type: INT {SCALAR} int_domain {{ min: 0 max: 255 }}"),
    (x(INT64, dtype="int16"), f"type: INT {SCALAR} int_domain {{ min: -32768 max: 32767 }}"),
    (x(INT64, dtype="uint32"), f"type: INT {SCALAR} int_domain {{ min: 0 max: 4294967295 }}"),
    (x(INT64, dtype="uint64"), f"type: INT {SCALAR} int_domain {{ min: 0 }}"),
    (x(K.FLOAT32, shape=(2, 3)),
     f"type: FLOAT {ONE} shape {{ dim {{ size: 2 }} dim {{ size: 3 }} }}"),
    (x(K.BOX, shape=(4,)),
     f"type: FLOAT {ONE} shape {{ dim {{ size: 4 }} }} float_domain {{ min: 0 max: 1 }}"),
    (x(K.BOX, shape=(None, 4)), f"type: FLOAT {ANY} float_domain {{ min: 0 max: 1 }}"),
    (x(K.MASK), f"type: BYTES {SCALAR} image_domain {{}}"),
    (x(K.TENSOR, shape=(None, 3)), f"type: BYTES {SCALAR}"),
    (x(K.MULTI_LABEL), f"type: INT {ANY} {CLASSES}"),
    (x(K.TOKENS), f"type: INT {ANY} {CLASSES}"),
    (x(K.CLASS_LABEL, names=("a", "b")), f"type: INT {SCALAR} {CLASSES}"),
], ids=str)  # fmt: skip
def test_each_kind_has_its_shape_and_range(feature: Feature, wanted: str) -> None:
    vocabularies = {} if feature.kind == INT64 else {"x": ("a", "b", "c")}
    entry = entries_of(ExampleSchema((feature,), vocabularies=vocabularies))["x"]
    assert entry == text_format.Parse(f'name: "x" {wanted}', schema_pb2.Feature())


def test_a_bag_of_words_is_a_sparse_feature_of_its_two_lists() -> None:
    bag = Feature("text", FeatureKind.BAG_OF_WORDS, keys=("ids", "counts"))
    wanted = """
        feature { name: "ids" type: INT value_count { min: 0 }
                  int_domain { min: 0 max: 1 is_categorical: true } }
        feature { name: "counts" type: FLOAT value_count { min: 0 } }
        sparse_feature { name: "text" is_sorted: true
                         index_feature { name: "ids" } value_feature { name: "counts" } }
    """
    proto = proto_of(ExampleSchema((bag,), vocabularies={"text": ("a", "b")}))
    assert proto == text_format.Parse(wanted, schema_pb2.Schema())


@pytest.fixture(scope="module")
def tfxio(tmp_path_factory: pytest.TempPathFactory) -> TFExampleRecord:
    root = write_dataset(tmp_path_factory.mktemp("everything"))
    schema = text_format.Parse((root / "schema.pbtxt").read_text(), schema_pb2.Schema())
    return TFExampleRecord([str(root / SHARD)], schema=schema, telemetry_descriptors=["test"])


def test_tfx_reads_every_kind_as_arrow(tfxio: TFExampleRecord) -> None:
    (batch,) = tfxio.RecordBatches(RecordBatchesOptions(batch_size=2, num_epochs=1, shuffle=False))
    assert batch.schema == tfxio.ArrowSchema()
    stored = [item for case in CASES.values() for item in case.stored.items()]
    assert batch.to_pydict() == {key: list(values) for key, values in stored}


def test_tfx_reads_arrays_and_sparse_bags_of_words(tfxio: TFExampleRecord) -> None:
    options = TensorFlowDatasetOptions(batch_size=2, num_epochs=1, shuffle=False)
    (batch,) = tfxio.TensorFlowDataset(options)
    assert tf.sparse.to_dense(batch["bag"]).numpy().tolist() == [[2, 0, 0, 1], [0, 0, 0, 0]]
    assert tf.sparse.to_dense(batch["tags"]).numpy().tolist() == [[0, 2], [1, 1]]
    assert batch["pose"].shape == (2, 2, 3)
    assert batch["crop"].numpy().tolist() == [[0, 0.25, 0.5, 1], [0, 0, 1, 1]]
    assert not {"bag/indices", "bag/values", "tag_ids", "tag_counts"} & batch.keys()


def faults_of(root: Path) -> list[tuple[str, str]]:
    return [(fault.file, fault.what) for fault in check_companions(Folder(str(root)), MANIFEST)]


def test_a_dataset_of_every_kind_is_sound(tmp_path: Path) -> None:
    assert faults_of(write_dataset(tmp_path)) == []
    assert read_manifest(Folder(str(tmp_path))) == MANIFEST


OBJECTS = ("objects", "sequence", "feature", "featuresDict", "features")


@pytest.mark.parametrize(("path", "change", "what"), [
    (("crop", "boundingBox"), {"bboxFormat": "XYXY"},
     'feature \'crop\' is boundingBox {"bboxFormat": "XYXY"'),
    (("uint8", "tensor"), {"dtype": "int8"}, "feature 'uint8' is tensor {\"dtype\": \"int8\""),
    (("pose", "tensor", "shape"), {"dimensions": ["3", "2"]}, "feature 'pose' is tensor"),
    (("mask", "image", "shape"), {"dimensions": ["-1", "-1", "3"]}, "feature 'mask' is image"),
    (("left", "image"), {"encodingFormat": "jpeg"}, "feature 'left' is image"),
    (("raw", "tensor"), {"encoding": "none"}, "feature 'raw' is tensor"),
    (("scenes", "sequence", "feature", "classLabel"), {"numClasses": "3"},
     "feature 'scenes' is list of class_label of 3, the schema says list of class_label of 2"),
    (("three", "sequence"), {"length": "4"},
     "is list of 4 class_label of 2, the schema says list of 3 class_label of 2"),
    ((*OBJECTS, "label", "classLabel"), {"numClasses": "9"},
     "feature 'objects/label' is class_label of 9 in list of objects, the schema says class_label "
     "of 2 in list of objects"),
    (("hands", "sequence"), {"length": "-1"}, " in list of hands, the schema says "),
    ((), {"extra": {"text": {}, "pythonClassName": "Text"}},
     "feature 'extra' is text, the schema says it does not exist"),
    ((), {"bag": {"text": {}}}, "feature 'bag/indices' is missing, the schema says list of tensor"),
])  # fmt: skip
def test_features_json(path: tuple[str, ...], change: Any, what: str, tmp_path: Path) -> None:
    file = write_dataset(tmp_path) / "features.json"
    content = json.loads(file.read_text())
    node = content["featuresDict"]["features"]
    for part in path:
        node = node[part]
    node.update(change)
    file.write_text(json.dumps(content))
    found = faults_of(tmp_path)
    assert {name for name, _ in found} == {"features.json"}
    assert any(what in message for _, message in found), found


@pytest.mark.parametrize(("name", "content", "what"), [
    ("words.vocab.txt", None, "the file is missing"),
    ("words.vocab.txt", b"a\nb\n", "the 2 words in the file are not the 3 of the manifest"),
    ("bag.vocab.txt", b"a\nb\nc\nD\n", "the 4 words in the file are not the 4 of the manifest"),
    ("objects-label.labels.txt", None, "the file is missing"),
    ("scenes.labels.txt", b"outdoor\nindoor\n",
     "the 2 classes in the file are not the 2 of the manifest"),
    ("weather-sky.labels.txt", b"\xff\n", "the file cannot be read: "),
])  # fmt: skip
def test_names_files(name: str, content: bytes | None, what: str, tmp_path: Path) -> None:
    path = write_dataset(tmp_path) / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    ((file, message),) = faults_of(tmp_path)
    assert file == name
    assert message.startswith(what)
