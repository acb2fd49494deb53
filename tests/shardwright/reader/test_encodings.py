"""Columns of each encoding and kind of feature, and errors: of arguments, features and values."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shardwright.errors import UsageError
from shardwright.format.example import ExampleFault
from shardwright.format.schema import Feature, FeatureKind, Source
from shardwright.reader.encodings import Dense, Encoding, MultiHot, OneHot, Text

CLASSES = ("ape", "bee", "Löwe")
LABEL = Feature("label", FeatureKind.CLASS_LABEL, Source.LABEL)
LABELS = Feature("labels", FeatureKind.CLASS_LABEL, shape=(None,))
COUNT = Feature("count", FeatureKind.INT64)
BOXES = Feature("boxes", FeatureKind.INT64, shape=(None,))
RATIO = Feature("ratio", FeatureKind.FLOAT32)
SCORES = Feature("scores", FeatureKind.FLOAT32, shape=(None,))
ID = Feature("id", FeatureKind.TEXT, Source.ID)
NAMES = Feature("names", FeatureKind.TEXT, shape=(None,))
CAPTION = Feature("caption", FeatureKind.BYTES)
TAGS = Feature("tags", FeatureKind.BYTES, shape=(None,))
BAG = Feature("words", FeatureKind.BAG_OF_WORDS)


def column(encoding: Encoding, feature: Feature, rows: list[list[Any]]) -> Any:
    """Return the finished column; its shape and dtype must be those of the encoding's spec."""
    encoding = encoding.complete(feature, CLASSES)
    store = encoding.allocate(feature, len(rows))
    for row, values in enumerate(rows):
        store[row] = encoding.encode(feature, values)
    found = encoding.finish(feature, store)
    shape, dtype = encoding.spec(feature, len(rows))
    assert (found.dtype, found.shape) == (dtype, shape)
    assert encoding.spec(feature, None) == ((None, *shape[1:]), dtype)
    return found


def plain(found: Any) -> Any:
    """Return a column as lists."""
    return [row.tolist() if isinstance(row, np.ndarray) else row for row in found]


AS_STORED = [
    (LABEL, [[2], [0]], [2, 0]),
    (COUNT, [[2**62], [-(2**63)]], [2**62, -(2**63)]),
    (RATIO, [[0.5], [-1.0]], [0.5, -1.0]),
    (ID, [["Löwe".encode()], [b"\xff"]], ["Löwe", "\udcff"]),
    (CAPTION, [["Löwe".encode()], [b""]], ["Löwe".encode(), b""]),
    (BOXES, [[1, 2], [], [3]], [[1, 2], [], [3]]),
    (BOXES, [[1], [2]], [[1], [2]]),
    (SCORES, [[0.5], [1.5, 2.5], []], [[0.5], [1.5, 2.5], []]),
    (NAMES, [[b"a", b"b"], []], [["a", "b"], []]),
    (TAGS, [[b"a", b"\xff"], [b"c", b"d"]], [[b"a", b"\xff"], [b"c", b"d"]]),
]
ENCODED = [
    (Text(), CAPTION, [["Löwe".encode()], [b"\xff"]], ["Löwe", "\udcff"]),
    (Text(), TAGS, [[b"a", b"b"], [], [b"c"]], [["a", "b"], [], ["c"]]),
    (OneHot(), LABEL, [[2], [0]], [[0, 0, 1], [1, 0, 0]]),
    (MultiHot(), LABELS, [[2, 0], []], [[1, 0, 1], [0, 0, 0]]),
    (MultiHot(4), BOXES, [[3, 3], [0, 1]], [[0, 0, 0, 1], [1, 1, 0, 0]]),
    (Dense(3), BOXES, [[1, 2], [], [4, 5, 6]], [[1, 2, 0], [0, 0, 0], [4, 5, 6]]),
    (Dense(2, fill=-1), BOXES, [[1], [2, 3]], [[1, -1], [2, 3]]),
    (Dense(2, fill=-1, truncate=True), BOXES, [[1, 2, 3]], [[1, 2]]),
    (Dense(2, fill=0.5), SCORES, [[1.5], []], [[1.5, 0.5], [0.5, 0.5]]),
    (Dense(2), TAGS, [[b"a"]], [[b"a", b""]]),
    (Dense(2, fill=0), NAMES, [[b"a"], []], [["a", ""], ["", ""]]),
    (Dense(2, fill="?"), NAMES, [[b"a"]], [["a", "?"]]),
    (Dense(1, fill=b"?"), TAGS, [[], [b"abc"]], [[b"?"], [b"abc"]]),
]  # fmt: skip


@pytest.mark.parametrize(("feature", "rows", "wanted"), AS_STORED)
def test_as_stored(feature: Feature, rows: list[list[Any]], wanted: list[Any]) -> None:
    found = column(Encoding(), feature, rows)
    assert plain(found) == wanted
    if feature.is_list:
        inner = {BOXES: np.int64, SCORES: np.float32}.get(feature, np.object_)
        assert all(row.dtype == inner and row.ndim == 1 for row in found)


@pytest.mark.parametrize(("encoding", "feature", "rows", "wanted"), ENCODED)
def test_encoded(encoding: Encoding, feature: Feature, rows: Any, wanted: Any) -> None:
    assert plain(column(encoding, feature, rows)) == wanted


@pytest.mark.parametrize("encoding", [*(encoding for encoding, *_ in ENCODED), Encoding()])
def test_encodings_are_equal_by_their_arguments(encoding: Encoding) -> None:
    """In another process too."""
    sent = pickle.loads(pickle.dumps(encoding))
    assert (sent, hash(sent)) == (encoding, hash(encoding))
    assert sent != Dense(99)


@pytest.mark.parametrize(("encoding", "feature", "blank"), [
    (Encoding(), LABEL, 0), (Encoding(), RATIO, 0.0), (Encoding(), ID, ""),
    (Encoding(), CAPTION, b""), (Encoding(), BOXES, []),
    (Encoding(), NAMES, []), (Text(), CAPTION, ""), (Text(), TAGS, []),
    (OneHot(), LABEL, [0, 0, 0]), (MultiHot(2), BOXES, [0, 0]),
])  # fmt: skip
def test_blank_rows(encoding: Encoding, feature: Feature, blank: Any) -> None:
    encoding = encoding.complete(feature, CLASSES)
    assert plain(encoding.finish(feature, encoding.allocate(feature, 2))) == [blank, blank]


def test_a_stored_row_is_not_a_view_of_its_record() -> None:
    """A view would keep the whole block of the record in memory."""
    record = np.float32([1, 2, 3])
    assert not np.shares_memory(Encoding().encode(SCORES, record), record)


BAD_ARGUMENTS = [
    (lambda: OneHot(0), "OneHot(num_classes)=0 must be a whole number, at least 1"),
    (lambda: MultiHot(-1), "MultiHot(num_classes)=-1 must be"),
    (lambda: Dense(0), "Dense(length)=0 must be a whole number, at least 1"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "what"), BAD_ARGUMENTS)
def test_bad_arguments(make: Any, what: str) -> None:
    with pytest.raises(UsageError) as told:
        make()
    assert what in str(told.value)


@pytest.mark.parametrize(("encoding", "feature", "what"), [
    (Text(), COUNT, "holds int64 values, and Text takes text or bytes"),
    (OneHot(), ID, "holds bytes values, and OneHot takes integers"),
    (OneHot(), COUNT, "has no class names: pass OneHot(num_classes=...)"),
    (OneHot(4), BOXES, "is a list, and OneHot takes one integer: use MultiHot"),
    (MultiHot(), BOXES, "has no class names: pass MultiHot(num_classes=...)"),
    (MultiHot(), TAGS, "is text: give it the kind multi_label in the schema"),
    (MultiHot(3), SCORES, "holds float values, and MultiHot takes integers"),
    (Dense(2), COUNT, "is a single value, and Dense takes lists: leave its encoding out"),
    (Dense(), BOXES, "is a list: give Dense(length=...)"),
    (Dense(2), BAG, "is a bag of 3 words, one column each: give Dense() without arguments"),
    (Dense(2, fill=256), replace(BOXES, dtype="uint8"),
     "holds int64 values, so Dense(fill=256) must be a value of uint8"),
    (Dense(2, fill=2), replace(BOXES, dtype="bool"),
     "holds int64 values, so Dense(fill=2) must be a value of bool"),
    (Dense(2, fill=0.5), BOXES,
     "holds int64 values, so Dense(fill=0.5) must be a value of int64"),
    (Dense(2, fill=2**63), BOXES,
     "holds int64 values, so Dense(fill=9223372036854775808) must be a value of int64"),
    (Dense(2, fill="a"), SCORES, "holds float values, so Dense(fill='a') must be a number"),
    (Dense(2, fill=1), NAMES, "holds bytes values, so Dense(fill=1) must be of type str"),
])  # fmt: skip
def test_unsuitable_features(encoding: Encoding, feature: Feature, what: str) -> None:
    with pytest.raises(UsageError) as told:
        encoding.complete(feature, CLASSES)
    assert f"feature {feature.name!r} {what}" in str(told.value)


def test_class_encodings_of_an_unlabeled_dataset() -> None:
    what = r"'label' has no class names: pass OneHot\(num_classes"
    with pytest.raises(UsageError, match=what):
        OneHot().complete(LABEL, ())
    assert OneHot(5).complete(LABEL, ()).spec(LABEL, 2)[0] == (2, 5)


@pytest.mark.parametrize(("encoding", "feature", "values", "what"), [
    (OneHot(), LABEL, [3], "is 3; labels of 3 classes are 0 to 2"),
    (OneHot(9), COUNT, [2**63 - 1], "is 9223372036854775807; labels of 9 classes are 0 to 8"),
    (MultiHot(3), BOXES, [0, 3], "is 3; labels of 3 classes are 0 to 2"),
    (Dense(2), BOXES, [1, 2, 3],
     "has 3 values, but Dense(length=2) takes at most 2: pass a larger length or truncate=True"),
])  # fmt: skip
def test_invalid_values(encoding: Encoding, feature: Feature, values: Any, what: str) -> None:
    with pytest.raises(ExampleFault) as told:
        encoding.complete(feature, CLASSES).encode(feature, values)
    assert f"feature {feature.name!r} {what}" in str(told.value)
