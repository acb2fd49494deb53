"""Other readers: TensorFlow and TFX read datasets with the schema.pbtxt beside them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.public.tfxio import RecordBatchesOptions, TFExampleRecord

import shardwright as sw
from tests.support.small_datasets import ROWS, Datasets, datasets_fixture  # noqa: F401

ROWS_BY_ID = {str(row["path"]): row for row in ROWS}
ARROW_TYPES = {
    schema_pb2.BYTES: pa.large_binary(), schema_pb2.INT: pa.int64(),
    schema_pb2.FLOAT: pa.float32(),
}  # fmt: skip


# One dataset of each form of schema: the others differ in their images alone.
NAMES = ["tabled", "garden", "unlabeled", "raw", "jpeg"]


def read_schema(dataset: str) -> schema_pb2.Schema:
    text = (Path(dataset) / "schema.pbtxt").read_text("utf-8")
    return text_format.Parse(text, schema_pb2.Schema())


def tfxio_of(datasets: Datasets, name: str) -> TFExampleRecord:
    schema = read_schema(datasets[name])
    return TFExampleRecord(datasets.shards(name), schema=schema, telemetry_descriptors=["test"])


@pytest.mark.long_but_first
@pytest.mark.parametrize("name", NAMES)
def test_records_and_schema_pbtxt(datasets: Datasets, name: str) -> None:
    found = {feature.name: feature for feature in read_schema(datasets[name]).feature}
    declared = sw.open(datasets[name]).schema
    assert list(found) == [feature.name for feature in declared.features]
    for feature in declared.features:
        assert found[feature.name].HasField("shape") != feature.is_list
    if declared.label is not None:
        domain = found[declared.label.name].int_domain
        assert (domain.min, domain.max, domain.is_categorical) == (0, 2, True)
    assert found[declared.image.name].HasField("image_domain") == (name != "raw")
    for record in tf.data.TFRecordDataset(datasets.shards(name)).as_numpy_iterator():
        assert tf.train.Example.FromString(record).features.feature.keys() == found.keys()


@pytest.mark.long_but_first
@pytest.mark.parametrize("name", NAMES)
def test_tfxio_gives_the_columns_of_the_schema(datasets: Datasets, name: str) -> None:
    tfxio, schema = tfxio_of(datasets, name), read_schema(datasets[name])
    types = {feature.name: ARROW_TYPES[feature.type] for feature in schema.feature}
    batches = list(tfxio.RecordBatches(RecordBatchesOptions(batch_size=4, num_epochs=1)))
    assert sum(batch.num_rows for batch in batches) == sw.open(datasets[name]).num_records
    for batch in batches:
        assert batch.schema == tfxio.ArrowSchema()
        assert {field.name: field.type.value_type for field in batch.schema} == types
        assert not any(column.null_count for column in batch.columns)


def test_tfxio_values_are_those_of_the_table(datasets: Datasets) -> None:
    options = RecordBatchesOptions(batch_size=10, num_epochs=1)
    batches = tfxio_of(datasets, "tabled").RecordBatches(options)
    found = {row["id"][0].decode(): row for batch in batches for row in batch.to_pylist()}
    assert found.keys() == ROWS_BY_ID.keys()
    for name, row in ROWS_BY_ID.items():
        assert all(found[name][key] == [row[key]] for key in ("count", "good", "ratio"))
        assert all(found[name][key] == row[key] for key in ("boxes", "scores"))
        assert [tag.decode() for tag in found[name]["tags"]] == row["tags"]
