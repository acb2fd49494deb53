"""Columns of whole batches: from the index, of rows left out or blanked, filled by many threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardwright.format.example import ExampleFault
from shardwright.reader.class_encodings import MultiHot, OneHot
from shardwright.reader.columns import ColumnReader
from shardwright.reader.encodings import Encoding
from shardwright.reader.list_encodings import Dense, Sparse
from tests.support import damage
from tests.support.column_records import CLASSES, GARDEN, SCHEMA, fill, plain, record


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
    features = {"image/class/label": encoding, "image/class/text": None}
    labels = [2, 0, 1, 1]
    texts = [CLASSES[label].encode() for label in labels]
    records = [
        damage.example({"image/class/label": [label], "image/class/text": [text]})
        for label, text in zip(labels, texts, strict=True)
    ]
    columns = ColumnReader(GARDEN, features)
    store = columns.allocate(4)
    assert columns.fill_indexed(store, np.array(labels)) == {}
    assert plain(columns.finish(store)) == plain(fill(ColumnReader(GARDEN, features), records))


def test_labels_of_the_index_without_a_place() -> None:
    features = {"image/class/label": OneHot(), "image/class/text": None}
    columns = ColumnReader(GARDEN, features)
    store = columns.allocate(4)
    faults = columns.fill_indexed(store, np.array([1, 3, 2, -1]))
    assert {row: str(fault) for row, fault in faults.items()} == {
        1: "feature 'image/class/label' is 3; labels of 3 classes are 0 to 2",
        3: "feature 'image/class/label' is -1; labels of 3 classes are 0 to 2",
    }
    kept = np.array([True, False, True, False])
    assert plain(columns.finish(store, kept, pad=True)) == {
        "image/class/label": [[0, 1, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0]],
        "image/class/text": ["bee", "", "Löwe", ""],
    }
    texts = ColumnReader(GARDEN, ["image/class/text"])
    faults = texts.fill_indexed(texts.allocate(2), np.array([-1, 2]))
    assert {row: str(fault) for row, fault in faults.items()} == {
        0: "feature 'image/class/text' is the name of label -1, but there are 3 classes",
    }


def test_rows_left_out_and_rows_blanked() -> None:
    boxes = Dense(3, fill=-1)
    features = {
        "label": OneHot(), "id": None, "tags": None, "boxes": boxes, "scores": Sparse(),
        "ratio": None,
    }  # fmt: skip
    columns = ColumnReader(SCHEMA, features)
    records = [record(label=[label], id=[b"%d" % label], ratio=[0.5 + label]) for label in range(3)]
    cut = fill(columns, records, [True, False, True])
    assert cut.pop("scores").dense_shape == (2, 2)
    assert plain(cut) == {
        "label": [[1, 0, 0], [0, 0, 1]], "id": ["0", "2"], "tags": [[b"a", b"b"]] * 2,
        "boxes": [[1, 2, 3]] * 2, "ratio": [0.5, 2.5],
    }  # fmt: skip
    padded = fill(columns, records, [True, False, True], pad=True)
    sparse = padded.pop("scores")
    assert (sparse.dense_shape, sorted(set(sparse.indices[:, 0].tolist()))) == ((3, 2), [0, 2])
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
