"""Columns equal the result of TensorFlow's parser for the same records."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from shardwright.format.example import varint
from shardwright.format.schema import ExampleSchema, FeatureKind
from shardwright.reader.columns import ColumnReader
from tests.support import damage
from tests.support.column_records import RECORD, SCHEMA, kindless_entry
from tests.support.random_tests import examples
from tests.support.small_datasets import Datasets, datasets_fixture  # noqa: F401

CLASS_LABEL, INT64, FLOAT32 = FeatureKind.CLASS_LABEL, FeatureKind.INT64, FeatureKind.FLOAT32
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


@examples(30)
@given(st.lists(ROWS, min_size=1, max_size=3), st.data())
def test_columns_are_as_tensorflow_parses(rows: list[dict[str, Any]], draw: st.DataObject) -> None:
    """Keys in any order, and some twice: the last holds (in TensorFlow unless it has no kind)."""
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
    dtypes = {CLASS_LABEL: tf.int64, INT64: tf.int64, FLOAT32: tf.float32}
    spec = {}
    for feature in schema.features:
        dtype = dtypes.get(feature.kind, tf.string)
        one = tf.io.FixedLenFeature((), dtype)
        spec[feature.name] = tf.io.RaggedFeature(dtype) if feature.is_list else one
    signature = [tf.TensorSpec((), tf.string)]
    parse = tf.function(lambda data: tf.io.parse_single_example(data, spec), signature)
    return lambda data: {name: value.numpy() for name, value in parse(tf.constant(data)).items()}


def assert_as_tensorflow(schema: ExampleSchema, records: Sequence[bytes]) -> None:
    """Compare every feature and image with the result of `tf.io.parse_single_example`."""
    columns = ColumnReader(schema)
    store = columns.allocate(len(records))
    images = [columns.fill(store, row, data)[0] for row, data in enumerate(records)]
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
