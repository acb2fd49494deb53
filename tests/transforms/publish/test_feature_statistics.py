"""Statistics of features: values, characters, bytes and items of records that are kept."""

from __future__ import annotations

import pyarrow as pa

from shardwright.format.schema import ExampleSchema, Feature, FeatureKind
from shardwright.format.stats_keys import FEATURES
from shardwright.transforms.publish.feature_statistics import describe_features

SCHEMA = ExampleSchema(
    (
        Feature("caption", FeatureKind.TEXT),
        Feature("code", FeatureKind.BYTES),
        Feature("age", FeatureKind.INT64),
        Feature("boxes", FeatureKind.BOX, shape=(None, 4)),
        Feature("point", FeatureKind.FLOAT32, shape=(2,)),
    )
)
ROWS = pa.RecordBatch.from_pydict(
    {
        "x/caption": pa.array(["äö".encode(), b"", b"abc"], pa.binary()),
        "x/code": pa.array([b"\xff\xfe", b"1", b"12345"], pa.binary()),
        "x/age": pa.array([7, 0, -3], pa.int64()),
        "x/boxes": pa.array([[0.0] * 8, [], [0.5] * 4], pa.list_(pa.float32())),
        "x/point": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32())),
    }
)


def test_numbers_and_lengths() -> None:
    found = describe_features(ROWS, SCHEMA)[FEATURES]
    told = {
        name: (part["of"], part["min"], part["max"], part["sum"]) for name, part in found.items()
    }
    assert told == {
        "caption": ("characters", 0, 3, 5),
        "code": ("bytes", 1, 5, 8),
        "age": ("values", -3, 7, 4),
        "boxes": ("items", 0, 2, 3),
    }


def test_text_that_is_not_utf8_counts_its_bytes() -> None:
    rows = ROWS.set_column(0, "x/caption", pa.array([b"\xff", b"", b"abc"], pa.binary()))
    assert describe_features(rows, SCHEMA)[FEATURES]["caption"]["sum"] == 4


def test_no_columns_no_statistics() -> None:
    assert describe_features(ROWS.select([]), SCHEMA) == {}
    assert describe_features(ROWS.slice(0, 0), SCHEMA) == {}
