"""One raw column and a feature -> the stored column, and the reasons of rows that do not fit."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import BuildError, UsageError
from shardwright.format.schema import Feature, FeatureKind, VocabularyRule
from shardwright.transforms.features import conversions
from shardwright.transforms.features.columns import check_column, settle_column
from shardwright.transforms.features.rows import index_column
from shardwright.transforms.references import PICTURE_TYPE
from tests.support.random_tests import examples

NAN = pytest.approx(float("nan"), nan_ok=True)
INT, FLOAT = FeatureKind.INT64, FeatureKind.FLOAT32
TEXT, BYTES = FeatureKind.TEXT, FeatureKind.BYTES
CLASS, MULTI, BOX = FeatureKind.CLASS_LABEL, FeatureKind.MULTI_LABEL, FeatureKind.BOX
POINTS = FeatureKind.KEYPOINTS
BAG, TOKENS = FeatureKind.BAG_OF_WORDS, FeatureKind.TOKENS
MASK, TENSOR = FeatureKind.MASK, FeatureKind.TENSOR
LIST, UINT8 = {"shape": (None,)}, {"dtype": "uint8"}


def settle(column: pa.Array, kind: FeatureKind, **options: Any) -> tuple[list[Any], dict[int, str]]:
    """Return the values of the rows that fit, and the reasons of the others by row."""
    settled, misfits = settle_column(column, Feature("n", kind, **options))
    told: dict[int, str] = {}
    for misfit in misfits:
        for row in np.flatnonzero(misfit.rows).tolist():
            told.setdefault(row, misfit.rule)
    assert len(settled) == len(column)
    good = settled.filter(pa.array([row not in told for row in range(len(column))], pa.bool_()))
    assert good.null_count == 0
    return good.to_pylist(), told


@pytest.mark.parametrize(("column", "kind", "options", "values"), [
    (pa.array([1, -1]), INT, {}, [1, -1]),
    (pa.array([1, 255], pa.uint8()), INT, UINT8, [1, 255]),
    (pa.array([True, False]), INT, {"dtype": "bool"}, [1, 0]),
    (pa.array([0, 2**63 - 1], pa.uint64()), INT, {"dtype": "uint64"}, [0, 2**63 - 1]),
    (pa.array([5, 7]).dictionary_encode(), INT, {}, [5, 7]),
    (pa.array([5.0, -7.0, 2.0**62]), INT, {}, [5, -7, 2**62]),
    (pa.array([5.0], pa.float16()), INT, {}, [5]),
    (pa.array(["7", " -3 ", "true", "False", "7.0", "1e3"]), INT, {}, [7, -3, 1, 0, 7, 1000]),
    (pa.array(["9"], pa.string_view()), INT, {}, [9]),
    (pa.array([Decimal("12.00")]), INT, {}, [12]),
    (pa.array([None, 4]), INT, {"default": -1}, [-1, 4]),
    (pa.array([None, True]), INT, {"default": False, "dtype": "bool"}, [0, 1]),
    (pa.array([None, 0.5]), FLOAT, {"default": 1}, [1.0, 0.5]),
    (pa.array([None, [0.0, 0, 1, 1]]), BOX, {"default": 0, "shape": (4,)},
     [[0, 0, 0, 0], [0, 0, 1, 1]]),
    (pa.array([b"ab", None], pa.binary(2)), CLASS, {"default": "?"}, ["ab", "?"]),
    (pa.array([None, ""], pa.string()), INT, {"default": 3}, [3, 3]),
    (pa.array([0.5, None, float("inf")]), FLOAT, {}, [0.5, NAN, float("inf")]),
    (pa.array([1.5], pa.float16()), FLOAT, {"dtype": "float16"}, [1.5]),
    (pa.array([3, 2**24]), FLOAT, {"dtype": "float64"}, [3.0, 2.0**24]),
    (pa.array(["0.5", "-inf", "nan", ".5", "1e-3"]), FLOAT, {},
     [0.5, float("-inf"), NAN, 0.5, pytest.approx(1e-3)]),
    (pa.array([Decimal("0.25")]), FLOAT, {}, [0.25]),
    (pa.array([None, 1.0]), FLOAT, {"default": 9.5}, [9.5, 1.0]),
    (pa.array(["a", None, ""]), TEXT, {}, [b"a", b"", b""]),
    (pa.array(["a", None]).dictionary_encode(), BYTES, {}, [b"a", b""]),
    (pa.array(["a", None]), TEXT, {"default": "?"}, [b"a", b"?"]),
    (pa.array(["é"], pa.large_string()), BYTES, {}, ["é".encode()]),
    (pa.array(["é"], pa.string_view()), BYTES, {}, ["é".encode()]),
    (pa.array([b"\xff", None], pa.large_binary()), BYTES, {}, [b"\xff", b""]),
    (pa.array([b"\xff"], pa.binary_view()), BYTES, {}, [b"\xff"]),
    (pa.array([b"abc"], pa.binary(3)), BYTES, {}, [b"abc"]),
    (pa.nulls(2), BYTES, {}, [b"", b""]),
    (pa.nulls(2), FLOAT, {}, [NAN, NAN]),
    (pa.array([7, 8]), TEXT, {}, [b"7", b"8"]),
    (pa.array([["a", None], None]), BYTES, LIST, [[b"a", b""], []]),
    (pa.array([[]], pa.list_(pa.null())), BYTES, LIST, [[]]),
    (pa.array([[1, 2], None, []]), INT, LIST, [[1, 2], [], []]),
    (pa.array([[9], [1, 2], None, [3]]).slice(1), INT, LIST, [[1, 2], [], [3]]),
    (pa.array([[1], [2]], pa.large_list(pa.int32())), INT, LIST, [[1], [2]]),
    (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2)), INT, LIST, [[1, 2], [], [3, 4]]),
    (pa.array([[1, 2], None], pa.list_(pa.int16(), 2)), INT, {"shape": (2,), "default": 7},
     [[1, 2], [7, 7]]),
    (pa.array([[1, None, 3]]), INT, {"shape": (3,), "default": 0}, [[1, 0, 3]]),
    (pa.array([[0.5, None]]), FLOAT, LIST, [[0.5, NAN]]),
    (pa.array([5, 6]), INT, LIST, [[5], [6]]),
    (pa.array([[5], [6]]), INT, {}, [5, 6]),
    (pa.array([[[1, 2], [3, 4]]]), INT, {"shape": (2, 2)}, [[1, 2, 3, 4]]),
    (pa.array([[[1, 2]], []]), INT, {"shape": (None, 2)}, [[1, 2], []]),
    (pa.array(["[1, 2]", "3|4", "", "[[5], [6]]", "7"]), INT, LIST,
     [[1, 2], [3, 4], [], [5, 6], [7]]),
    (pa.array(['["a|b", "c"]', "d|e"]), TEXT, LIST, [[b"a|b", b"c"], [b"d", b"e"]]),
    (pa.array([[[0, 0.25, 0.5, 1]], []], pa.list_(pa.list_(pa.float64()))), BOX,
     {"shape": (None, 4)}, [[0, 0.25, 0.5, 1], []]),
    (pa.array([[0.0, 0, 1, 1]]), BOX, {"shape": (4,)}, [[0, 0, 1, 1]]),
    (pa.array([[0, 0, 0, -1, 2, 1], [1, 0.5, 2, 0, 0, 0]]), POINTS, {"shape": (2, 3)},
     [[0, 0, 0, -1, 2, 1], [1, 0.5, 2, 0, 0, 0]]),
    (pa.array([[[[0.5, 1, 2]]], []]), POINTS, {"shape": (None, 1, 3)}, [[0.5, 1, 2], []]),
    (pa.array([" cat ", "dog"]), CLASS, {}, ["cat", "dog"]),
    (pa.array([3, 10], pa.uint8()), CLASS, {}, ["3", "10"]),
    (pa.array([True]), CLASS, {}, ["true"]),
    (pa.array([b"cat"]), CLASS, {}, ["cat"]),
    (pa.array([None, 2]), CLASS, {"default": 7}, ["7", "2"]),
    (pa.array([1, 0]), CLASS, {"names": ("no", "yes")}, ["yes", "no"]),
    (pa.array([1, 0]), CLASS, {"names": ("1", "0")}, ["1", "0"]),
    (pa.array([["a", "b"], None]), MULTI, {}, [["a", "b"], []]),
    (pa.array(["a|b", None]), MULTI, {}, [["a", "b"], []]),
    (pa.array(["a b", None]), TOKENS, {}, ["a b", ""]),
    (pa.array([["a b", None, "c"], [], None]), BAG, {"default": "none"}, ["a b  c", "", "none"]),
])  # fmt: skip
def test_values_that_fit(column: pa.Array, kind: FeatureKind, options: Any, values: Any) -> None:
    assert settle(column, kind, **options) == (values, {})


def unfit(what: str) -> str:
    return f"is {{value}}, which does not fit {what}"


def misshapen(shape: str) -> str:
    return f"is {{value}}, which does not have the shape {shape}"


NO_INT64, NO_UINT8 = unfit("a signed 64-bit integer"), unfit("uint8")
NO_FLOAT32 = unfit("a 32-bit float")
NO_INT = "has no value, and an integer feature needs one"
NO_BOX = "has no value, and a box needs all of its numbers"
NO_CLASS = "has no class: add one, or give the feature a default"
A_BOX = (
    "is {value}; a box must be ymin, xmin, ymax, xmax as fractions from 0 to 1 of height "
    "and width, with ymin <= ymax and xmin <= xmax"
)


A_POINT = (
    "is {value}; a keypoint must be x, y and visibility: x and y as fractions of width and height, "
    "and 0 for a point without a label, 1 for a hidden and 2 for a visible one"
)


@pytest.mark.parametrize(("column", "kind", "options", "values", "told"), [
    (pa.array([1, None, 3]), INT, {}, [1, 3], {1: NO_INT}),
    (pa.array([True, None]), INT, {}, [1], {1: NO_INT}),
    (pa.nulls(1), INT, {}, [], {0: NO_INT}),
    (pa.array([-1, 0, 255, 256]), INT, UINT8, [0, 255], {0: NO_UINT8, 3: NO_UINT8}),
    (pa.array([127, 128, -129]), INT, {"dtype": "int8"}, [127],
     {1: unfit("int8"), 2: unfit("int8")}),
    (pa.array([2, 1]), INT, {"dtype": "bool"}, [1], {0: unfit("bool")}),
    (pa.array([1, 2**63, None], pa.uint64()), INT, {}, [1], {1: NO_INT64, 2: NO_INT}),
    (pa.array([1.5, float("nan"), 2.0**63, 4.0, float("-inf"), 255.5]), INT, {}, [4],
     dict.fromkeys((0, 1, 2, 4, 5), NO_INT64)),
    (pa.array([256.0, 255.0, -1.0]), INT, UINT8, [255], dict.fromkeys((0, 2), NO_UINT8)),
    (pa.array(["7", "7x", "1.5", "", "9223372036854775808", "1e99", "1_0", "nan", "0x10", "٣"]),
     INT, {}, [7], {3: NO_INT} | dict.fromkeys((1, 2, 4, 5, 6, 7, 8, 9), NO_INT64)),
    (pa.array([[1], [1, None], None, [2**63]], pa.list_(pa.uint64())), INT, LIST, [[1], []],
     {1: NO_INT, 3: NO_INT64}),
    (pa.array([[0, 0], [1, None]], pa.list_(pa.int32(), 2)), INT, LIST, [[0, 0]], {1: NO_INT}),
    (pa.array([1e300, 1.0, -1e39, float("inf")]), FLOAT, {}, [1.0, float("inf")],
     dict.fromkeys((0, 2), NO_FLOAT32)),
    (pa.array([65504.0, 65536.0]), FLOAT, {"dtype": "float16"}, [65504.0], {1: unfit("float16")}),
    (pa.array([3.4e38, 3.38e38]), FLOAT, {"dtype": "bfloat16"}, [pytest.approx(3.38e38)],
     {0: unfit("bfloat16")}),
    (pa.array(["1e400", "x", "1_0", "2"]), FLOAT, {}, [2.0], dict.fromkeys((0, 1, 2), NO_FLOAT32)),
    (pa.array([[1.0], [1e300, 2.0]]), FLOAT, LIST, [[1.0]], {1: NO_FLOAT32}),
    (pa.array([[1, 2], [1], None, [1, 2, 3]]), INT, {"shape": (2,)}, [[1, 2]],
     {1: misshapen("(2)"), 2: NO_INT, 3: misshapen("(2)")}),
    (pa.array([[1, 2], [3], []]), INT, {}, [3], {0: misshapen("()"), 2: misshapen("()")}),
    (pa.array([[[1, 2, 3], [4]], [[1, 2], [3, 4]]]), INT, {"shape": (2, 2)}, [[1, 2, 3, 4]],
     {0: misshapen("(2, 2)")}),
    (pa.array(["[1, 2", "3"]), INT, LIST, [[3]], {0: NO_INT64}),
    (pa.array(["[1, 2]", "[1]"]), INT, {"shape": (2,)}, [[1, 2]], {1: misshapen("(2)")}),
    (pa.array([[0, 0, 1], [0, 0, 1, 1], [0, 0, 1.5, 1], [0.5, 0, 0.25, 1], [0, 0.5, 1, 0.25],
     [-0.1, 0, 1, 1], [0, 0, 1, float("nan")], None, [0, 0, None, 1]]), BOX, {"shape": (4,)},
     [[0, 0, 1, 1]], {0: misshapen("(4)"), **dict.fromkeys((2, 3, 4, 5, 6), A_BOX), 7: NO_BOX,
     8: NO_BOX}),
    (pa.array([[0.1], [0, 0, 1, 1], [0.0] * 7]), BOX, {"shape": (None, 4)}, [[0, 0, 1, 1]],
     {0: misshapen("(any, 4)"), 2: misshapen("(any, 4)")}),
    (pa.array([[0, 0, 1], [0, 0, 1.5], [0, 0, 3], [-1.1, 0, 1], [0, 320, 2], [0, float("nan"), 0],
     [0, float("inf"), 0], [0, 1], None]), POINTS, {"shape": (1, 3)}, [[0, 0, 1]],
     dict.fromkeys(range(1, 7), A_POINT) | {7: misshapen("(1, 3)"),
     8: "has no value, and a keypoint needs all of its numbers"}),
    (pa.array(["a", None, " "]), CLASS, {}, ["a"], {1: NO_CLASS, 2: NO_CLASS}),
    (pa.array([["a"], ["b", None], None]), CLASS, LIST, [["a"], []], {1: NO_CLASS}),
    (pa.array([0, 2, -1]), CLASS, {"names": ("no", "yes")}, ["no"],
     dict.fromkeys((1, 2), "is {value}; class indices must be at least 0 and below 2")),
    (pa.array([b"ok", b"\xff", None]), CLASS, {"default": "?"}, ["ok", "?"],
     {1: "is {value}, which is not UTF-8"}),
])  # fmt: skip
def test_misfits(column: Any, kind: Any, options: Any, values: Any, told: Any) -> None:
    assert settle(column, kind, **options) == (values, told)


@pytest.mark.parametrize(("kind", "feature"), [
    (pa.timestamp("s"), Feature("n", INT)),
    (pa.struct([("a", pa.int64())]), Feature("n", TEXT)),
    (pa.map_(pa.string(), pa.int64()), Feature("n", BYTES)),
    (pa.date32(), Feature("n", CLASS)),
    (pa.binary(), Feature("n", FLOAT)),
    (pa.string(), Feature("n", MASK)),
    (pa.int64(), Feature("n", BAG)),
    (pa.list_(pa.timestamp("s")), Feature("n", TENSOR)),
])  # fmt: skip
def test_types_that_cannot_be_the_feature(kind: pa.DataType, feature: Feature) -> None:
    rule = ": cast it to text or a number, or leave it out"
    with pytest.raises(BuildError, match=f"column 'n' is of type .*, which cannot be .*{rule}"):
        check_column(kind, feature)


@pytest.mark.parametrize(("feature", "message"), [
    (Feature("n", INT, dtype="float32"),
     "of kind int64 has the dtype 'float32'; give one of bool, int16, int32"),
    (Feature("n", BOX),
     r"of kind box has the shape \(\); give \(4,\) for one box, or \(None, 4\) for any number"),
    (Feature("n", POINTS, shape=(3,)),
     r"of kind keypoints has the shape \(3,\); give \(17, 3\) for 17 points of one object, or"),
    (Feature("n", POINTS, shape=(None, None, 3)), "of kind keypoints has the shape"),
    (Feature("n", POINTS, shape=(17, 2)), "of kind keypoints has the shape"),
    (Feature("n", FLOAT, dtype="int8"),
     "of kind float32 has the dtype 'int8'; give one of bfloat16, float16"),
    (Feature("n", BAG, dtype="uint8"),
     "of kind bag_of_words has the dtype 'uint8'; give one of float32, int64"),
    (Feature("n", TOKENS, dtype="int32"), "has the dtype 'int32'; give one of int64"),
    (Feature("n", CLASS, dtype="uint8"), "of kind class_label has the dtype 'uint8'"),
    (Feature("n", MASK, dtype="int64"), "has the dtype 'int64'; give one of uint8, uint16"),
    (Feature("n", TEXT, dtype="float32"), "of kind text has the dtype 'float32'; leave it out"),
    (Feature("n", INT, default="x"), "has the default 'x', which is not a value of int64"),
    (Feature("n", INT, default=0.5), "has the default 0.5, which is not a value of int64"),
    (Feature("n", TENSOR, dtype="float8"),
     "of kind tensor has the dtype 'float8'; give one of float32"),
    (Feature("n", TOKENS, vocabulary=VocabularyRule(token_pattern="(")),
     r"token_pattern '\(' is not a regular expression"),
    (Feature("n", INT, dtype="uint8", default=-1),
     "has the default -1, which is not a value of uint8"),
])  # fmt: skip
def test_declarations_that_are_wrong(feature: Feature, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_column(pa.int64(), feature)


def test_pictures_pass_as_they_are() -> None:
    place = {"uri": "/a.png", "offset": None, "num_bytes": 5, "etag": "e"}
    column = pa.array([place, None], PICTURE_TYPE)
    told = {1: "has no picture, and the feature has no default"}
    assert settle(column, MASK) == ([place], told)
    settled, misfits = settle_column(column, Feature("n", MASK, default=""))
    assert (settled.to_pylist(), misfits) == ([place, None], [])


def test_tensors() -> None:
    column = pa.array([[[1.0, 2.0]], None, [[1.0]]])
    values, told = settle(column, TENSOR, shape=(1, 2))
    assert len(values) == 1
    assert told == {
        1: "has no value, and a tensor needs one",
        2: "is {value}, which is not a float32 tensor of shape (1, 2)",
    }


def test_tensors_from_flat_lists_equal_those_from_nested_ones() -> None:
    nested, flat = pa.array([[[1.0, 2.0], [3.0, 4.0]]]), pa.array([[1.0, 2.0, 3.0, 4.0]])
    for shape in ((2, 2), (None, 2), (2, None)):
        values = [settle(column, TENSOR, shape=shape) for column in (nested, flat)]
        assert values[0] == values[1]
        assert values[0][1] == {}
    for column, shape in ((flat, (3, 2)), (flat, (None, 3)), (flat, (None, None)), (flat, (5,))):
        assert list(settle(column, TENSOR, shape=shape)[1]) == [0]


@pytest.mark.parametrize(("column", "feature", "words", "stored", "unknown"), [
    (pa.array(["b", "a", "z"]), Feature("n", CLASS), ("a", "b"), {"n": [1, 0, None]}, [2]),
    (pa.array(["10", "2"]), Feature("n", CLASS), ("2", "10"), {"n": [1, 0]}, []),
    (pa.array([["b"], [], ["a", "z"]]), Feature("n", CLASS, shape=(None,)), ("a", "b"),
     {"n": [[1], [], [0, None]]}, [2]),
    (pa.array([["c", "a", "c"], [], ["b"]]), Feature("n", MULTI), ("a", "b", "c"),
     {"n": [[0, 2], [], [1]]}, []),
    (pa.array([[]], pa.list_(pa.string())), Feature("n", MULTI), (), {"n": [[]]}, []),
    (pa.array(["yes no yes", ""]), Feature("n", BAG, keys=("i", "v")), ("no", "yes"),
     {"i": [[0, 1], []], "v": [[1, 2], []]}, []),
    (pa.array(["no no"]), Feature("n", BAG, dtype="int64", keys=("i", "v")), ("no", "yes"),
     {"i": [[0]], "v": [[2]]}, []),
    (pa.array(["yes no yes", "what"]), Feature("n", TOKENS), ("[UNK]", "no", "yes"),
     {"n": [[2, 1, 2], [0]]}, []),
])  # fmt: skip
def test_indices(column: pa.Array, feature: Feature, words: Any, stored: Any, unknown: Any) -> None:
    columns, rows = index_column(column, feature, words)
    assert {key: values.to_pylist() for key, values in columns.items()} == stored
    assert np.flatnonzero(rows).tolist() == unknown


INTS = st.none() | st.integers(-(2**40), 2**40)
LIMITS = {
    "": (-(2**63), 2**63), "uint8": (0, 256), "int32": (-(2**31), 2**31), "bool": (0, 2),
    "uint64": (0, 2**63),
}  # fmt: skip


@examples(60)
@given(
    values=st.lists(st.none() | st.lists(INTS, max_size=5), max_size=12),
    shape=st.sampled_from([(None,), (2,), (None, 2), (2, 2)]),
    dtype=st.sampled_from(sorted(LIMITS)),
)
def test_every_row_is_kept_or_rejected(values: list[Any], shape: Any, dtype: str) -> None:
    """A row fits by Python's own rules, whatever the other rows hold."""
    low, high = LIMITS[dtype]
    sizes = [size for size in shape if size is not None]
    unit = int(np.prod(sizes)) if sizes else 1

    def fits(row: list[int | None] | None) -> bool:
        if row is None:
            return None in shape
        length = len(row) % unit == 0 if None in shape else len(row) == unit
        return length and all(value is not None and low <= value < high for value in row)

    kept, told = settle(pa.array(values, pa.list_(pa.int64())), INT, shape=shape, dtype=dtype)
    assert kept == [row or [] for row in values if fits(row)]
    assert sorted(told) == [number for number, row in enumerate(values) if not fits(row)]


def test_numbers_that_become_equal_are_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversions, "_told", set())
    times = [1_700_000_000 + number / 10 for number in range(100)]
    fractions = np.random.default_rng(0).random(10_000)
    for name, values in (("score", fractions), ("gone", [1e300, 2e300]), ("time", times)):
        feature = Feature(name, FLOAT)
        for _ in range(2):
            settle_column(pa.array(values), feature)
    assert caplog.messages == [
        "column 'time': of 100 different numbers 1 is left as 32-bit floats, the only ones of "
        "tf.Example: make them whole numbers, such as microseconds, or a TENSOR of float64"
    ]
