"""Columns of every kind of feature."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

import shardwright as sw
from shardwright.format.example import ExampleFault
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, VocabularyRule
from shardwright.format.tensors import to_tensor_proto
from shardwright.reader.columns import ColumnReader
from shardwright.reader.encodings import Encoding
from shardwright.reader.values import SparseColumn
from tests.support import damage

K = FeatureKind
EYE = np.eye(2, dtype=np.float32)
EYE_PROTO = to_tensor_proto(EYE)
NAMES = ("a", "b", "c", "d")
BOXES, BAG = Feature("b", K.BOX, shape=(None, 4)), Feature("w", K.BAG_OF_WORDS)


def fill(feature: Feature, rows: list[dict[str, Any]], encoding: Encoding | None = None) -> Any:
    """Return the column of one feature; its shape and dtype must be the announced ones."""
    schema = ExampleSchema((feature,), vocabularies={} if feature.names else {feature.name: NAMES})
    columns = ColumnReader(schema, {feature.name: encoding})
    store = columns.allocate(len(rows))
    for row, values in enumerate(rows):
        columns.fill(store, row, damage.example(values))
    column = columns.finish(store)[feature.name]
    shape, dtype = columns.spec(len(rows))[feature.name]
    if isinstance(column, SparseColumn):
        assert (column.dense_shape, column.values.dtype) == (shape, dtype)
    else:
        assert (column.shape, column.dtype) == (shape, dtype)
    return column


@pytest.mark.parametrize(("feature", "values", "wanted"), [
    (Feature("n", K.INT64, dtype="uint8"), [[255], [0]], np.array([255, 0], np.uint8)),
    (Feature("n", K.INT64, dtype="bool"), [[1], [0]], np.array([True, False])),
    (Feature("n", K.INT64, dtype="uint64"), [[2**62], [0]], np.array([2**62, 0], np.uint64)),
    (Feature("n", K.INT64, dtype="int16", shape=(2,)), [[-300, 1]], np.array([[-300, 1]], "i2")),
    (Feature("n", K.FLOAT32, dtype="float64"), [[0.25]], np.array([0.25])),
    (Feature("n", K.FLOAT32, dtype="bfloat16"), [[0.25]], np.array([0.25], bfloat16)),
    (Feature("v", K.FLOAT32, shape=(3,)), [[1.0, 2, 3], [4.0, 5, 6]],
     np.array([[1, 2, 3], [4, 5, 6]], np.float32)),
    (Feature("m", K.INT64, shape=(2, 2)), [[1, 2, 3, 4], [5, 6, 7, 8]],
     np.arange(1, 9).reshape(2, 2, 2)),
    (Feature("t", K.TEXT, shape=(2,)), [[b"x", "ü".encode()]], np.array([["x", "ü"]], object)),
    (Feature("t", K.TENSOR, shape=(2, 2), dtype="float32"), [[EYE_PROTO]], EYE[None]),
    (Feature("p", K.MASK), [[b"\x89PNG"]], np.array([b"\x89PNG"], object)),
])  # fmt: skip
def test_arrays(feature: Feature, values: list[Any], wanted: np.ndarray) -> None:
    column = fill(feature, [{feature.name: value} for value in values])
    assert column.dtype == wanted.dtype
    assert column.tolist() == wanted.tolist()


@pytest.mark.parametrize(("feature", "values", "wanted"), [
    (BOXES, [0.0, 0, 0.5, 1] * 2, np.array([[0, 0, 0.5, 1]] * 2, np.float32)),
    (BOXES, [], np.empty((0, 4), np.float32)),
    (Feature("n", K.INT64, shape=(None,), dtype="uint8"), [1, 255], np.array([1, 255], np.uint8)),
    (Feature("m", K.MULTI_LABEL), [0, 3], np.array([0, 3])),
    (Feature("w", K.TOKENS, vocabulary=VocabularyRule()), [3, 0, 3], np.array([3, 0, 3])),
    (Feature("t", K.TENSOR, shape=(None, 2), dtype="float32"), [EYE_PROTO], EYE),
    (Feature("t", K.TENSOR, shape=(None,), dtype="int64"),
     [to_tensor_proto(np.array([], np.int64))], np.array([], np.int64)),
    (Feature("t", K.TENSOR, shape=(2,), dtype="string"),
     [to_tensor_proto(np.array(["x", "ü"], object))], np.array([b"x", "ü".encode()], object)),
])  # fmt: skip
def test_arrays_of_any_length(feature: Feature, values: list[Any], wanted: np.ndarray) -> None:
    (value,) = fill(feature, [{feature.name: values}])
    assert (value.dtype, value.shape) == (wanted.dtype, wanted.shape)
    assert value.tolist() == wanted.tolist()


def dense(column: SparseColumn) -> np.ndarray:
    made = np.zeros(column.dense_shape, column.values.dtype)
    made[tuple(column.indices.T)] = column.values
    return made


def test_a_bag_of_words_is_sparse() -> None:
    feature = Feature("w", K.BAG_OF_WORDS, vocabulary=VocabularyRule(), keys=("w/i", "w/n"))
    column = fill(feature, [{"w/i": [0, 3], "w/n": [1.0, 2.0]}, {"w/i": [], "w/n": []}])
    assert dense(column).tolist() == [[1, 0, 0, 2], [0, 0, 0, 0]]


@pytest.mark.parametrize("dtype", ["", "int64"])
def test_a_bag_of_words_as_an_array(dtype: str) -> None:
    feature = replace(BAG, dtype=dtype)
    one, two = (1, 2) if dtype else (1.0, 2.0)
    rows = [{"w/indices": [0, 3], "w/values": [one, two]}, {"w/indices": [], "w/values": []}]
    for encoding, last in ((None, 2), (sw.Dense(), 2), (sw.MultiHot(), 1)):
        column = fill(feature, rows, encoding)
        made = dense(column) if isinstance(column, SparseColumn) else column
        assert made.tolist() == [[1, 0, 0, last], [0, 0, 0, 0]]
        counts = np.int64 if dtype and not isinstance(encoding, sw.MultiHot) else np.float32
        assert made.dtype == counts


def test_boxes_as_one_array() -> None:
    feature = BOXES
    column = fill(feature, [{"b": [0.0, 0, 1, 1]}, {"b": []}], sw.Dense(2, fill=-1))
    assert column.tolist() == [[[0, 0, 1, 1], [-1] * 4], [[-1] * 4] * 2]


def test_classes_of_their_own() -> None:
    labels = fill(Feature("m", K.MULTI_LABEL), [{"m": [1, 3]}], sw.MultiHot())
    assert labels.tolist() == [[0, 1, 0, 1]]
    classes = Feature("c", K.CLASS_LABEL, names=("x", "y"))
    assert fill(classes, [{"c": [1]}], sw.OneHot()).tolist() == [[0, 1]]


@pytest.mark.parametrize(("feature", "values", "message"), [
    (Feature("v", K.FLOAT32, shape=(3,)), {"v": [1.0]},
     "feature 'v' has 1 value, the schema says 3"),
    (BOXES, {"b": [1.0] * 6}, "feature 'b' has 6 values, the schema says a multiple of 4"),
    (Feature("t", K.TENSOR, shape=(3,), dtype="float32"), {"t": [EYE_PROTO]},
     r"feature 't' is a tensor \[2, 2\] of float32, the schema says \[3\] of float32"),
    (Feature("t", K.TENSOR, shape=(2, 2), dtype="int8"), {"t": [EYE_PROTO]},
     "the schema says .* of int8"),
    (Feature("t", K.TENSOR, shape=(2, 2)), {"t": [b"\x01no tensor"]},
     "feature 't': not a serialized tensor"),
    (BAG, {"w/indices": [1], "w/values": [1.0, 2.0]}, "1 index and 2 counts"),
    (BAG, {"w/indices": [4], "w/values": [1.0]}, "outside its vocabulary of 4 words: 4"),
    (BAG, {"w/indices": [3, -1], "w/values": [1.0, 1.0]}, "outside its vocabulary of 4 words: -1"),
    (BAG, {"w/indices": [4]}, "feature 'w/values' is missing"),
    (replace(BAG, dtype="int64"), {"w/indices": [1], "w/values": [1.0]},
     "feature 'w/values' holds float values, the schema says int64"),
    (Feature("n", K.INT64, dtype="uint8"), {"n": [300]},
     "feature 'n' holds 300, which does not fit uint8"),
    (Feature("n", K.INT64, dtype="uint64", shape=(None,)), {"n": [1, -2]},
     "feature 'n' holds -2, which does not fit uint64"),
])  # fmt: skip
def test_faults(feature: Feature, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ExampleFault, match=message):
        fill(feature, [values])
