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


def test_columns_are_in_the_order_of_their_names() -> None:
    features = {"tags": Dense(3), "label": OneHot(), "image": None, "caption": Text(), "id": None}
    columns = ColumnReader(SCHEMA, features)
    batch = fill(columns, [record(), record(label=[0])])
    assert list(batch) == [feature.name for feature in columns.features] == list(columns.spec(2))
    assert list(batch) == ["tags", "label", "caption", "id"]
    assert columns.encodings["label"] == OneHot(3)
    assert batch["id"].tolist() == ["a/Löwe.png"] * 2


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


def test_an_unknown_feature() -> None:
    what = "feature 'labels' is not in this dataset, which has image, id, label, count"
    with pytest.raises(UsageError, match=what):
        ColumnReader(SCHEMA, ["labels"])


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


NOT_AN_EXAMPLE = r"^not a tf\.Example: "


@pytest.mark.parametrize(("features", "data", "what"), [
    (None, b"\xff", NOT_AN_EXAMPLE),
    (None, b"\x0a\x05\x0a", NOT_AN_EXAMPLE),
    (None, b"not an example at all", NOT_AN_EXAMPLE),
    (None, record()[:-1], NOT_AN_EXAMPLE),
    (["label"], b"", "^feature 'label' is missing$"),
    (None, record(count=None), "^feature 'count' is missing$"),
    (None, record(boxes=None), "^feature 'boxes' is missing$"),
    (None, record(image=None), "^feature 'image' is missing$"),
    (None, record(image=[b"a", b"b"]), "^feature 'image' has 2 values, the schema says 1$"),
    (None, record(image=[300]), "^feature 'image' holds int64 values, the schema says bytes$"),
])  # fmt: skip
def test_faults_of_records(features: Any, data: bytes, what: str) -> None:
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
