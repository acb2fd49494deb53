"""EncodeFeatures in a pipeline: final columns, rejects, and vocabularies learned from the rows that stay."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from schemas.image_classification import image_classification
from shardwright.schema import ExampleSchema, Feature, FeatureKind, Source
from tests.helpers import references, rejects_of, rows_of, run_transform
from transforms.encode_features import EncodeFeatures
from transforms.features.rows import index_labels, index_references, settle_references
from transforms.references import LABEL_INDEX, PICTURE_TYPE, REFERENCE_SCHEMA, digest_of

IMAGE = Feature("image", FeatureKind.IMAGE, Source.IMAGE)
LABEL = Feature("label", FeatureKind.CLASS_LABEL, Source.LABEL)
PLACE = {"uri": "/m.png", "offset": 3, "num_bytes": 5, "etag": "e"}
RICH = ExampleSchema(
    (
        IMAGE,
        LABEL,
        Feature("n", FeatureKind.INT64, dtype="uint8", column="number"),
        Feature("tags", FeatureKind.MULTI_LABEL),
        Feature("words", FeatureKind.BAG_OF_WORDS, column="text", keys=("words/i", "words/v")),
        Feature("tokens", FeatureKind.TOKENS, column="text"),
        Feature("mask", FeatureKind.MASK, default=""),
        Feature("objects/bbox", FeatureKind.BOX, shape=(None, 4), sequence="objects"),
        Feature("objects/label", FeatureKind.CLASS_LABEL, shape=(None,), sequence="objects"),
    )
)


def rich_references(ids: list[str], split: str = "train", **changes: Any) -> pa.RecordBatch:
    one = {
        "number": 7,
        "tags": ["b", "a"],
        "text": "the dog the",
        "objects/bbox": [0.0, 0.0, 0.5, 1.0],
        "objects/label": ["cat"],
        "unasked": "x",
    }
    extras: dict[str, Any] = {
        f"x/{name}": [changes.get(name, value)] * len(ids) for name, value in one.items()
    }
    extras["x/mask"] = pa.array([changes.get("mask", PLACE)] * len(ids), PICTURE_TYPE)
    return references(ids, label=changes.get("label", "q"), split=split, extras=extras)


def test_class_names_are_learned_from_all_batches() -> None:
    batches = [
        references(["1", "2"], label=["dog", "cat"]),
        references(["3", "4"], label=["ant", None]),
        references(["5"], label="cat"),
    ]
    run = run_transform(EncodeFeatures(image_classification()), batches)
    assert run.outputs["vocabularies"] == [{"label": ("ant", "cat", "dog")}]
    assert [(row["id"], row[LABEL_INDEX]) for row in run.rows] == [
        ("1", 2),
        ("2", 1),
        ("3", 0),
        ("5", 1),
    ]
    assert run.rejects == [("4", "missing_label")]
    assert run.counters == {"rejects_missing_label": 1}


@pytest.mark.parametrize(("integers", "names"), [(True, ("2", "10")), (False, ("10", "2"))])
def test_integer_labels_are_ordered_by_value(integers: bool, names: tuple[str, ...]) -> None:
    run = run_transform(
        EncodeFeatures(image_classification(), integer_labels=integers),
        [references(["1", "2"], label=["10", "2"])],
    )
    assert run.outputs["vocabularies"] == [{"label": names}]
    assert [names[row[LABEL_INDEX]] for row in run.rows] == ["10", "2"]


def test_class_names_that_are_given() -> None:
    transform = EncodeFeatures(image_classification(), class_names=("dog", "unseen", "cat"))
    run = run_transform(transform, [references(["1", "2", "3"], label=["cat", "cow", "dog"])])
    assert run.outputs["vocabularies"] == [{"label": ("dog", "unseen", "cat")}]
    assert [(row["id"], row[LABEL_INDEX]) for row in run.rows] == [("1", 2), ("3", 0)]
    assert run.rejects == [("2", "unknown_label")]


@pytest.mark.parametrize("batches", [[], [references(["1", "2"])]])
def test_without_any_label_the_dataset_is_unlabeled(batches: list[pa.RecordBatch]) -> None:
    run = run_transform(EncodeFeatures(image_classification()), batches)
    assert run.outputs["vocabularies"] == [{"label": ()}]
    assert ([row[LABEL_INDEX] for row in run.rows], run.rejects) == ([None] * 2 * len(batches), [])


def test_every_kind_at_once() -> None:
    batches = [
        rich_references(["1", "2"]),
        rich_references(["3"], split="test", text="a new dog", tags=["c"], mask=None),
    ]
    run = run_transform(EncodeFeatures(RICH), batches)
    assert run.rejects == []
    assert run.outputs["vocabularies"] == [
        {
            "label": ("q",),
            "tags": ("a", "b", "c"),
            "words": ("dog", "the"),
            "tokens": ("[UNK]", "dog", "the"),
            "objects/label": ("cat",),
        }
    ]
    stored = {
        "label_index": 0, "x/n": 7, "x/tags": [0, 1], "x/words/i": [0, 1], "x/words/v": [1, 2], "x/tokens": [2, 1, 2], "x/mask": PLACE,
        "x/objects/bbox": [0, 0, 0.5, 1], "x/objects/label": [0],
    }  # fmt: skip
    changed = {
        "x/tags": [2],
        "x/words/i": [0],
        "x/words/v": [1],
        "x/tokens": [0, 1],
        "x/mask": None,
    }
    own = [
        {name: row[name] for name in row if name not in REFERENCE_SCHEMA.names} for row in run.rows
    ]
    assert own == [stored, stored, stored | changed]
    assert list(own[0]) == [
        "label_index",
        *(name for name in stored if name != "label_index"),
    ]  # in writing order
    types = {
        batch.schema.field(name).type
        for batch in run.outputs["main"]
        for name in ("x/n", "x/words/v", "x/mask")
    }
    assert types == {pa.int64(), pa.list_(pa.float32()), PICTURE_TYPE}


@pytest.mark.parametrize(
    ("changes", "reason", "detail"),
    [
        ({"number": 256}, "bad_value", "row 0: 'number' is 256, which does not fit uint8"),
        ({"number": None}, "bad_value", "row 0: 'number' has no value, and an integer feature needs one"),
        ({"objects/label": ["cat", "dog"]}, "bad_value",
            "row 0: 'objects/label' has not as many items as 'objects/bbox', and 'objects' is a sequence of both"),
        ({"objects/bbox": [0.0, 0, 2, 1]}, "bad_value", "row 0: 'objects/bbox' is [0.0, 0.0, 2.0, 1.0]; a box is ymin, xmin, ymax, xmax"),
        ({"tags": ["a", None]}, "missing_label", "row 0: 'tags' has no class, and each item needs one"),
        ({"label": None}, "missing_label", "other images have a label, this one has none"),
    ],
)  # fmt: skip
def test_a_row_that_does_not_fit(changes: dict[str, Any], reason: str, detail: str) -> None:
    """Its neighbours go on, and nothing is learned from it but what a row with its label teaches."""
    bad = rich_references(["bad"], **{"text": "rare", **changes})
    run = run_transform(EncodeFeatures(RICH), [rich_references(["good"]), bad])
    assert run.rejects == [("bad", reason)]
    assert run.outputs["rejects"][0].detail.startswith(detail)
    assert [row["id"] for row in run.rows] == ["good"]
    if "label" not in changes:
        assert run.outputs["vocabularies"][0]["words"] == ("dog", "the")


def test_a_long_value_is_cut_in_the_message() -> None:
    schema = ExampleSchema((IMAGE, Feature("n", FeatureKind.INT64, shape=(2,))))
    (reject,) = rejects_of(
        settle_references(references(["a"], extras={"x/n": [list(range(500))]}), schema)
    )
    assert (
        reject.detail
        == f"row 0: 'n' is {str(list(range(500)))[:80]}..., which has not the shape (2)"
    )


def test_one_reject_a_row() -> None:
    schema = ExampleSchema(
        (IMAGE, Feature("a", FeatureKind.INT64), Feature("b", FeatureKind.INT64))
    )
    batch = references(
        ["1", "2"],
        extras={"x/a": pa.array([None, 1], pa.int64()), "x/b": pa.array([None, 2], pa.int64())},
    )
    parts = list(settle_references(batch, schema))
    assert [reject.detail for reject in rejects_of(parts)] == [
        "row 0: 'a' has no value, and an integer feature needs one"
    ]
    assert [row["id"] for row in rows_of(parts)] == ["2"]


def test_names_that_are_given_reject_others() -> None:
    schema = ExampleSchema((IMAGE, Feature("c", FeatureKind.CLASS_LABEL, names=("dog", "cat"))))
    run = run_transform(
        EncodeFeatures(schema), [references(["1", "2"], extras={"x/c": ["cat", "cow"]})]
    )
    assert [(row["id"], row["x/c"]) for row in run.rows] == [("1", 1)]
    assert [reject.detail for reject in run.outputs["rejects"]] == [
        "row 1: 'c' is 'cow', which is not all known class names"
    ]


def test_indices() -> None:
    batch = references(list("12345"), label=["cat", "dog", None, "cow", "cat"])
    parts = list(index_labels(batch, ("dog", "cat")))
    assert {row["id"]: row[LABEL_INDEX] for row in rows_of(parts)} == {"1": 1, "2": 0, "5": 1}
    assert [(reject.id, str(reject.reason), reject.detail) for reject in rejects_of(parts)] == [
        ("3", "missing_label", "other images have a label, this one has none"),
        ("4", "unknown_label", "label 'cow' is not a known class name"),
    ]


def test_no_classes_is_an_unlabeled_dataset() -> None:
    (batch,) = index_labels(references(["1", "2"]), ())
    assert isinstance(batch, pa.RecordBatch)
    assert batch.column(LABEL_INDEX).to_pylist() == [None, None]
    assert batch.schema.field(LABEL_INDEX).type == pa.int64()


def test_final_values_are_what_digests_cover() -> None:
    """A vocabulary that moves an index makes a shard stale, although no text of the input has changed."""
    schema = ExampleSchema((IMAGE, Feature("c", FeatureKind.CLASS_LABEL)))
    (settled,) = settle_references(references(["1"], extras={"x/c": ["dog"]}), schema)
    assert isinstance(settled, pa.RecordBatch)
    digests = set()
    for names in (("cat", "dog"), ("dog",), ("ant", "dog")):
        (batch,) = index_references(settled, schema, {"c": names})
        assert isinstance(batch, pa.RecordBatch)
        digests.add(digest_of(b"", batch))
    assert len(digests) == 2


def test_the_same_rows_in_any_batches() -> None:
    """However the source cuts its rows, they come out the same."""
    one = run_transform(EncodeFeatures(RICH), [rich_references(["1", "2", "3"])])
    many = run_transform(EncodeFeatures(RICH), [rich_references([name]) for name in "321"])
    assert [row | {"row": 0} for row in one.rows] == [row | {"row": 0} for row in many.rows]
    assert one.outputs["vocabularies"] == many.outputs["vocabularies"]
