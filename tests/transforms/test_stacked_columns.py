"""Columns of one type are worked on as one array: each gets what it gets alone."""

from __future__ import annotations

import pyarrow as pa
import pytest

from shardwright.format.schema import ExampleSchema, Feature, FeatureKind
from shardwright.transforms import references as batches
from shardwright.transforms.features.rows import FeatureHashes, index_references
from shardwright.transforms.plan.packing import known_sizes
from shardwright.transforms.publish.feature_statistics import describe_features
from shardwright.transforms.references import HASH, stacked
from shardwright.transforms.rejects import Reject
from shardwright.transforms.write.examples import ExampleEncoder
from tests.support.helpers import references

TEXT, BYTES = FeatureKind.TEXT, FeatureKind.BYTES
INT64, FLOAT32 = FeatureKind.INT64, FeatureKind.FLOAT32
COLUMNS = {
    "text": (TEXT, pa.array(["one", None, "three"])),
    "number": (INT64, pa.array([1, 2, 3])),
    "not UTF-8": (TEXT, pa.array([b"\xff", b"", b"22"])),
    "long text": (TEXT, pa.array(["", "zwölf", "x" * 600])),
    "missing number": (INT64, pa.array([4, 5, None])),
    "float": (FLOAT32, pa.array([0.5, None, float("inf")])),
    "list": (INT64, pa.array([[1, 2], [], None], pa.list_(pa.int64()))),
    "zero": (INT64, pa.array([0, 8, 9])),
    "another list": (INT64, pa.array([[3], [4], [5, 6]], pa.list_(pa.int64()))),
    "bytes": (BYTES, pa.array([b"1", b"\xc3\xa4", b"333"])),
    "more bytes": (BYTES, pa.array([None, b"", b"4"])),
    "UTF-8": (TEXT, pa.array([b"\xc3\xa4", b"", b"22"])),
    "no number": (INT64, pa.array(["1", "2", "three"])),
    "words": (TEXT, pa.array(["ä", "b", "c"]).dictionary_encode()),
}


def outcome(num_rows: int) -> tuple[object, ...]:
    """Return what columns become: values, statistics, sizes, entries of examples, rejects."""
    schema = ExampleSchema(
        tuple(
            Feature(name, kind, shape=(None,) if "list" in name else ())
            for name, (kind, _) in COLUMNS.items()
        )
    )
    extras = {f"x/{name}": column.slice(0, num_rows) for name, (_, column) in COLUMNS.items()}
    batch = references(["a", "b", "c"][:num_rows], extras=extras)
    settled = list(FeatureHashes(schema).settle(batch))
    [rows] = [part for part in settled if isinstance(part, pa.RecordBatch)]
    [final] = index_references(rows, schema, {})
    assert isinstance(final, pa.RecordBatch)
    return (
        str(final.to_pylist()),
        str(describe_features(final, schema)),
        known_sizes(final.drop_columns([HASH])).to_pylist(),
        ExampleEncoder(schema).encode_known(final),
        [part for part in settled if isinstance(part, Reject)],
    )


@pytest.mark.parametrize("num_rows", [1, 3])
def test_each_column_gets_what_it_gets_alone(
    num_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = outcome(num_rows)
    monkeypatch.setattr(batches, "_STACKED_BYTES", -1)
    assert together == outcome(num_rows)


def test_long_columns_stay_alone() -> None:
    columns = [pa.array([1, 2]), pa.array(["a", "b"]), pa.array([3, 4]), pa.array(range(10_000))]
    found = [(numbers, len(whole)) for numbers, whole in stacked(columns)]
    assert found == [([0, 2], 4), ([3], 10_000), ([1], 2)]
