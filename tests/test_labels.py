"""Class names in label order, label indices, and the join with a table of labels."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from shardwright.errors import BuildError, UsageError
from tests.helpers import references, rejects_of, rows_of
from transforms import labels
from transforms.labels import LABEL_INDEX, LabelTable, index_labels, label_names, order_class_names, read_class_names


@pytest.mark.parametrize(
    ("names", "integers", "ordered"),
    [
        ({"dog", "Cat", "cat", "ant"}, False, ("Cat", "ant", "cat", "dog")),
        ({"10", "9", "1"}, False, ("1", "10", "9")),
        ({"10", "9", "1", "-2"}, True, ("-2", "1", "9", "10")),
        ({"é", "z", "\U0001f415"}, False, ("z", "é", "\U0001f415")),
        (set(), False, ()),
    ],
)
def test_order_of_classes(names: set[str], integers: bool, ordered: tuple[str, ...]) -> None:
    assert order_class_names(names, integers=integers) == ordered


@pytest.mark.parametrize("name", ["two\nlines", "cr\rhere"])
def test_class_names_with_line_breaks(name: str) -> None:
    with pytest.raises(BuildError, match=r"class name 'two\\nlines'|class name 'cr\\rhere'"):
        order_class_names({"fine", name}, integers=False)


def test_more_labels_than_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MAX_CLASSES", 3)
    assert len(order_class_names("abc", integers=False)) == 3
    with pytest.raises(BuildError, match="there are 4 different labels, more than 3: is --label-column the right column"):
        order_class_names("abcd", integers=False)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("dog\ncat\n", ("dog", "cat")),
        (" dog \r\n\r\ncat", ("dog", "cat")),
        ("\ufeffdog\ncat", ("dog", "cat")),
        ("two words\nline\u2028separator", ("two words", "line\u2028separator")),
    ],
)
def test_class_names_file(text: str, names: tuple[str, ...]) -> None:
    assert read_class_names(text, "f.txt") == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--class-names f.txt: no names in it"),
        (" \n\n", "no names in it"),
        ("a\nb\n a\n", "--class-names f.txt: 'a' stands there twice"),
    ],
)
def test_class_names_file_errors(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_class_names(text, "f.txt")


def test_label_names_of_a_batch() -> None:
    assert label_names(references(["1", "2", "3", "4"], label=["b", None, "a", "b"])) == {"a", "b"}


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


def joined(table: list[pa.RecordBatch], batch: pa.RecordBatch) -> tuple[dict[str, Any], list[str]]:
    parts = list(LabelTable(table).join(batch))
    return {row["id"]: row for row in rows_of(parts)}, [f"{reject.id} {reject.reason}" for reject in rejects_of(parts)]


def test_join() -> None:
    table = [
        references(["b", "a"], label=["dog", "cat"], split=[None, "test"], group=["g", None], extras={"x/n": [2, 1]}),
        references(["c", "unused"], label=[None, "cow"], extras={"x/n": [3, 4]}),
    ]
    batch = references(["a", "missing", "b", "c"], uri=list("1234"), label="folder", split="train")
    rows, rejects = joined(table, batch)
    assert {image_id: (row["uri"], row["label"], row["split"], row["group"], row["x/n"]) for image_id, row in rows.items()} == {
        "a": ("1", "cat", "test", None, 1),
        "b": ("3", "dog", "train", "g", 2),
        "c": ("4", None, "train", None, 3),  # an empty cell is no label, though the folder has a name
    }
    assert rejects == ["missing missing_label"]


def test_a_table_without_a_label_column_leaves_the_folders() -> None:
    rows, _ = joined([references(["a"], extras={"x/n": [1]})], references(["a"], label="cat", split="test"))
    assert (rows["a"]["label"], rows["a"]["split"], rows["a"]["x/n"]) == ("cat", "test", 1)


@pytest.mark.parametrize("table", [[], [references([])]])
def test_a_table_without_rows(table: list[pa.RecordBatch]) -> None:
    assert joined(table, references(["a", "b"])) == ({}, ["a missing_label", "b missing_label"])


def test_two_rows_for_one_id() -> None:
    """Which one holds would depend on the order of arrival."""
    table = [references(["b", "a"]), references(["a", "b", "b"])]
    with pytest.raises(BuildError, match="the --labels table has more than one row for 'a' and 2 ids in all: keep one row an image"):
        LabelTable(table)
