"""Records become columns of batches: the wanted ones, in their encodings; and faults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from shardwright.errors import UsageError
from shardwright.format.example import ExampleFault, parse_example, varint
from shardwright.reader.columns import ColumnReader
from shardwright.reader.encodings import Dense, Encoding, MultiHot, OneHot, Text
from shardwright.reader.options import features_of
from tests.support import damage
from tests.support.column_records import GARDEN, RECORD, SCHEMA, fill, plain, record


def test_all_features_as_stored() -> None:
    columns = ColumnReader(SCHEMA)
    assert columns.needs_record
    assert plain(fill(columns, [record()])) == {
        "id": ["a/Löwe.png"], "label": [2], "count": [2**40], "ratio": [0.5],
        "caption": ["schön".encode()], "boxes": [[1, 2, 3]], "scores": [[0.25, 0.5]],
        "tags": [[b"a", b"b"]],
    }  # fmt: skip
    assert columns.spec(4) == {
        "id": ((4,), object), "label": ((4,), np.int64), "count": ((4,), np.int64),
        "ratio": ((4,), np.float32), "caption": ((4,), object), "boxes": ((4,), object),
        "scores": ((4,), object), "tags": ((4,), object),
    }  # fmt: skip


def test_encodings_by_name() -> None:
    features = {
        "tags": Dense(3, fill=b"-"), "label": OneHot(), "image": None,
        "boxes": Dense(4, fill=-1), "scores": Dense(2), "caption": Text(), "id": None,
    }  # fmt: skip
    columns = ColumnReader(SCHEMA, features)
    batch = fill(columns, [record(), record(label=[0], tags=[], boxes=[], scores=[])])
    names = ["tags", "label", "boxes", "scores", "caption", "id"]
    assert list(batch) == [feature.name for feature in columns.features] == names
    assert columns.encodings["label"] == OneHot(3)
    assert plain(batch) == {
        "tags": [[b"a", b"b", b"-"], [b"-"] * 3], "label": [[0, 0, 1], [1, 0, 0]],
        "boxes": [[1, 2, 3, -1], [-1, -1, -1, -1]], "caption": ["schön"] * 2,
        "id": ["a/Löwe.png"] * 2, "scores": [[0.25, 0.5], [0, 0]],
    }  # fmt: skip
    shapes = [shape for shape, _ in columns.spec(2).values()]
    assert shapes == [(2, 3), (2, 3), (2, 4), (2, 2), (2,), (2,)]


@pytest.mark.parametrize(
    "names", [["label"], ["id", "boxes"], ["image"], ["caption", "caption"], ("count",)]
)
def test_only_wanted_features_are_parsed(names: Sequence[str]) -> None:
    """The others may be missing, of another kind, or no features at all."""
    kept = damage.example({name: values for name, values in RECORD.items() if name in names})
    odd = b"\x0a\x03odd\x12\x02\xff\xff"
    body = b"\x0a" + varint(len(odd)) + odd + kept[1 + len(varint(len(kept) - 2)) :]
    data = b"\x0a" + varint(len(body)) + body
    with pytest.raises(ExampleFault):
        parse_example(data)
    columns = ColumnReader(SCHEMA, names)
    store = columns.allocate(1)
    image, _ = columns.fill(store, 0, data)
    assert (image is not None) == ("image" in names) == (columns.image is not None)
    assert list(columns.finish(store)) == [name for name in dict.fromkeys(names) if name != "image"]


def test_the_image_is_not_copied() -> None:
    columns = ColumnReader(SCHEMA, ["image"])
    block = b"before" + record() + b"after"
    image, _ = columns.fill(columns.allocate(1), 0, block, 6, len(block) - 5)
    assert isinstance(image, memoryview)
    assert image.obj is block
    assert image == RECORD["image"][0]


def test_an_image_in_a_form_that_only_protobuf_reads() -> None:
    """Two Features, to be merged: the image in the first, the label in the second."""
    data = damage.example({"image": RECORD["image"]}) + damage.example({"label": [1]})
    columns = ColumnReader(SCHEMA, ["image", "label"])
    store = columns.allocate(1)
    assert columns.fill(store, 0, data)[0] == RECORD["image"][0]
    assert plain(columns.finish(store)) == {"label": [1]}


@pytest.mark.parametrize(("features", "what"), [
    (["labels"], "feature 'labels' is not in this dataset, which has image, id, label, count"),
    ({"image": Text()},
     "feature 'image' is the image, which takes no encoding: use image=... to decode it"),
    ({"tags": OneHot(3)}, "feature 'tags' holds bytes values, and OneHot takes integers"),
])  # fmt: skip
def test_features_that_cannot_be_wanted(features: Any, what: str) -> None:
    with pytest.raises(UsageError) as told:
        ColumnReader(SCHEMA, features)
    assert what in str(told.value)


@pytest.mark.parametrize(("features", "what"), [
    ("label", "features='label' must be a list of one or more names, or {name: encoding}"),
    ([], "features=[] must be a list of one or more names"),
    ({}, "features={} must be a list of one or more names"),
    (5, "features=5 must be a list of one or more names"),
    ({"label": "one_hot"}, "features={'label': 'one_hot'}: an encoding must be sw.OneHot, "),
    ({"label": OneHot}, "an encoding must be sw.OneHot, MultiHot, Dense, Text or None"),
])  # fmt: skip
def test_features_are_names_or_names_with_encodings(features: Any, what: str) -> None:
    with pytest.raises(UsageError) as told:
        features_of(features)
    assert what in str(told.value)


@pytest.mark.parametrize(("changes", "what"), [
    ({"count": None}, "feature 'count' is missing"),
    ({"boxes": None}, "feature 'boxes' is missing"),
    ({"image": None}, "feature 'image' is missing"),
    ({"count": []}, "feature 'count' has 0 values, the schema says 1"),
    ({"id": [b"a", b"b"]}, "feature 'id' has 2 values, the schema says 1"),
    ({"image": [b"a", b"b"]}, "feature 'image' has 2 values, the schema says 1"),
    ({"image": [300]}, "feature 'image' holds int64 values, the schema says bytes"),
    ({"count": [0.5]}, "feature 'count' holds float values, the schema says int64"),
    ({"label": [b"ape"]}, "feature 'label' holds bytes values, the schema says int64"),
    ({"ratio": [1]}, "feature 'ratio' holds int64 values, the schema says float"),
    ({"tags": [1, 2]}, "feature 'tags' holds int64 values, the schema says bytes"),
    ({"scores": [b"a"]}, "feature 'scores' holds bytes values, the schema says float"),
])  # fmt: skip
def test_faults_name_the_feature_and_the_rule(changes: dict[str, Any], what: str) -> None:
    columns = ColumnReader(SCHEMA)
    with pytest.raises(ExampleFault) as told:
        columns.fill(columns.allocate(1), 0, record(**changes))
    assert str(told.value) == what


NOT_AN_EXAMPLE = r"^not a tf\.Example: "


@pytest.mark.parametrize(("features", "data", "what"), [
    (None, b"\xff", NOT_AN_EXAMPLE),
    (None, b"\x0a\x05\x0a", NOT_AN_EXAMPLE),
    (None, b"not an example at all", NOT_AN_EXAMPLE),
    (None, record()[:-1], NOT_AN_EXAMPLE),
    (["label"], b"", "^feature 'label' is missing$"),
    ({"label": OneHot()}, record(label=[7]),
     "^feature 'label' is 7; labels of 3 classes are 0 to 2$"),
])  # fmt: skip
def test_faults_of_records_and_encodings(features: Any, data: bytes, what: str) -> None:
    columns = ColumnReader(SCHEMA, features)
    with pytest.raises(ExampleFault, match=what):
        columns.fill(columns.allocate(1), 0, data)


@pytest.mark.parametrize(("features", "needs_record"), [
    (["image", "label"], False), (["image"], False), ({"label": OneHot()}, False),
    (["image", "label", "id"], True), (["label", "count"], True),
])  # fmt: skip
def test_need_of_the_record(features: Any, needs_record: bool) -> None:
    """A needed record gives all features: `fill_indexed` does nothing."""
    columns = ColumnReader(SCHEMA, features)
    assert columns.needs_record == needs_record
    if needs_record:
        store = columns.allocate(1)
        assert columns.fill_indexed(store, np.array([0])) == {}
        columns.fill(store, 0, record())
        assert plain(columns.finish(store))["label"] == [2]


@pytest.mark.parametrize("encoding", [None, OneHot(), MultiHot()])
def test_labels_from_the_index_are_those_of_the_records(encoding: Encoding | None) -> None:
    features, labels = {"image/class/label": encoding}, [2, 0, 1, 1]
    records = [damage.example({"image/class/label": [label]}) for label in labels]
    columns = ColumnReader(GARDEN, features)
    store = columns.allocate(4)
    assert columns.fill_indexed(store, np.array(labels)) == {}
    assert plain(columns.finish(store)) == plain(fill(ColumnReader(GARDEN, features), records))


def test_labels_of_the_index_without_a_place() -> None:
    columns = ColumnReader(GARDEN, {"image/class/label": OneHot()})
    store = columns.allocate(4)
    faults = columns.fill_indexed(store, np.array([1, 3, 2, -1]))
    assert {row: str(fault) for row, fault in faults.items()} == {
        1: "feature 'image/class/label' is 3; labels of 3 classes are 0 to 2",
        3: "feature 'image/class/label' is -1; labels of 3 classes are 0 to 2",
    }
    kept = np.array([True, False, True, False])
    assert plain(columns.finish(store, kept, pad=True)) == {
        "image/class/label": [[0, 1, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0]],
    }


def test_rows_left_out_and_rows_blanked() -> None:
    boxes = Dense(3, fill=-1)
    features = {"label": OneHot(), "id": None, "tags": None, "boxes": boxes, "ratio": None}
    columns = ColumnReader(SCHEMA, features)
    records = [record(label=[label], id=[b"%d" % label], ratio=[0.5 + label]) for label in range(3)]
    assert plain(fill(columns, records, [True, False, True])) == {
        "label": [[1, 0, 0], [0, 0, 1]], "id": ["0", "2"], "tags": [[b"a", b"b"]] * 2,
        "boxes": [[1, 2, 3]] * 2, "ratio": [0.5, 2.5],
    }  # fmt: skip
    padded = fill(columns, records, [True, False, True], pad=True)
    assert plain(padded) == {
        "label": [[1, 0, 0], [0, 0, 0], [0, 0, 1]],
        "id": ["0", "", "2"],
        "tags": [[b"a", b"b"], [], [b"a", b"b"]],
        "boxes": [[1, 2, 3], [-1, -1, -1], [1, 2, 3]],
        "ratio": [0.5, 0, 2.5],
    }
    assert fill(columns, records, [False] * 3)["id"].tolist() == []
    assert {shape[0] for shape in (column.shape for column in padded.values())} == {3}


def test_a_record_with_a_fault_leaves_its_row_as_it_was() -> None:
    """The features before the faulty one too."""
    columns = ColumnReader(SCHEMA, ["id", "label", "ratio"])
    store = columns.allocate(2)
    columns.fill(store, 0, record())
    with pytest.raises(ExampleFault):
        columns.fill(store, 1, record(ratio=None))
    wanted = {"id": ["a/Löwe.png", ""], "label": [2, 0], "ratio": [0.5, 0]}
    assert plain(columns.finish(store)) == wanted
