"""Lists of ids: every form of file, ids in two splits, and ids of no image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwright.errors import BuildError, UsageError
from shardwright.transforms.splits.split_lists import (
    SplitLists,
    ids_of,
    read_lists,
    reject_others,
    reject_unused,
    stated_splits,
    take_listed,
)
from tests.support.helpers import references, rows_of

WANTED = {"cat/1.png": "train", "007": "test", "ünï": "validation"}
ROWS = [{"id": image_id, "split": split} for image_id, split in WANTED.items()]
JSON_LINES = "".join(json.dumps(row) + "\n" for row in ROWS)


def write(path: Path, content: Any) -> Path:
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def read(*values: object) -> dict[str, str]:
    """Return id -> split by the lists."""
    listed = read_lists(SplitLists.parse([str(value) for value in values]))
    batch = references([*WANTED, "another"])
    rows = rows_of(take_listed(stated_splits(batch, listed), listed=True))
    return {row["id"]: row["split"] for row in rows}


@pytest.mark.parametrize(("name", "content"), [
    ("a.csv", "id,split\ncat/1.png,train\n007,test\nünï,val\nnot there,test\n"),
    ("a.csv", "weight,PATH,Subset\n1,cat/1.png,train\n2,007,test\n3,ünï,Validation\n"),
    ("a.tsv", "file_name\tpartition\ncat/1.png\ttraining\n007\ttest\nünï\tval\n"),
    ("a.jsonl", JSON_LINES),
    ("a.json", {"train": ["cat/1.png"], "test": ["007"], "val": ["ünï"]}),
])  # fmt: skip
def test_files_of_splits(tmp_path: Path, name: str, content: Any) -> None:
    assert read(write(tmp_path / name, content)) == WANTED


def test_parquet(tmp_path: Path) -> None:
    splits = pa.array(WANTED.values()).dictionary_encode()
    pq.write_table(pa.table({"id": list(WANTED), "split": splits}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == WANTED


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ids.txt", "cat/1.png\n\n  007 \r\n"),
        ("ids", "\ufeffcat/1.png\n007"),
        ("ids.csv", "id\ncat/1.png\n007\n"),
        ("ids.csv", "anything\ncat/1.png\n007\n"),
        ("ids.csv", "id,split\ncat/1.png,train\n007,train\n"),  # the option overrides the split
        ("ids.json", ["cat/1.png", "007"]),
        ("ids.json", {"hold_out": ["cat/1.png", "007"], "train": []}),
        ("ids.json", {"train": ["ünï"], "hold_out": ["cat/1.png", "007"]}),
    ],
)
def test_files_of_ids(tmp_path: Path, name: str, content: Any) -> None:
    path = write(tmp_path / name, content)
    assert read(f"hold_out={path}") == {"cat/1.png": "hold_out", "007": "hold_out"}


def test_several_files(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "cat/1.png\n")
    write(tmp_path / "b.json", {"test": ["007"], "train": ["cat/1.png"]})
    found = read(f"train={tmp_path}/a.txt", tmp_path / "b.json")
    assert found == {"cat/1.png": "train", "007": "test"}


@pytest.mark.parametrize(("value", "message"), [
    ("nothing.csv", "nothing.csv: there is no file"),
    ("test=nothing.txt", "test=nothing.txt: there is no file"),
    ("a.txt", "a.txt has ids only: give their split, as in --split-ids test=a.txt"),
])  # fmt: skip
def test_wrong_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.txt", "1\n")
    with pytest.raises(UsageError, match=f"--split-ids {message}"):
        SplitLists.parse([value])


IN_TWO = "--split-ids puts the id '1' in two splits, train and test: keep one"
NO_SPLITS = r"has no column of splits \(split, subset, ...\); it has 'id', 'fold'"
BAD_SPLIT = "--split-ids has the invalid split name 'hold out'; use letters, digits and underscores"


@pytest.mark.parametrize(("name", "content", "message"), [
    ("a.csv", "id,split\n1,train\n1,test\n", IN_TWO),
    ("a.csv", "id,fold\n1,2\n", NO_SPLITS),
    ("a.csv", "name,split\n1,train\n", "has no column of ids"),
    ("a.csv", "id,split\n1,hold out\n", BAD_SPLIT),
    ("a.csv", "id,split\n1,\n", "--split-ids has the invalid split name ''"),
    ("a.csv", "", "is empty"),
    ("a.json", "[", "cannot be read"),
    ("a.json", "5", "cannot be read"),
    ("a.json", {"1": 5}, "cannot be read"),
    ("a.json", {"1": "train"}, r"cannot be read .*expected .* JSON such as {\"test\": \[\"id\""),
    ("a.json", [{"id": "1", "split": "train"}], "cannot be read"),
    ("a.json", {"train": [["1"]]}, "cannot be read"),
    ("a.json", ["1"], "has the invalid split name None"),
    ("a.json", {}, "lists no ids"),
    ("a.txt", b"\xff\xfe\x00", "cannot be read"),
])  # fmt: skip
def test_wrong_files(tmp_path: Path, name: str, content: Any, message: str) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(BuildError, match=message):
        read(f"test={path}" if name == "a.txt" else path)


def test_ids_not_listed_and_listed_ids_without_an_image() -> None:
    listed = {"1": "a", "2": "a"}
    batch = stated_splits(references(["0", "1", "3"]), listed)
    assert list(take_listed(batch.slice(0, 1), listed=True)) == []
    assert list(take_listed(batch.slice(1, 1), listed=False)) == []
    [others] = take_listed(batch, listed=False)
    assert others["id"].to_pylist() == ["0", "3"]
    rejects = [*reject_unused({*ids_of(batch)}, listed, None), *reject_others(others)]
    assert rejects[0].detail.endswith("and with 1 of the 2 ids that --split-ids lists")
    assert [(reject.id, str(reject.reason)) for reject in rejects] == [
        ("2", "unused_id"),
        ("0", "unknown_split"),
        ("3", "unknown_split"),
    ]


def test_a_split_of_which_no_id_is_in_input_ends_the_build() -> None:
    listed = {"cat/1.jpg": "a", "cat/2": "b", "cat/3": "b"}
    used = {"cat/1.jpg", "cat/2.jpg"}
    told = "lists 2 ids for b, and INPUT has no image with any of them, such as 'cat/[23]'"
    with pytest.raises(BuildError, match=told):
        list(reject_unused(used, listed, None))
