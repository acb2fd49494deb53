"""Columns hold what TensorFlow's parser makes of the same records."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.example import varint
from shardwright.manifest import read_manifest
from shardwright.reader.class_encodings import MultiHot, OneHot
from shardwright.reader.columns import ColumnReader
from shardwright.reader.encodings import Text
from shardwright.reader.list_encodings import Dense, Sparse
from shardwright.records import scan_records
from shardwright.schema import ExampleSchema, FeatureKind
from shardwright.storage import Folder
from tests import damage
from tests.column_records import RECORD, SCHEMA, fill, kindless_entry

FLOATS = st.floats(width=32, allow_nan=False)
ROWS = st.fixed_dictionaries(
    {
        "image": st.binary(min_size=1, max_size=300).map(lambda value: [value]),
        "id": st.text(st.characters(codec="utf-8"), max_size=20).map(lambda text: [text.encode()]),
        "label": st.integers(0, 2).map(lambda value: [value]),
        "count": st.integers(-(2**63), 2**63 - 1).map(lambda value: [value]),
        "ratio": FLOATS.map(lambda value: [value]),
        "caption": st.binary(max_size=20).map(lambda value: [value]),
        "boxes": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
        "scores": st.lists(FLOATS, max_size=4),
        "tags": st.lists(st.binary(max_size=5), max_size=3),
    }
)


@given(st.lists(ROWS, min_size=1, max_size=3), st.data())
@settings(max_examples=30, deadline=None)  # importing TensorFlow is part of the first
def test_it_is_what_tensorflow_parses(rows: list[dict[str, Any]], draw: st.DataObject) -> None:
    """Keys in any order; some of them twice, where the last holds (but for TensorFlow not a last one of no kind)."""
    records = []
    for row in rows:
        keys = draw.draw(st.permutations(list(row)))
        stale = b"".join(
            damage.entry(key, RECORD[key])
            for key in draw.draw(st.lists(st.sampled_from(keys), max_size=2))
            if row[key]
        )
        body = stale + b"".join(
            damage.entry(key, row[key]) if row[key] else kindless_entry(key) for key in keys
        )
        records.append(b"\x0a" + varint(len(body)) + body)
    assert_as_tensorflow(SCHEMA, records)


@functools.cache
def tensorflow_parser(schema: ExampleSchema) -> Callable[[bytes], dict[str, Any]]:
    import tensorflow as tf

    dtypes = {
        FeatureKind.CLASS_LABEL: tf.int64,
        FeatureKind.INT64: tf.int64,
        FeatureKind.FLOAT32: tf.float32,
    }
    spec = {}
    for feature in schema.features:
        dtype = dtypes.get(feature.kind, tf.string)
        spec[feature.name] = (
            tf.io.RaggedFeature(dtype) if feature.is_list else tf.io.FixedLenFeature((), dtype)
        )
    parse = tf.function(
        lambda data: tf.io.parse_single_example(data, spec),
        input_signature=[tf.TensorSpec((), tf.string)],
    )
    return lambda data: {name: value.numpy() for name, value in parse(tf.constant(data)).items()}


def assert_as_tensorflow(schema: ExampleSchema, records: Sequence[bytes]) -> None:
    """Every feature and image of these records is what `tf.io.parse_single_example` gives."""
    columns = ColumnReader(schema)
    store = columns.allocate(len(records))
    images = [columns.fill(store, row, data) for row, data in enumerate(records)]
    batch = columns.finish(store)
    for row, data in enumerate(records):
        wanted = tensorflow_parser(schema)(data)
        assert images[row] == wanted.pop(schema.image.name)
        for feature in columns.features:
            found = batch[feature.name][row]  # type: ignore[index]
            value = wanted[feature.name]
            if feature.kind == FeatureKind.TEXT:
                found = found.encode()
            if isinstance(found, np.ndarray):
                assert (found.dtype, found.tolist()) == (value.dtype, value.tolist())
            else:
                assert found == value


@pytest.mark.parametrize("name", ["tabled", "garden", "raw"])
def test_datasets_as_tensorflow_parses_them(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from tests.small_datasets import Datasets

    datasets = Datasets(tmp_path_factory)
    records = []
    for shard in datasets.shards(name):
        with open(shard, "rb") as file:
            records += [span.data for span in scan_records(file)]
    assert len(records) >= 6
    assert_as_tensorflow(read_manifest(Folder(datasets[name])).schema, records)


def test_a_table_encoded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The columns of a real table, each in another form, by the rows that went in."""
    from tests.small_datasets import ROWS as TABLE
    from tests.small_datasets import Datasets

    datasets = Datasets(tmp_path_factory)
    schema = read_manifest(Folder(datasets["tabled"])).schema
    features = {
        "id": None, "label": OneHot(), "caption": Text(), "tags": MultiHot(vocabulary=["tag2", "tag1", "tag0"]),
        "boxes": Dense(2, fill=-1), "scores": Sparse(), "good": OneHot(2),
    }  # fmt: skip
    records = []
    for shard in datasets.shards("tabled"):
        with open(shard, "rb") as file:
            records += [span.data for span in scan_records(file)]
    batch: dict[str, Any] = fill(ColumnReader(schema, features), records)
    rows = [next(row for row in TABLE if row["path"] == path) for path in batch["id"]]
    assert len(rows) == len(TABLE)
    assert [schema.class_names[place] for place in batch["label"].argmax(axis=1)] == [
        row["label"] for row in rows
    ]
    assert batch["caption"].tolist() == [row["caption"] for row in rows]
    assert batch["tags"].tolist() == [
        [float(tag in row["tags"]) for tag in ("tag2", "tag1", "tag0")] for row in rows
    ]  # type: ignore[operator]
    assert batch["boxes"].tolist() == [[*row["boxes"], -1, -1][:2] for row in rows]  # type: ignore[misc]
    assert batch["scores"].values.tolist() == [score for row in rows for score in row["scores"]]  # type: ignore[attr-defined]
    assert batch["good"].argmax(axis=1).tolist() == [int(bool(row["good"])) for row in rows]
