"""Judges from outside: tf.data, Beam and TFX read what is built, with the schema.pbtxt beside it."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pytest
import tensorflow as tf
from apache_beam.testing.util import assert_that, equal_to
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.public.tfxio import RecordBatchesOptions, TFExampleRecord

import shardwright as sw
from tests.small_datasets import BUILDS, NUM_IMAGES, ROWS, Datasets

ROWS_BY_ID = {str(row["path"]): row for row in ROWS}
TF_TYPES = {schema_pb2.BYTES: tf.string, schema_pb2.INT: tf.int64, schema_pb2.FLOAT: tf.float32}
ARROW_TYPES = {
    schema_pb2.BYTES: pa.large_binary(),
    schema_pb2.INT: pa.int64(),
    schema_pb2.FLOAT: pa.float32(),
}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Datasets:
    return Datasets(tmp_path_factory)


def read_schema(dataset: str) -> schema_pb2.Schema:
    return text_format.Parse(
        (Path(dataset) / "schema.pbtxt").read_text("utf-8"), schema_pb2.Schema()
    )


def tfxio_of(datasets: Datasets, name: str) -> TFExampleRecord:
    return TFExampleRecord(
        datasets.shards(name), schema=read_schema(datasets[name]), telemetry_descriptors=["test"]
    )


def test_plain_tf_data_reads_with_the_spec_of_schema_pbtxt(datasets: Datasets) -> None:
    schema = read_schema(datasets["tabled"])
    spec = {
        feature.name: tf.io.FixedLenFeature((), TF_TYPES[feature.type])
        if feature.HasField("shape")
        else tf.io.VarLenFeature(TF_TYPES[feature.type])
        for feature in schema.feature
    }

    records = tf.data.TFRecordDataset(datasets.shards("tabled"))
    examples = [tf.io.parse_single_example(record, spec) for record in records]

    assert {example["id"].numpy().decode() for example in examples} == ROWS_BY_ID.keys()
    for example in examples:
        row = ROWS_BY_ID[example["id"].numpy().decode()]
        assert example["image"].numpy() == (datasets.root / "table" / str(row["path"])).read_bytes()
        assert example["count"].numpy() == row["count"]
        assert example["scores"].values.numpy().tolist() == row["scores"]


def test_an_example_holds_the_declared_features_and_no_more(datasets: Datasets) -> None:
    for name in BUILDS:
        declared = {feature.name for feature in sw.open(datasets[name]).schema.features}
        for record in tf.data.TFRecordDataset(datasets.shards(name)).as_numpy_iterator():
            assert set(tf.train.Example.FromString(record).features.feature) == declared


def test_beam_reads_the_same_records(datasets: Datasets) -> None:
    records = list(tf.data.TFRecordDataset(datasets.shards("mixed")).as_numpy_iterator())

    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        read = pipeline | beam.io.ReadFromTFRecord(
            f"{datasets['mixed']}/mixed-*.tfrecord-*", validate=True
        )
        assert_that(read, equal_to(records))


@pytest.mark.parametrize("name", list(BUILDS))
def test_schema_pbtxt_states_type_shape_and_classes(datasets: Datasets, name: str) -> None:
    found = {feature.name: feature for feature in read_schema(datasets[name]).feature}

    declared = sw.open(datasets[name]).schema
    assert list(found) == [feature.name for feature in declared.features]
    for feature in declared.features:
        assert found[feature.name].HasField("shape") != feature.is_list
    if declared.label is not None:
        domain = found[declared.label.name].int_domain
        assert (domain.min, domain.max, domain.is_categorical) == (0, 2, True)
    assert found[declared.image.name].HasField("image_domain") == (name != "raw")


@pytest.mark.parametrize("name", list(BUILDS))
def test_tfxio_gives_arrow_batches_with_the_columns_of_the_schema(
    datasets: Datasets, name: str
) -> None:
    tfxio = tfxio_of(datasets, name)
    types = {
        feature.name: ARROW_TYPES[feature.type] for feature in read_schema(datasets[name]).feature
    }

    batches = list(tfxio.RecordBatches(RecordBatchesOptions(batch_size=4, num_epochs=1)))

    assert sum(batch.num_rows for batch in batches) == sw.open(datasets[name]).num_records
    for batch in batches:
        assert batch.schema == tfxio.ArrowSchema()
        assert {field.name: field.type.value_type for field in batch.schema} == types
        assert not any(column.null_count for column in batch.columns)


def test_tfxio_values_are_those_of_the_table(datasets: Datasets) -> None:
    batches = tfxio_of(datasets, "tabled").RecordBatches(
        RecordBatchesOptions(batch_size=10, num_epochs=1)
    )
    found = {row["id"][0].decode(): row for batch in batches for row in batch.to_pylist()}

    assert found.keys() == ROWS_BY_ID.keys()
    for name, row in ROWS_BY_ID.items():
        assert [found[name][key] for key in ("count", "good", "ratio")] == [
            [row["count"]],
            [row["good"]],
            [row["ratio"]],
        ]
        assert (found[name]["boxes"], found[name]["scores"]) == (row["boxes"], row["scores"])
        assert [tag.decode() for tag in found[name]["tags"]] == row["tags"]


def test_tfxio_in_a_beam_pipeline(datasets: Datasets) -> None:
    tfxio = tfxio_of(datasets, "mixed")

    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        num_rows = (
            pipeline
            | tfxio.BeamSource(batch_size=5)
            | beam.Map(lambda batch: batch.num_rows)
            | beam.CombineGlobally(sum)
        )
        assert_that(num_rows, equal_to([NUM_IMAGES]))


def test_tfxio_infers_dense_and_ragged_tensors(datasets: Datasets) -> None:
    kinds = {
        name: proto.WhichOneof("kind")
        for name, proto in tfxio_of(datasets, "tabled").TensorRepresentations().items()
    }

    lists = {"boxes", "scores", "tags"}
    assert {name for name, kind in kinds.items() if kind == "dense_tensor"} == kinds.keys() - lists
    assert {kinds[name] for name in lists} <= {"varlen_sparse_tensor", "ragged_tensor"}
