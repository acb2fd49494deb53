"""EncodeFeatures in a pipeline: columns, rejects, and vocabularies learned from the rows kept."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from shardwright.format.schema import ExampleSchema, Feature, Source
from shardwright.format.schema import FeatureKind as K
from shardwright.schemas.ready import image_classification
from shardwright.transforms.features.encode_features import EncodeFeatures
from shardwright.transforms.features.rows import index_labels, index_references, settle_references
from shardwright.transforms.references import (
    HASH,
    LABEL_INDEX,
    PICTURE_TYPE,
    REFERENCE_SCHEMA,
    digest_of,
)
from tests.support.helpers import Run, references, rejects_of, rows_of, run_transform

IMAGE = Feature("image", K.IMAGE, Source.IMAGE)
PLACE = {"uri": "/m.png", "offset": 3, "num_bytes": 5, "etag": "e"}
RICH = ExampleSchema(
    (
        IMAGE,
        Feature("label", K.CLASS_LABEL, Source.LABEL),
        Feature("n", K.INT64, dtype="uint8", column="number"),
        Feature("tags", K.MULTI_LABEL),
        Feature("words", K.BAG_OF_WORDS, column="text", keys=("words/i", "words/v")),
        Feature("tokens", K.TOKENS, column="text"),
        Feature("mask", K.MASK, default=""),
        Feature("objects/bbox", K.BOX, shape=(None, 4), sequence="objects"),
        Feature("objects/label", K.CLASS_LABEL, shape=(None,), sequence="objects"),
    )
)


def rich_references(ids: list[str], split: str = "train", **changes: Any) -> pa.RecordBatch:
    row = {
        "number": 7, "tags": ["b", "a"], "text": "the dog the", "unasked": "x",
        "objects/bbox": [0.0, 0.0, 0.5, 1.0], "objects/label": ["cat"],
        "mask": PLACE, "label": "q", **changes,
    }  # fmt: skip
    label, masks = row.pop("label"), pa.array([row.pop("mask")] * len(ids), PICTURE_TYPE)
    extras = {f"x/{name}": [value] * len(ids) for name, value in row.items()}
    return references(ids, label=label, split=split, extras={**extras, "x/mask": masks})


def classify(*batches: pa.RecordBatch, **options: Any) -> Run:
    return run_transform(EncodeFeatures(image_classification(), **options), batches)


def indices(run: Run) -> list[tuple[str, int | None]]:
    return [(row["id"], row[LABEL_INDEX]) for row in run.rows]


def test_class_names_are_learned_from_all_batches() -> None:
    run = classify(
        references(["1", "2"], label=["dog", "cat"]),
        references(["3", "4"], label=["ant", None]),
        references(["5"], label="cat"),
    )
    assert run.outputs["vocabularies"] == [{"label": ("ant", "cat", "dog")}]
    assert indices(run) == [("1", 2), ("2", 1), ("3", 0), ("5", 1)]
    assert run.rejects == [("4", "missing_label")]
    assert run.counters == {"rejects_missing_label": 1}


@pytest.mark.parametrize(
    ("are_names", "names", "found"),
    [(False, ("0", "1", "2"), [("1", 2), ("2", 1)]), (True, ("1", "2"), [("1", 1), ("2", 0)])],
)
def test_class_numbers_stay(
    are_names: bool, names: tuple[str, ...], found: list[tuple[str, int]]
) -> None:
    run = classify(references(["1", "2"], label=["2", "1"]), labels_are_names=are_names)
    assert (run.outputs["vocabularies"], indices(run)) == ([{"label": names}], found)


def test_given_class_names() -> None:
    names = ("dog", "unseen", "cat")
    batch = references(["1", "2", "3"], label=["cat", "cow", "dog"])
    run = classify(batch, class_names=names)
    assert run.outputs["vocabularies"] == [{"label": names}]
    assert (indices(run), run.rejects) == ([("1", 2), ("3", 0)], [("2", "unknown_label")])


@pytest.mark.parametrize("ids", [[], ["1", "2"]])
def test_without_labels_the_dataset_is_unlabeled(ids: list[str]) -> None:
    run = classify(*([references(ids)] if ids else []))
    assert run.outputs["vocabularies"] == [{"label": ()}]
    assert (indices(run), run.rejects) == ([(image_id, None) for image_id in ids], [])


def test_every_kind_at_once() -> None:
    changed_row = rich_references(["3"], split="test", text="a new dog", tags=["c"], mask=None)
    run = run_transform(EncodeFeatures(RICH), [rich_references(["1", "2"]), changed_row])
    assert run.rejects == []
    words = ("dog", "the")
    (vocabularies,) = run.outputs["vocabularies"]
    assert vocabularies == {
        "label": ("q",), "tags": ("a", "b", "c"), "words": words, "tokens": ("[UNK]", *words),
        "objects/label": ("cat",),
    }  # fmt: skip
    stored = {
        "label_index": 0, "x/n": 7, "x/tags": [0, 1], "x/words/i": [0, 1], "x/words/v": [1, 2],
        "x/tokens": [2, 1, 2], "x/mask": PLACE, "x/objects/bbox": [0, 0, 0.5, 1],
        "x/objects/label": [0],
    }  # fmt: skip
    changed = stored | {
        "x/tags": [2], "x/words/i": [0], "x/words/v": [1], "x/tokens": [0, 1], "x/mask": None,
    }  # fmt: skip
    own = [
        {name: row[name] for name in row if name not in (*REFERENCE_SCHEMA.names, HASH)}
        for row in run.rows
    ]
    assert own == [stored, stored, changed]
    assert list(own[0]) == list(stored), "in writing order"
    wanted = [pa.int64(), pa.list_(pa.float32()), PICTURE_TYPE]
    for batch in run.outputs["main"]:
        assert [batch.schema.field(name).type for name in ("x/n", "x/words/v", "x/mask")] == wanted


BAD_ROWS: list[tuple[dict[str, Any], str, str]] = [
    ({"number": 256}, "bad_value", "row 0: 'number' is 256, which does not fit uint8"),
    ({"number": None}, "bad_value", "row 0: 'number' has no value, and an integer feature needs"),
    ({"objects/label": ["cat", "dog"]}, "bad_value",
     "row 0: 'objects/label' must have as many items as 'objects/bbox', because both belong to the"
     " sequence 'objects'"),
    ({"objects/bbox": [0.0, 0, 2, 1]}, "bad_value",
     "row 0: 'objects/bbox' is [0.0, 0.0, 2.0, 1.0]; a box must be ymin, xmin, ymax, xmax"),
    ({"tags": ["a", None]}, "missing_label",
     "row 0: 'tags' has no class: add one, or give the feature a default"),
    ({"label": None, "text": "the dog"}, "missing_label",
     "other images have a label, this one has none"),
]  # fmt: skip


def test_rows_that_do_not_fit_are_rejected_and_teach_no_words() -> None:
    bad = [
        rich_references([str(number)], **{"text": "rare", **changes})
        for number, (changes, _, _) in enumerate(BAD_ROWS)
    ]
    run = run_transform(EncodeFeatures(RICH), [rich_references(["good"]), *bad])
    assert run.rejects == [(str(number), reason) for number, (_, reason, _) in enumerate(BAD_ROWS)]
    for reject in run.outputs["rejects"]:
        assert reject.detail.startswith(BAD_ROWS[int(reject.id)][2])
    assert [row["id"] for row in run.rows] == ["good"]
    assert run.outputs["vocabularies"][0]["words"] == ("dog", "the")


def test_a_long_value_is_cut_in_the_message() -> None:
    schema = ExampleSchema((IMAGE, Feature("n", K.INT64, shape=(2,))))
    batch = references(["a"], extras={"x/n": [list(range(500))]})
    (reject,) = rejects_of(settle_references(batch, schema))
    shown = str(list(range(500)))[:80]
    assert reject.detail == f"row 0: 'n' is {shown}..., which does not have the shape (2)"


def test_one_reject_a_row() -> None:
    schema = ExampleSchema((IMAGE, Feature("a", K.INT64), Feature("b", K.INT64)))
    ones, twos = (pa.array([None, number], pa.int64()) for number in (1, 2))
    batch = references(["1", "2"], extras={"x/a": ones, "x/b": twos})
    parts = list(settle_references(batch, schema))
    (reject,) = rejects_of(parts)
    assert reject.detail == "row 0: 'a' has no value, and an integer feature needs one"
    assert [row["id"] for row in rows_of(parts)] == ["2"]


def test_given_names_reject_others() -> None:
    schema = ExampleSchema((IMAGE, Feature("c", K.CLASS_LABEL, names=("dog", "cat"))))
    batch = references(["1", "2"], extras={"x/c": ["cat", "cow"]})
    run = run_transform(EncodeFeatures(schema), [batch])
    assert [(row["id"], row["x/c"]) for row in run.rows] == [("1", 1)]
    (reject,) = run.outputs["rejects"]
    assert reject.detail == "row 1: 'c' is 'cow': unknown class name"


def test_indices() -> None:
    batch = references(list("123456"), label=["cat", "dog", None, "cow", "cat", "b\nc"])
    parts = list(index_labels(batch, ("dog", "cat")))
    assert {row["id"]: row[LABEL_INDEX] for row in rows_of(parts)} == {"1": 1, "2": 0, "5": 1}
    assert [(reject.id, str(reject.reason), reject.detail) for reject in rejects_of(parts)] == [
        ("3", "missing_label", "other images have a label, this one has none"),
        ("4", "unknown_label", "label 'cow' is not a known class name"),
        ("6", "unknown_label",
         "label 'b\\nc' is blank or has a line break, which labels.txt cannot hold: rename it"),
    ]  # fmt: skip


def test_digests_cover_final_values() -> None:
    """A vocabulary that moves an index makes a shard stale, even if no input text changed."""
    schema = ExampleSchema((IMAGE, Feature("c", K.CLASS_LABEL)))
    (settled,) = settle_references(references(["1"], extras={"x/c": ["dog"]}), schema)
    digests = set()
    for names in (("cat", "dog"), ("dog",), ("ant", "dog")):
        (batch,) = index_references(settled, schema, {"c": names})
        digests.add(digest_of(b"", batch))
    assert len(digests) == 2


def test_batches_change_no_row() -> None:
    one = run_transform(EncodeFeatures(RICH), [rich_references(["1", "2", "3"])])
    many = run_transform(EncodeFeatures(RICH), [rich_references([name]) for name in "321"])
    assert [row | {"row": 0} for row in one.rows] == [row | {"row": 0} for row in many.rows]
    assert one.outputs["vocabularies"] == many.outputs["vocabularies"]
