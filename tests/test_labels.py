"""The join with a table of labels: what references are looked up by, what their rows bring, and what is on one side only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import BuildError
from tests.helpers import references, rejects_of, rows_of
from transforms.labels import LabelRules, LabelTable, join_bucket, shared_keys, spread

BY_ID = LabelRules("id", "/in")


def joined(
    table: list[pa.RecordBatch], batch: pa.RecordBatch, rules: LabelRules = BY_ID
) -> tuple[dict[str, Any], list[str]]:
    parts = list(LabelTable(table, rules).join(batch))
    return {row["id"]: row for row in rows_of(parts)}, [
        f"{reject.id} {reject.reason}" for reject in rejects_of(parts)
    ]


def test_join() -> None:
    table = [
        references(
            ["b", "a"],
            label=["dog", "cat"],
            split=["", "test"],
            group=["g", None],
            extras={"x/n": [2, 1]},
            row=[4, 7],
        ),
        references(["c", "unused"], label=[None, "cow"], extras={"x/n": [3, 4]}, row=[8, 9]),
    ]
    batch = references(
        ["a", "missing", "b", "c"], uri=list("1234"), label="folder", split="train", row=0
    )
    rows, rejects = joined(table, batch)
    names = ("uri", "label", "split", "group", "x/n", "row")
    assert {image_id: tuple(row[name] for name in names) for image_id, row in rows.items()} == {
        "a": ("1", "cat", "test", None, 1, 7),
        "b": ("3", "dog", "train", "g", 2, 4),
        "c": (
            "4",
            None,
            "train",
            None,
            3,
            8,
        ),  # an empty cell is no label, though the folder has a name
    }
    assert rejects == ["missing missing_label"]


def test_a_table_without_a_label_column_leaves_the_folders() -> None:
    """And one whose column is empty from top to bottom does not: a bucket of it would not know."""
    table, batch = (
        [references(["a"], extras={"x/n": [1]})],
        references(["a"], label="cat", split="test", group="g"),
    )
    rows, _ = joined(table, batch, LabelRules("id", "/in", columns=()))
    assert [rows["a"][name] for name in ("label", "split", "group", "x/n")] == [
        "cat",
        "test",
        "g",
        1,
    ]
    rows, _ = joined(table, batch, LabelRules("id", "/in", columns=("label",)))
    assert [rows["a"][name] for name in ("label", "split", "group")] == [None, "test", "g"]


def test_columns_of_the_table_replace_those_of_the_source() -> None:
    rows, _ = joined(
        [references(["a"], extras={"x/n": [1]})],
        references(["a"], extras={"x/n": ["old"], "x/m": ["kept"]}),
    )
    assert (rows["a"]["x/n"], rows["a"]["x/m"]) == (1, "kept")


@pytest.mark.parametrize("table", [[], [references([])]])
def test_a_table_without_rows(table: list[pa.RecordBatch]) -> None:
    assert joined(table, references(["a", "b"])) == ({}, ["a missing_label", "b missing_label"])


def test_categories_that_differ_from_batch_to_batch() -> None:
    """Parquet files that pandas wrote may each have their own."""
    table = [
        references([image_id], extras={"x/c": pa.array([value]).dictionary_encode()})
        for image_id, value in (("b", "red"), ("a", "blue"))
    ]
    rows, _ = joined(table, references(["a", "b"]))
    assert (rows["a"]["x/c"], rows["b"]["x/c"]) == ("blue", "red")


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        (["b", "a", "a", "b", "b"], "'a', 'b': keep one row an image"),
        (list("abcdabcd"), "'a', 'b', 'c', ...: keep"),
        (["", "x", ""], "'': keep"),
    ],
)
def test_two_rows_for_one_id(ids: list[str], told: str) -> None:
    """Which one holds would depend on the order of arrival."""
    with pytest.raises(BuildError, match=f"the --labels table has more than one row for {told}"):
        LabelTable([references(ids[:2]), references(ids[2:])], BY_ID)


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        ("id", ["one", "two", "train.tar/c/3.png", "four"]),
        ("path", ["a/1.png", "/else/2.JPG", "train.tar/c/3.png", "s3://b/4.webp"]),
        ("stem", ["1", "2", "3", "4"]),
    ],
)
def test_what_references_are_looked_up_by(key: str, keys: list[str]) -> None:
    batch = references(
        ["one", "two", "train.tar/c/3.png", "four"],
        uri=["/in/a/1.png", "/else/2.JPG", "/in/train.tar", "s3://b/4.webp"],
        offset=[None, None, 512, None],
    )
    assert LabelRules(key, "/in").keys_of(batch).to_pylist() == keys


def test_rows_that_no_image_has() -> None:
    table = LabelTable([references(["c", "a", "b"], row=[5, 6, 7])], BY_ID)
    seen = np.concatenate(
        [table.matched(references(["b", "x", "b"])), table.matched(references([]))]
    )
    assert [
        (reject.id, str(reject.reason), reject.uri, reject.detail)
        for reject in table.unmatched(seen)
    ] == [
        (
            "a",
            "unmatched_label",
            "/in/a",
            "row 6 of this --labels table: INPUT has no image for it",
        ),
        (
            "c",
            "unmatched_label",
            "/in/c",
            "row 5 of this --labels table: INPUT has no image for it",
        ),
    ]


def test_a_stem_that_several_images_have() -> None:
    """Neither takes the row, which is not without an image either; one image that is listed twice is no two images."""
    rules = LabelRules("stem", "/in")
    batches = [
        references(["a/1.png", "b/1.jpg", "2.png"]),
        references(["2.png", "3.png", "c/4.png", "d/4.png"]),
    ]
    assert sorted(shared_keys(batches, rules).to_pylist()) == ["1", "4"]
    parts = list(
        join_bucket(batches, [references(["1", "2", "3", "5"], label=list("wxyz"))], rules)
    )
    assert [(row["id"], row["label"]) for row in rows_of(parts)] == [
        ("2.png", "x"),
        ("2.png", "x"),
        ("3.png", "y"),
    ]
    assert sorted((reject.id, str(reject.reason)) for reject in rejects_of(parts)) == [
        ("5", "unmatched_label"),
        ("a/1.png", "ambiguous_label"),
        ("b/1.jpg", "ambiguous_label"),
        ("c/4.png", "missing_label"),
        ("d/4.png", "missing_label"),
    ]


NAMES = st.lists(st.text("abc", max_size=3), max_size=30)


@given(ids=NAMES, buckets=st.sampled_from([1, 2, 8]))
def test_every_row_is_in_one_bucket_and_equal_keys_in_the_same(
    ids: list[str], buckets: int
) -> None:
    batch = references(ids)
    pieces = list(spread(batch, batch.column("id"), buckets))
    assert sorted(row["row"] for _, piece in pieces for row in piece.to_pylist()) == list(
        range(len(ids))
    )
    bucket_of = {row["id"]: bucket for bucket, piece in pieces for row in piece.to_pylist()}
    assert all(
        bucket_of[row["id"]] == bucket for bucket, piece in pieces for row in piece.to_pylist()
    )


def outcome(parts: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    return sorted(sorted(row.items(), key=str) for row in rows_of(parts)), sorted(
        (r.id, r.reason, r.detail) for r in rejects_of(parts)
    )


@given(
    ids=NAMES,
    rows=st.sets(st.text("abc", max_size=3)),
    buckets=st.sampled_from([2, 8]),
    key=st.sampled_from(["id", "path"]),
)
def test_buckets_give_what_the_whole_gives(
    ids: list[str], rows: set[str], buckets: int, key: str
) -> None:
    rules = LabelRules(key, "/in")
    batch, table = (
        references(ids),
        references(sorted(rows), label=[f"of {name}" for name in sorted(rows)]),
    )
    whole = LabelTable([table], rules)
    expected = [*whole.join(batch), *whole.unmatched(whole.matched(batch))]
    sides: dict[int, tuple[list[pa.RecordBatch], list[pa.RecordBatch]]] = {}
    for side, (batches, keys) in enumerate(
        [(batch, rules.keys_of(batch)), (table, table.column("id"))]
    ):
        for bucket, piece in spread(batches, keys, buckets):
            sides.setdefault(bucket, ([], []))[side].append(piece)
    assert outcome(
        [part for pair in sides.values() for part in join_bucket(*pair, rules)]
    ) == outcome(expected)
