"""Lists of ids: every form of file, what is in two splits, and what no image has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from shardwright.errors import BuildError, UsageError
from tests.helpers import references
from transforms.splitting import split_lists
from transforms.splitting.split_lists import ListedIds, SplitLists, read_lists, reject_others

WANTED = {"cat/1.png": "train", "007": "test", "ünï": "validation"}


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def read(*values: object) -> dict[str, str]:
    """id -> split, as the lists say."""
    listed = read_lists(SplitLists.parse([str(value) for value in values]))
    batch = references([*WANTED, "another"])
    return {row["id"]: row["split"] for row in listed.take_listed(batch).to_pylist()}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "id,split\ncat/1.png,train\n007,test\nünï,val\nnot there,test\n"),
        ("a.csv", "weight,PATH,Subset\n1,cat/1.png,train\n2,007,test\n3,ünï,Validation\n"),
        ("a.tsv", "file_name\tpartition\ncat/1.png\ttraining\n007\ttest\nünï\tval\n"),
        (
            "a.jsonl",
            '{"id": "cat/1.png", "split": "train"}\n{"id": "007", "split": "test"}\n{"id": "ünï", "split": "validation"}\n',
        ),
        ("a.json", {"train": ["cat/1.png"], "test": ["007"], "val": ["ünï"]}),
        ("a.json", WANTED),
        ("a.json", [{"id": image_id, "split": split} for image_id, split in WANTED.items()]),
    ],
)
def test_a_file_that_states_splits(tmp_path: Path, name: str, content: Any) -> None:
    assert read(write(tmp_path / name, content)) == WANTED


def test_parquet(tmp_path: Path) -> None:
    pq.write_table(
        pa.table(
            {"id": list(WANTED), "split": pa.array(list(WANTED.values())).dictionary_encode()}
        ),
        tmp_path / "a.parquet",
    )
    assert read(tmp_path / "a.parquet") == WANTED


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ids.txt", "cat/1.png\n\n  007 \r\n"),
        ("ids", "\ufeffcat/1.png\n007"),
        ("ids.csv", "id\ncat/1.png\n007\n"),
        ("ids.csv", "anything\ncat/1.png\n007\n"),
        ("ids.csv", "id,split\ncat/1.png,train\n007,train\n"),  # the option says which split
        ("ids.json", ["cat/1.png", "007"]),
        ("ids.json", {"train": ["ünï"], "hold_out": ["cat/1.png", "007"]}),
    ],
)
def test_a_file_of_ids(tmp_path: Path, name: str, content: Any) -> None:
    path = write(tmp_path / name, content)
    assert read(f"hold_out={path}") == {"cat/1.png": "hold_out", "007": "hold_out"}


def test_several_files(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "cat/1.png\n")
    write(tmp_path / "b.json", {"007": "test", "cat/1.png": "train"})
    assert read(f"train={tmp_path}/a.txt", tmp_path / "b.json") == {
        "cat/1.png": "train",
        "007": "test",
    }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("nothing.csv", "--split-ids nothing.csv: there is no file"),
        ("test=nothing.txt", "--split-ids test=nothing.txt: there is no file"),
        (
            "ids.txt",
            "--split-ids ids.txt lists ids alone: name their split, as in --split-ids test=ids.txt",
        ),
    ],
)
def test_wrong_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "ids.txt", "1\n")
    with pytest.raises(UsageError, match=message):
        SplitLists.parse([value])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            "id,split\n1,train\n1,test\n",
            "--split-ids puts 1 ids in two splits, such as '1' in train and test: keep one",
        ),
        (
            "a.csv",
            "id,fold\n1,2\n",
            r"has no column of splits \(split, subset, ...\); it has 'id', 'fold'",
        ),
        ("a.csv", "name,split\n1,train\n", "has no column of ids"),
        (
            "a.csv",
            "id,split\n1,hold out\n",
            "--split-ids names the split 'hold out': a split's name has letters, digits and _",
        ),
        ("a.csv", "id,split\n1,\n", "--split-ids names the split ''"),
        ("a.csv", "", "is empty"),
        ("a.json", "[", "cannot be read"),
        ("a.json", "5", "cannot be read"),
        ("a.json", [{"id": "1"}], "cannot be read"),
        ("a.json", ["1"], "names the split None"),
        ("a.json", {}, "lists no ids"),
    ],
)
def test_wrong_files(tmp_path: Path, name: str, content: Any, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        read(write(tmp_path / name, content))


def test_binary_is_no_list(tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BuildError, match="cannot be read"):
        read(f"test={tmp_path}/ids.txt")


def test_ids_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        split_lists, "hash64", lambda texts, _: pc.utf8_length(texts).to_numpy().astype("uint64")
    )
    listed = ListedIds(pa.array(["a", "b", "c", "dd"]), pa.array(["s", "t", "u", "v"]))
    assert listed.find(pa.array(["c", "x", "a", "dd", "b", "ddd"])).tolist() == [2, -1, 0, 3, 1, -1]


def test_what_is_not_listed_and_what_is_not_there() -> None:
    listed = ListedIds(pa.array(["1", "2", "1"]), pa.array(["a", "b", "a"]))
    batch = references(["0", "1", "3"])
    assert len(listed) == 2
    assert listed.take_others(batch).column("id").to_pylist() == ["0", "3"]
    used = listed.find(batch.column("id"))
    assert [(reject.id, str(reject.reason)) for reject in listed.unused(used[used >= 0])] == [
        ("2", "unused_id")
    ]
    assert [
        (reject.id, str(reject.reason)) for reject in reject_others(listed.take_others(batch))
    ] == [
        ("0", "unknown_split"),
        ("3", "unknown_split"),
    ]


def test_no_ids_at_all() -> None:
    listed = ListedIds(pa.array([], pa.string()), pa.array([], pa.string()))
    assert listed.take_listed(references(["1"])).num_rows == 0
    assert listed.take_others(references(["1"])).num_rows == 1
