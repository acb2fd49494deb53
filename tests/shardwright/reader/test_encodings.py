"""Columns of each kind of feature, in each encoding, and errors: of features and of values."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

from shardwright.errors import UsageError
from shardwright.format.example import ExampleFault
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source, VocabularyRule
from shardwright.format.tensors import to_tensor_proto
from shardwright.reader.columns import ColumnReader
from shardwright.reader.encodings import Dense, Encoding, MultiHot, OneHot, Text
from shardwright.reader.values import SparseColumn
from tests.support import damage

K = FeatureKind
CLASSES, WORDS = ("ape", "bee", "Löwe"), ("a", "b", "c", "d")
LABEL = Feature("label", K.CLASS_LABEL, Source.LABEL)
LABELS = Feature("labels", K.CLASS_LABEL, shape=(None,), names=CLASSES)
COUNT, COUNTS = Feature("count", K.INT64), Feature("counts", K.INT64, shape=(None,))
RATIO, SCORES = Feature("ratio", K.FLOAT32), Feature("scores", K.FLOAT32, shape=(None,))
ID, NAMES = Feature("id", K.TEXT, Source.ID), Feature("names", K.TEXT, shape=(None,))
CAPTION, TAGS = Feature("caption", K.BYTES), Feature("tags", K.BYTES, shape=(None,))
BOXES = Feature("boxes", K.BOX, shape=(None, 4))
MANY = Feature("many", K.MULTI_LABEL)
BAG = Feature("words", K.BAG_OF_WORDS, vocabulary=VocabularyRule())
INT_BAG = replace(BAG, dtype="int64")
SMALL = replace(COUNTS, dtype="uint8")
TENSOR = Feature("t", K.TENSOR, shape=(2, 2), dtype="float32")
EYE = np.eye(2, dtype=np.float32)
EYE_PROTO = to_tensor_proto(EYE)
LION = "Löwe".encode()


def columns_of(feature: Feature, encoding: Encoding | None = None) -> ColumnReader:
    words = {feature.name: WORDS} if feature.kind in (K.MULTI_LABEL, K.BAG_OF_WORDS) else {}
    return ColumnReader(ExampleSchema((feature,), CLASSES, words), {feature.name: encoding})


def fill(feature: Feature, encoding: Encoding | None, rows: list[Any]) -> Any:
    """Return the column of rows of values; its shape and dtype must be the announced ones."""
    columns = columns_of(feature, encoding)
    store = columns.allocate(len(rows))
    for row, values in enumerate(rows):
        named = zip(feature.stored_keys, values, strict=False)
        given = dict(named) if len(feature.stored_keys) > 1 else {feature.name: values}
        columns.fill(store, row, damage.example(given))
    return finished(columns, store, len(rows))


def finished(columns: ColumnReader, store: Any, count: int) -> Any:
    (column,) = columns.finish(store).values()
    ((shape, dtype),) = columns.spec(count).values()
    if isinstance(column, SparseColumn):
        assert (column.dense_shape, column.values.dtype) == (shape, dtype)
        made = np.zeros(column.dense_shape, column.values.dtype)
        made[tuple(column.indices.T)] = column.values
        return made
    assert (column.shape, column.dtype) == (shape, dtype)
    assert columns.spec(None) == {columns.features[0].name: ((None, *shape[1:]), dtype)}
    return column


def check(found: Any, wanted: Any) -> None:
    """Compare a column; one of lists has an array in each row."""
    if isinstance(wanted, list) and isinstance(wanted[0], np.ndarray):
        assert found.dtype == object
        for one, other in zip(found, wanted, strict=True):
            check(one, other)
    else:
        array = np.array(wanted, object) if isinstance(wanted, list) else wanted
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert found.tolist() == array.tolist()


def i64(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


def f32(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def obj(*values: Any) -> np.ndarray:
    return np.array(values, object)


COLUMNS: list[tuple[Feature, Encoding | None, list[Any], Any]] = [
    # As stored.
    (LABEL, None, [[2], [0]], i64(2, 0)),
    (COUNT, None, [[2**62], [-(2**63)]], i64(2**62, -(2**63))),
    (replace(COUNT, dtype="uint8"), None, [[255], [0]], np.array([255, 0], np.uint8)),
    (replace(COUNT, dtype="bool"), None, [[1], [0]], np.array([True, False])),
    (replace(COUNT, dtype="uint64"), None, [[2**62], [0]], np.array([2**62, 0], np.uint64)),
    (Feature("n", K.INT64, dtype="int16", shape=(2,)), None, [[-300, 1]],
     np.array([[-300, 1]], np.int16)),
    (RATIO, None, [[0.5], [-1.0]], f32(0.5, -1)),
    (replace(RATIO, dtype="float64"), None, [[0.25]], np.array([0.25])),
    (replace(RATIO, dtype="bfloat16"), None, [[0.25]], np.array([0.25], bfloat16)),
    (Feature("v", K.FLOAT32, shape=(3,)), None, [[1.0, 2, 3], [4.0, 5, 6]],
     f32([1, 2, 3], [4, 5, 6])),
    (Feature("m", K.INT64, shape=(2, 2)), None, [[1, 2, 3, 4], [5, 6, 7, 8]],
     np.arange(1, 9).reshape(2, 2, 2)),
    (Feature("t", K.TEXT, shape=(2,)), None, [[b"x", LION]], obj(["x", "Löwe"])),
    (ID, None, [[LION], [b"\xff"]], obj("Löwe", "\udcff")),
    (CAPTION, None, [[LION], [b""]], obj(LION, b"")),
    (Feature("p", K.MASK), None, [[b"\x89PNG"]], obj(b"\x89PNG")),
    (TENSOR, None, [[EYE_PROTO]], EYE[None]),
    (COUNTS, None, [[1, 2], [], [3]], [i64(1, 2), i64(), i64(3)]),
    (COUNTS, None, [[1], [2]], [i64(1), i64(2)]),
    (SMALL, None, [[1, 255]], [np.array([1, 255], np.uint8)]),
    (SCORES, None, [[0.5], [1.5, 2.5], []], [f32(0.5), f32(1.5, 2.5), f32()]),
    (NAMES, None, [[b"a", b"b"], []], [obj("a", "b"), obj()]),
    (TAGS, None, [[b"a", b"\xff"], [b"c", b"d"]], [obj(b"a", b"\xff"), obj(b"c", b"d")]),
    (BOXES, None, [[0.0, 0, 0.5, 1] * 2, []], [f32(*[[0, 0, 0.5, 1]] * 2), np.empty((0, 4), "f4")]),
    (MANY, None, [[0, 3]], [i64(0, 3)]),
    (Feature("w", K.TOKENS, vocabulary=VocabularyRule()), None, [[3, 0, 3]], [i64(3, 0, 3)]),
    (replace(TENSOR, shape=(None, 2)), None, [[EYE_PROTO]], [EYE]),
    (replace(TENSOR, shape=(None,), dtype="int64"), None, [[to_tensor_proto(i64())]], [i64()]),
    (replace(BAG, keys=("w/i", "w/n")), None, [([0, 3], [1.0, 2.0]), ([], [])],
     f32([1, 0, 0, 2], [0] * 4)),
    (INT_BAG, None, [([0, 3], [1, 2])], i64([1, 0, 0, 2])),
    # Encoded.
    (CAPTION, Text(), [[LION], [b"\xff"]], obj("Löwe", "\udcff")),
    (TAGS, Text(), [[b"a", b"b"], [], [b"c"]], [obj("a", "b"), obj(), obj("c")]),
    (LABEL, OneHot(), [[2], [0]], f32([0, 0, 1], [1, 0, 0])),
    (Feature("c", K.CLASS_LABEL, names=("x", "y")), OneHot(), [[1]], f32([0, 1])),
    (LABELS, MultiHot(), [[2, 0], []], f32([1, 0, 1], [0, 0, 0])),
    (MANY, MultiHot(), [[1, 3]], f32([0, 1, 0, 1])),
    (COUNTS, MultiHot(4), [[3, 3], [0, 1]], f32([0, 0, 0, 1], [1, 1, 0, 0])),
    (BAG, MultiHot(), [([0, 3], [1.0, 2.0])], f32([1, 0, 0, 1])),
    (BAG, Dense(), [([0, 3], [1.0, 2.0]), ([], [])], f32([1, 0, 0, 2], [0] * 4)),
    (INT_BAG, MultiHot(), [([0, 3], [1, 2])], f32([1, 0, 0, 1])),
    (INT_BAG, Dense(), [([0, 3], [1, 2])], i64([1, 0, 0, 2])),
    (COUNTS, Dense(3), [[1, 2], [], [4, 5, 6]], i64([1, 2, 0], [0, 0, 0], [4, 5, 6])),
    (COUNTS, Dense(2, fill=-1), [[1], [2, 3]], i64([1, -1], [2, 3])),
    (COUNTS, Dense(2, fill=-1, truncate=True), [[1, 2, 3]], i64([1, 2])),
    (SCORES, Dense(2, fill=0.5), [[1.5], []], f32([1.5, 0.5], [0.5, 0.5])),
    (TAGS, Dense(2), [[b"a"]], obj([b"a", b""])),
    (NAMES, Dense(2, fill=0), [[b"a"], []], obj(["a", ""], ["", ""])),
    (NAMES, Dense(2, fill="?"), [[b"a"]], obj(["a", "?"])),
    (TAGS, Dense(1, fill=b"?"), [[], [b"abc"]], obj([b"?"], [b"abc"])),
    (BOXES, Dense(2, fill=-1), [[0.0, 0, 1, 1], []],
     f32([[0, 0, 1, 1], [-1] * 4], [[-1] * 4] * 2)),
]  # fmt: skip


@pytest.mark.parametrize(("feature", "encoding", "rows", "wanted"), COLUMNS)
def test_columns(feature: Feature, encoding: Encoding | None, rows: list[Any], wanted: Any) -> None:
    check(fill(feature, encoding, rows), wanted)


@pytest.mark.parametrize(
    "encoding", [Encoding(), *dict.fromkeys(encoding for _, encoding, *_ in COLUMNS if encoding)]
)
def test_encodings_are_equal_by_their_arguments(encoding: Encoding) -> None:
    """In another process too."""
    sent = pickle.loads(pickle.dumps(encoding))
    assert (sent, hash(sent)) == (encoding, hash(encoding))
    assert sent != Dense(99)


@pytest.mark.parametrize(("feature", "encoding", "blank"), [
    (LABEL, None, i64(0)), (RATIO, None, f32(0)), (ID, None, obj("")), (CAPTION, None, obj(b"")),
    (COUNTS, None, [i64()]), (NAMES, None, [obj()]), (CAPTION, Text(), obj("")),
    (TAGS, Text(), [obj()]), (LABEL, OneHot(), f32([0, 0, 0])), (COUNTS, MultiHot(2), f32([0, 0])),
])  # fmt: skip
def test_blank_rows(feature: Feature, encoding: Encoding | None, blank: Any) -> None:
    columns = columns_of(feature, encoding)
    check(finished(columns, columns.allocate(1), 1), blank)


def test_a_stored_row_is_not_a_view_of_its_record() -> None:
    """A view would keep the whole block of the record in memory."""
    record = f32(1, 2, 3)
    assert not np.shares_memory(Encoding().encode(SCORES, record), record)


@pytest.mark.parametrize(("encoding", "arguments", "what"), [
    (OneHot, [0], r"OneHot\(num_classes\)=0 must be a whole number, at least 1"),
    (MultiHot, [-1], r"MultiHot\(num_classes\)=-1 must be"),
    (Dense, [0], r"Dense\(length\)=0 must be a whole number, at least 1"),
])  # fmt: skip
def test_bad_arguments(encoding: Any, arguments: list[int], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        encoding(*arguments)


@pytest.mark.parametrize(("feature", "encoding", "what"), [
    (COUNT, Text(), "holds int64 values, and Text takes text or bytes"),
    (ID, OneHot(), "holds bytes values, and OneHot takes integers"),
    (COUNT, OneHot(), "has no class names: pass OneHot(num_classes=...)"),
    (COUNTS, OneHot(4), "is a list, and OneHot takes one integer: use MultiHot"),
    (COUNTS, MultiHot(), "has no class names: pass MultiHot(num_classes=...)"),
    (TAGS, MultiHot(), "is text: give it the kind multi_label in the schema"),
    (SCORES, MultiHot(3), "holds float values, and MultiHot takes integers"),
    (COUNT, Dense(2), "is a single value, and Dense takes lists: leave its encoding out"),
    (COUNTS, Dense(), "is a list: give Dense(length=...)"),
    (BAG, Dense(2), "is a bag of 4 words, one column each: give Dense() without arguments"),
    (SMALL, Dense(2, fill=256), "holds int64 values, so Dense(fill=256) must be a value of uint8"),
    (replace(COUNTS, dtype="bool"), Dense(2, fill=2),
     "holds int64 values, so Dense(fill=2) must be a value of bool"),
    (COUNTS, Dense(2, fill=0.5), "holds int64 values, so Dense(fill=0.5) must be a value of int64"),
    (COUNTS, Dense(2, fill=2**63),
     "holds int64 values, so Dense(fill=9223372036854775808) must be a value of int64"),
    (SCORES, Dense(2, fill="a"), "holds float values, so Dense(fill='a') must be a number"),
    (NAMES, Dense(2, fill=1), "holds bytes values, so Dense(fill=1) must be of type str"),
    (Feature("image", K.IMAGE, Source.IMAGE), Text(),
     "is the image, which takes no encoding: use image=... to decode it"),
])  # fmt: skip
def test_unsuitable_features(feature: Feature, encoding: Encoding, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        columns_of(feature, encoding)
    assert f"feature {feature.name!r} {what}" in str(caught.value)


def test_class_encodings_of_an_unlabeled_dataset() -> None:
    schema = ExampleSchema((LABEL,))
    with pytest.raises(UsageError, match=r"'label' has no class names: pass OneHot\(num_classes"):
        ColumnReader(schema, {"label": OneHot()})
    assert ColumnReader(schema, {"label": OneHot(5)}).spec(2)["label"][0] == (2, 5)


@pytest.mark.parametrize(("feature", "encoding", "values", "what"), [
    (LABEL, OneHot(), [3], "'label' is 3; labels of 3 classes are 0 to 2"),
    (COUNT, OneHot(9), [2**63 - 1],
     "'count' is 9223372036854775807; labels of 9 classes are 0 to 8"),
    (COUNTS, MultiHot(3), [0, 3], "'counts' is 3; labels of 3 classes are 0 to 2"),
    (COUNTS, Dense(2), [1, 2, 3], "'counts' has 3 values, but Dense(length=2) takes at most 2: "
     "pass a larger length or truncate=True"),
    (Feature("v", K.FLOAT32, shape=(3,)), None, [1.0], "'v' has 1 value, the schema says 3"),
    (COUNT, None, [], "'count' has 0 values, the schema says 1"),
    (ID, None, [b"a", b"b"], "'id' has 2 values, the schema says 1"),
    (BOXES, None, [1.0] * 6, "'boxes' has 6 values, the schema says a multiple of 4"),
    (COUNT, None, [0.5], "'count' holds float values, the schema says int64"),
    (LABEL, None, [b"ape"], "'label' holds bytes values, the schema says int64"),
    (RATIO, None, [1], "'ratio' holds int64 values, the schema says float"),
    (TAGS, None, [1, 2], "'tags' holds int64 values, the schema says bytes"),
    (SCORES, None, [b"a"], "'scores' holds bytes values, the schema says float"),
    (replace(TENSOR, shape=(3,)), None, [EYE_PROTO],
     "'t' is a tensor [2, 2] of float32, the schema says [3] of float32"),
    (replace(TENSOR, dtype="int8"), None, [EYE_PROTO], "the schema says [2, 2] of int8"),
    (TENSOR, None, [b"\x01no tensor"], "'t': not a serialized tensor"),
    (BAG, None, ([1], [1.0, 2.0]), "1 index and 2 counts"),
    (BAG, None, ([4],), "'words/values' is missing"),
    (BAG, None, ([4], [1.0]), "outside its vocabulary of 4 words: 4"),
    (BAG, None, ([3, -1], [1.0, 1.0]), "outside its vocabulary of 4 words: -1"),
    (INT_BAG, None, ([1], [1.0]), "'words/values' holds float values, the schema says int64"),
    (replace(COUNT, dtype="uint8"), None, [300], "'count' holds 300, which does not fit uint8"),
    (replace(COUNTS, dtype="uint64"), None, [1, -2],
     "'counts' holds -2, which does not fit uint64"),
])  # fmt: skip
def test_faults(feature: Feature, encoding: Encoding | None, values: Any, what: str) -> None:
    with pytest.raises(ExampleFault) as caught:
        fill(feature, encoding, [values])
    assert what in str(caught.value)
