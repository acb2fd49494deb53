"""Records without an image, written from Python and read back by TensorFlow's own parser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf

import shardwright as sw
from shardwright.errors import UsageError
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind

ROWS = 12
X = np.arange(ROWS * 3, dtype=np.float32).reshape(ROWS, 3)
Y = np.arange(ROWS) * 2
OWN = ExampleSchema(
    (Feature("X", FeatureKind.FLOAT32, shape=(3,)), Feature("y", FeatureKind.INT64))
)
RECORDS = [{"X": row, "y": int(number)} for row, number in zip(X, Y, strict=True)]


@pytest.mark.parametrize(
    ("records", "schema"),
    [
        (RECORDS, None),
        (RECORDS, "records"),
        (RECORDS, OWN),
        ({"X": X, "y": Y}, None),
        (pa.table({"X": list(X), "y": Y}), None),
        (pd.DataFrame({"X": list(X), "y": Y}), None),
    ],
    ids=["inferred", "ready", "own", "arrays", "arrow", "pandas"],
)
def test_records_without_an_image(tmp_path: Path, records: Any, schema: Any) -> None:
    dataset = sw.write(records, str(tmp_path / "out"), schema=schema, name="plain")

    assert str(dataset).startswith("Dataset('plain', records {train: 12}, features {")
    assert not list((tmp_path / "out" / "spool").glob("*"))
    shards = [str(path) for path in (tmp_path / "out").glob("*.tfrecord-*")]
    spec = {"X": tf.io.FixedLenFeature([3], tf.float32), "y": tf.io.FixedLenFeature([], tf.int64)}
    parsed = [tf.io.parse_single_example(data, spec) for data in tf.data.TFRecordDataset(shards)]
    found = sorted((int(one["y"]), one["X"].numpy().tolist()) for one in parsed)
    assert found == [(int(number), row.tolist()) for row, number in zip(X, Y, strict=True)]


@pytest.mark.parametrize(
    ("records", "options", "message"),
    [
        ((X, Y), {}, "for records without images, give --schema records"),
        ({"image": "a.png"}, {}, "a dict of arrays, got one dict of single values"),
        ([{1: 2}], {}, "the keys of records must be texts, got 1: rename it"),
        ({"X": 1}, {}, "a dict of arrays, got one dict of single values: put it in a list"),
        (RECORDS, {"schema": "records", "image_column": "X"}, "--image-column"),
        (RECORDS, {"schema": "records", "encode": "jpeg"}, "is for images, and --schema has none"),
    ],
)
def test_what_records_without_an_image_cannot_have(
    tmp_path: Path, records: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        sw.write(records, str(tmp_path / "out"), **options)
