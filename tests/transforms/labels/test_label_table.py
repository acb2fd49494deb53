"""The join with a table of labels: keys, columns, and rows or images that are on one side only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import BuildError
from shardwright.transforms.labels.label_table import (
    LabelRules,
    join_bucket,
    shared_keys,
    spread,
)
from tests.support.helpers import references, rejects_of, rows_of
from tests.support.listings import columns_of

BY_ID = LabelRules("id", "/in")


def joined(
    table: list[pa.RecordBatch], batch: pa.RecordBatch, rules: LabelRules = BY_ID
) -> tuple[dict[str, Any], list[str]]:
    parts = list(join_bucket([batch], table, rules))
    rejects = [f"{reject.id} {reject.reason}" for reject in rejects_of(parts)]
    return {row["id"]: row for row in rows_of(parts)}, rejects


def test_join() -> None:
    first = {"label": ["dog", "cat"], "split": ["", "test"], "group": ["g", None], "row": [4, 7]}
    table = [
        references(["b", "a"], extras={"x/n": [2, 1]}, **first),
        references(["c", "unused"], label=[None, "cow"], extras={"x/n": [3, 4]}, row=[8, 9]),
    ]
    ids = ["a", "missing", "b", "c"]
    own = {"x/n": ["old"] * 4, "x/m": ["kept"] * 4}
    batch = references(ids, uri=list("1234"), label="folder", split="train", row=0, extras=own)
    rows, rejects = joined(table, batch)
    names = ("id", "uri", "label", "split", "group", "x/n", "x/m", "row")
    assert sorted(columns_of([*rows.values()], *names)) == [
        ("a", "1", "cat", "test", None, 1, "kept", 7),
        ("b", "3", "dog", "train", "g", 2, "kept", 4),
        # An empty cell is no label, as the folder's is.
        ("c", "4", None, "train", None, 3, "kept", 8),
    ]
    assert rejects == ["missing missing_label", "unused unmatched_label"]


@pytest.mark.parametrize(("columns", "label"), [((), "cat"), (("label",), None)])
def test_a_table_without_labels(columns: tuple[str, ...], label: str | None) -> None:
    """Without a label column, the folders' labels stay; with an empty one, they do not."""
    batch = references(["a"], label="cat", split="test", group="g")
    table = [references(["a"], extras={"x/n": [1]})]
    rows, _ = joined(table, batch, LabelRules("id", "/in", columns=columns))
    assert columns_of([rows["a"]], "label", "split", "group", "x/n") == [(label, "test", "g", 1)]


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


@pytest.mark.parametrize(("ids", "key", "told"), [
    (["b", "a", "a", "b", "b"], "id", "'a', 'b': keep one row per image"),
    (list("abcdabcd"), "path", "'a', 'b', 'c', ...: keep"),
    (["", "x", ""], "id", "'': keep"),
    (["0001", "0001"], "stem", "'0001': stems must be unique: use --labels-key path"),
])  # fmt: skip
def test_two_rows_for_one_key(ids: list[str], key: str, told: str) -> None:
    """The order of arrival would decide which one counts."""
    with pytest.raises(BuildError, match=f"the --labels table has more than one row for {told}"):
        [*join_bucket([], [references(ids[:2]), references(ids[2:])], LabelRules(key, "/in"))]


@pytest.mark.parametrize(("key", "keys"), [
    ("id", ["one", "two", "train.tar/c/3.png", "four"]),
    ("path", ["a/1.png", "/else/2.JPG", "train.tar/c/3.png", "s3://b/4.webp"]),
    ("stem", ["1", "2", "3", "4"]),
])  # fmt: skip
def test_keys_of_references(key: str, keys: list[str]) -> None:
    uris = ["/in/a/1.png", "/else/2.JPG", "/in/train.tar", "s3://b/4.webp"]
    ids = ["one", "two", "train.tar/c/3.png", "four"]
    batch = references(ids, uri=uris, offset=[None, None, 512, None])
    assert LabelRules(key, "/in").keys_of(batch).to_pylist() == keys


def test_rows_that_no_image_has() -> None:
    table = [references(["c", "a", "b", "a\\1.png"], row=[5, 6, 7, 8])]
    batches = (references(["b", "x", "b"]), references([]))
    found = rejects_of(join_bucket(batches, table, BY_ID))
    told = "of the --labels table matches no image of INPUT"
    assert [(reject.id, reject.detail) for reject in found if reject.id != "x"] == [
        ("a", f"row 6 {told}"),
        ("a\\1.png", f"row 8 {told}: write / in place of its backslashes"),
        ("c", f"row 5 {told}"),
    ]
    assert {str(reject.reason) for reject in found} == {"missing_label", "unmatched_label"}


def test_a_stem_that_several_images_have() -> None:
    """None of them takes the row, which is not unmatched either; a duplicate is no second image."""
    rules = LabelRules("stem", "/in")
    second = ["2.png", "3.png", "c/4.png", "d/4.png"]
    batches = [references(["a/1.png", "b/1.jpg", "2.png"]), references(second)]
    assert sorted(shared_keys(batches, rules).to_pylist()) == ["1", "4"]
    table = [references(["1", "2", "3", "5"], label=list("wxyz"))]
    parts = list(join_bucket(batches, table, rules))
    told = {reject.detail for reject in rejects_of(parts) if reject.reason == "ambiguous_label"}
    assert told == {"several images have this stem: use --labels-key path"}
    found = columns_of(rows_of(parts), "id", "label")
    assert found == [("2.png", "x"), ("2.png", "x"), ("3.png", "y")]
    assert sorted((reject.id, str(reject.reason)) for reject in rejects_of(parts)) == [
        ("5", "unmatched_label"), ("a/1.png", "ambiguous_label"), ("b/1.jpg", "ambiguous_label"),
        ("c/4.png", "missing_label"), ("d/4.png", "missing_label"),
    ]  # fmt: skip


NAMES = st.lists(st.text("abc", max_size=3), max_size=30)


@given(ids=NAMES, buckets=st.sampled_from([1, 2, 8]))
def test_a_row_is_in_one_bucket_and_equal_keys_in_the_same(ids: list[str], buckets: int) -> None:
    batch = references(ids)
    pieces = list(spread(batch, batch.column("id"), buckets))
    found = [(row, bucket) for bucket, piece in pieces for row in piece.to_pylist()]
    assert sorted(row["row"] for row, _ in found) == list(range(len(ids)))
    bucket_of = {row["id"]: bucket for row, bucket in found}
    assert all(bucket_of[row["id"]] == bucket for row, bucket in found)


def outcome(parts: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    rows = sorted(sorted(row.items(), key=str) for row in rows_of(parts))
    return rows, sorted((r.id, r.reason, r.detail) for r in rejects_of(parts))


@given(
    ids=NAMES,
    names=st.sets(st.text("abc", max_size=3)).map(sorted),
    buckets=st.sampled_from([2, 8]),
    key=st.sampled_from(["id", "path"]),
)
def test_joins_in_buckets(ids: list[str], names: list[str], buckets: int, key: str) -> None:
    rules = LabelRules(key, "/in")
    batch, table = references(ids), references(names, label=[f"of {name}" for name in names])
    expected = [*join_bucket([batch], [table], rules)]
    sides: dict[int, tuple[list[pa.RecordBatch], list[pa.RecordBatch]]] = {}
    keyed = [(batch, rules.keys_of(batch)), (table, table.column("id"))]
    for side, (rows, keys) in enumerate(keyed):
        for bucket, piece in spread(rows, keys, buckets):
            sides.setdefault(bucket, ([], []))[side].append(piece)
    found = [part for pair in sides.values() for part in join_bucket(*pair, rules)]
    assert outcome(found) == outcome(expected)
