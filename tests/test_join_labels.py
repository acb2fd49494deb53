"""JoinLabels in a pipeline: class names from all batches, indices into them, and the join with a table of labels."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.arguments import ROLES
from tests.helpers import references, run_transform
from transforms.inputs.detection import detect_source
from transforms.inputs.tables import TableSource
from transforms.join_labels import JoinLabels
from transforms.labels import LABEL_INDEX


def labels_table(tmp_path: Path, text: str) -> TableSource:
    (tmp_path / "labels.csv").write_text(text)
    source = detect_source(str(tmp_path / "labels.csv"), dict.fromkeys(ROLES))
    assert isinstance(source, TableSource)
    return source.of_labels()


def test_class_names_are_learned_from_all_batches() -> None:
    batches = [references(["1", "2"], label=["dog", "cat"]), references(["3", "4"], label=["ant", None]), references(["5"], label="cat")]
    run = run_transform(JoinLabels(), batches)
    assert run.outputs["class_names"] == [("ant", "cat", "dog")]
    assert [(row["id"], row[LABEL_INDEX]) for row in run.rows] == [("1", 2), ("2", 1), ("3", 0), ("5", 1)]
    assert run.rejects == [("4", "missing_label")]
    assert run.counters == {"rejects_missing_label": 1}


@pytest.mark.parametrize(("integers", "names"), [(True, ("2", "10")), (False, ("10", "2"))])
def test_integer_labels_are_ordered_by_value(integers: bool, names: tuple[str, ...]) -> None:
    run = run_transform(JoinLabels(integer_labels=integers), [references(["1", "2"], label=["10", "2"])])
    assert run.outputs["class_names"] == [names]
    assert [names[row[LABEL_INDEX]] for row in run.rows] == ["10", "2"]


def test_class_names_that_are_given() -> None:
    run = run_transform(JoinLabels(class_names=("dog", "unseen", "cat")), [references(["1", "2", "3"], label=["cat", "cow", "dog"])])
    assert run.outputs["class_names"] == [("dog", "unseen", "cat")]
    assert [(row["id"], row[LABEL_INDEX]) for row in run.rows] == [("1", 2), ("3", 0)]
    assert (run.rejects, run.counters) == ([("2", "unknown_label")], {"rejects_unknown_label": 1})


@pytest.mark.parametrize("batches", [[], [references(["1", "2"])]])
def test_no_labels_at_all_is_an_unlabeled_dataset(batches: list[object]) -> None:
    run = run_transform(JoinLabels(), batches)
    assert run.outputs["class_names"] == [()]
    assert ([row[LABEL_INDEX] for row in run.rows], run.rejects) == ([None] * 2 * len(batches), [])


def test_a_table_of_labels(tmp_path: Path) -> None:
    table = labels_table(
        tmp_path,
        "image,label,split,n\nb.png,dog,test,2\n./a.png,cat,,1\nc.png,,train,3\nunused.png,cow,train,4\nx.png,cat,train,\nlost\ny.png,cat,test,\n",
    )
    batches = [references(["a.png", "b.png"], split="train"), references(["c.png", "d.png", "x.png"])]
    run = run_transform(JoinLabels(table=table), batches)
    assert run.outputs["class_names"] == [("cat", "dog")]  # classes of images, not of rows that no image has
    assert [(row["id"], row["label"], row["x/n"]) for row in run.rows] == [("a.png", "cat", 1), ("b.png", "dog", 2)]
    # One reject an image; a line that no image can be told of is one of its own, a fault in an unused row is none.
    assert run.rejects == [("", "bad_value"), ("c.png", "missing_label"), ("d.png", "missing_label"), ("x.png", "bad_value")]
    details = {reject.id: reject.detail for reject in run.outputs["rejects"]}
    assert details["x.png"] == "the --labels table: row 4: 'n' has no value, and an integer feature needs one"
    assert details["d.png"] == "the --labels table has no row for this id"
    assert run.counters == {"rejects_missing_label": 2, "rejects_bad_value": 2}


def test_a_table_of_labels_without_rows(tmp_path: Path) -> None:
    run = run_transform(JoinLabels(table=labels_table(tmp_path, "image,label\n")), [references(["a.png"])])
    assert (run.rows, run.rejects, run.outputs["class_names"]) == ([], [("a.png", "missing_label")], [()])


def test_a_table_of_labels_with_two_rows_for_one_image(tmp_path: Path) -> None:
    table = labels_table(tmp_path, "image,label\na.png,cat\n./a.png,dog\n")
    with pytest.raises(Exception, match=r"the --labels table has more than one row for 'a\.png'"):
        run_transform(JoinLabels(table=table), [references(["a.png"])])
