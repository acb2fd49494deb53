"""Records become columns: those that are wanted, in the form that is wanted, and what is a fault."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from shardwright.errors import UsageError
from shardwright.example import ExampleFault, parse_example, varint
from shardwright.reader.class_encodings import MultiHot, OneHot
from shardwright.reader.columns import ColumnReader
from shardwright.reader.encodings import RawTensor, Text
from shardwright.reader.list_encodings import Dense, Sparse
from shardwright.reader.values import SparseColumn
from tests import damage
from tests.column_records import GARDEN, RECORD, SCHEMA, fill, kindless_entry, plain, record


def test_all_features_as_stored() -> None:
    columns = ColumnReader(SCHEMA)
    assert columns.needs_record
    assert plain(fill(columns, [record()])) == {
        "id": ["a/Löwe.png"],
        "label": [2],
        "count": [2**40],
        "ratio": [0.5],
        "caption": ["schön".encode()],
        "boxes": [[1, 2, 3]],
        "scores": [[0.25, 0.5]],
        "tags": [[b"a", b"b"]],
    }
    assert {name: dtype for name, (_, dtype) in columns.spec(4).items()} == {
        "id": object, "label": np.int64, "count": np.int64, "ratio": np.float32,
        "caption": object, "boxes": object, "scores": object, "tags": object,
    }  # fmt: skip
    assert {shape for shape, _ in columns.spec(4).values()} == {(4,)}


def test_encodings_by_name() -> None:
    features = {
        "tags": MultiHot(vocabulary=["b", "a", "c"]), "label": OneHot(), "image": None, "boxes": Dense(4, fill=-1), "scores": Sparse(),
        "caption": RawTensor("u1", 6), "id": None,
    }  # fmt: skip
    columns = ColumnReader(SCHEMA, features)
    batch = fill(columns, [record(), record(label=[0], tags=[], boxes=[], scores=[])])
    assert (
        list(batch)
        == [feature.name for feature in columns.features]
        == ["tags", "label", "boxes", "scores", "caption", "id"]
    )
    assert columns.encodings["label"] == OneHot(3)
    sparse = batch.pop("scores")
    assert isinstance(sparse, SparseColumn)
    assert (sparse.indices.tolist(), sparse.values.tolist(), sparse.dense_shape) == (
        [[0, 0], [0, 1]],
        [0.25, 0.5],
        (2, 2),
    )
    assert plain(batch) == {
        "tags": [[1, 1, 0], [0, 0, 0]],
        "label": [[0, 0, 1], [1, 0, 0]],
        "boxes": [[1, 2, 3, -1], [-1, -1, -1, -1]],
        "caption": [list("schön".encode())] * 2,
        "id": ["a/Löwe.png"] * 2,
    }
    shapes = {name: shape for name, (shape, _) in columns.spec(2).items()}
    assert shapes == {
        "tags": (2, 3),
        "label": (2, 3),
        "boxes": (2, 4),
        "scores": (2, None),
        "caption": (2, 6),
        "id": (2,),
    }


@pytest.mark.parametrize(
    "names", [["label"], ["id", "boxes"], ["image"], ["caption", "caption"], ("count",)]
)
def test_only_what_is_wanted_is_parsed(names: Sequence[str]) -> None:
    """The other features may be missing, of another kind, or no features at all."""
    kept = {name: values for name, values in RECORD.items() if name in names}
    broken = b"".join(
        b"\x0a" + varint(len(entry)) + entry for entry in [b"\x0a\x03odd\x12\x02\xff\xff"]
    )
    data = damage.example(kept)
    body = broken + data[1 + len(varint(len(data) - 2)) :]
    data = b"\x0a" + varint(len(body)) + body
    with pytest.raises(ExampleFault):
        parse_example(data)
    columns = ColumnReader(SCHEMA, names)
    store = columns.allocate(1)
    image = columns.fill(store, 0, data)
    assert (image is not None) == ("image" in names) == (columns.image is not None)
    assert list(columns.finish(store)) == [name for name in dict.fromkeys(names) if name != "image"]


def test_the_image_is_not_copied() -> None:
    columns = ColumnReader(SCHEMA, ["image"])
    block = b"before" + record() + b"after"
    image = columns.fill(columns.allocate(1), 0, block, 6, len(block) - 5)
    assert isinstance(image, memoryview)
    assert image.obj is block
    assert image == RECORD["image"][0]


def test_an_image_in_a_form_that_only_protobuf_reads() -> None:
    """Two Features, to be merged: the image in the first, the label in the second."""
    data = damage.example({"image": RECORD["image"]}) + damage.example({"label": [1]})
    columns = ColumnReader(SCHEMA, ["image", "label"])
    store = columns.allocate(1)
    assert columns.fill(store, 0, data) == RECORD["image"][0]
    assert plain(columns.finish(store)) == {"label": [1]}


def test_model_garden_names_stay_flat() -> None:
    features = {
        "image/encoded": [b"png"], "image/filename": [b"x"], "image/format": [b"png"], "image/height": [3], "image/width": [4],
        "image/class/label": [1], "image/class/text": [b"bee"],
    }  # fmt: skip
    columns = ColumnReader(
        GARDEN,
        {
            "image/encoded": None,
            "image/class/label": OneHot(),
            "image/class/text": None,
            "image/width": None,
        },
    )
    assert columns.image is not None
    assert columns.image.name == "image/encoded"
    found = plain(fill(columns, [damage.example(features)]))
    assert found == {
        "image/class/label": [[0, 1, 0]],
        "image/class/text": ["bee"],
        "image/width": [4],
    }


@pytest.mark.parametrize(
    ("features", "what"),
    [
        (
            "label",
            "features='label' must be names, such as ['image', 'id'], or names with encodings",
        ),
        ([], "features=[] must be names"),
        ({}, "features={} must be names"),
        (5, "features=5 must be names"),
        (["labels"], "feature 'labels' is not in this dataset, which has image, id, label, count"),
        (
            {"label": "one_hot"},
            "feature 'label': 'one_hot' is no encoding; give one such as OneHot(), or None",
        ),
        ({"label": OneHot}, "is no encoding"),
        (
            {"image": RawTensor("u1", 3)},
            "feature 'image' is the image, which takes no encoding: say by image=... how it is decoded",
        ),
        ({"tags": OneHot(3)}, "feature 'tags' holds bytes values, and OneHot takes integers"),
    ],
)
def test_features_that_cannot_be_wanted(features: Any, what: str) -> None:
    with pytest.raises(UsageError) as told:
        ColumnReader(SCHEMA, features)
    assert what in str(told.value)


def test_it_can_be_sent_to_another_process() -> None:
    columns = ColumnReader(
        SCHEMA,
        {
            "image": None,
            "label": OneHot(),
            "tags": MultiHot(vocabulary=["a", "b"]),
            "caption": Text(),
        },
    )
    sent = pickle.loads(pickle.dumps(columns))
    assert plain(fill(sent, [record()])) == plain(fill(columns, [record()]))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
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
    ],
)
def test_faults_name_the_feature_and_the_rule(changes: dict[str, Any], what: str) -> None:
    columns = ColumnReader(SCHEMA)
    with pytest.raises(ExampleFault) as told:
        columns.fill(columns.allocate(1), 0, record(**changes))
    assert str(told.value) == what


def test_a_fault_of_an_encoding() -> None:
    columns = ColumnReader(SCHEMA, {"label": OneHot()})
    with pytest.raises(
        ExampleFault, match=r"^feature 'label' is 7, and of 3 classes the last is 2$"
    ):
        columns.fill(columns.allocate(1), 0, record(label=[7]))


@pytest.mark.parametrize(
    "data", [b"\xff", b"\x0a\x05\x0a", b"not an example at all", record()[:-1]]
)
def test_what_is_no_example_is_a_fault(data: bytes) -> None:
    columns = ColumnReader(SCHEMA)
    with pytest.raises(ExampleFault, match=r"^not a tf\.Example: "):
        columns.fill(columns.allocate(1), 0, data)


def test_an_empty_record_lacks_everything() -> None:
    columns = ColumnReader(SCHEMA, ["label"])
    with pytest.raises(ExampleFault, match=r"^feature 'label' is missing$"):
        columns.fill(columns.allocate(1), 0, b"")


def test_empty_lists_of_every_form() -> None:
    """A list of no values, and a Feature of no kind, as some writers put it."""
    kindless = kindless_entry("boxes")
    for data in (damage.example({"boxes": []}), b"\x0a" + varint(len(kindless)) + kindless):
        assert plain(fill(ColumnReader(SCHEMA, ["boxes"]), [data])) == {"boxes": [[]]}
