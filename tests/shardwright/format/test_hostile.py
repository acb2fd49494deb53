"""Datasets from strangers: names stay in their folder, numbers are bounded, types are checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.errors import NotADatasetError, ShardwrightError, StorageError
from shardwright.format import manifest_check
from shardwright.format.index import ShardSummary
from shardwright.format.json_files import MAX_DEPTH, check_depth, load_json
from shardwright.format.manifest import read_manifest
from shardwright.format.naming import is_companion
from shardwright.inspect.show import find_record
from shardwright.storage.folder import Folder
from tests.support.damage import edit_json, edit_rows, first_shard

ABSENT, BAD_NAMES = (
    object(),
    ["../../outside/ds", "/etc", "", "a/b", "a\\b", "a\x00b", "a\n", 3, None],
)
OF_MANIFEST = [*((key,) for key in ("name", "version", "schema", "splits", "rejects", "files")),
               *((key,) for key in ("num_inputs", "settings", "fingerprint", "provenance")),
               ("schema", "features"), ("schema", "features", 0), ("schema", "class_names"),
               ("schema", "class_names", 0), ("schema", "features", 0, "kind"),
               ("schema", "features", 0, "name"), ("schema", "features", 0, "source"),
               ("rejects", "empty_file"), ("files", "stats.json"),
               ("files", "stats.json", "num_bytes"), ("files", "stats.json", "crc32c"),
               ("splits", "train"), ("splits", "train", "stats"), ("splits", "train", "shards"),
               ("splits", "train", "stats", "labels"), ("splits", "train", "stats", "labels", "0"),
               ("splits", "train", "stats", "width"), ("splits", "train", "shards", 0),
               *(("splits", "train", "shards", 0, key) for key in (
                   "index", "num_records", "num_bytes", "crc32c", "digest", "sidecar_bytes",
                   "sidecar_crc32c"))]  # fmt: skip
WRONG = [{"9" * 5000: 1}, None, True, -1, 2**70, 1.5, "text", ["x"], {"x": []}, [[]], ABSENT]


def put(path: tuple[Any, ...], value: object) -> Callable[[dict[str, Any]], None]:
    def edit(content: Any) -> None:
        for key in path[:-1]:
            content = content[key]
        if value is ABSENT:
            del content[path[-1]]
        else:
            content[path[-1]] = value

    return edit


@pytest.mark.long_but_first
@pytest.mark.parametrize("path", OF_MANIFEST, ids=lambda path: ".".join(map(str, path)))
def test_wrong_types_are_faults(path: tuple[Any, ...], dataset: Path) -> None:
    whole = (dataset / "manifest.json").read_bytes()
    for value in WRONG:
        (dataset / "manifest.json").write_bytes(whole)
        edit_json(dataset / "manifest.json", put(path, value))
        try:
            manifest = read_manifest(Folder(str(dataset)))
        except NotADatasetError:
            continue
        assert manifest.to_json()["num_records"] >= 0
        counts = [sw.open(str(dataset)).class_counts(split) for split in manifest.splits]
        assert all(isinstance(found, dict) for found in counts)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_stay_in_the_folder(name: object, dataset: Path) -> None:
    def rename_split(content: dict[str, Any]) -> None:
        content["splits"][name] = content["splits"].pop("train")

    def rename_file(content: dict[str, Any]) -> None:
        content["files"][name] = content["files"].pop("stats.json")

    whole = (dataset / "manifest.json").read_bytes()
    for edit in (put(("name",), name), rename_split, rename_file):
        (dataset / "manifest.json").write_bytes(whole)
        edit_json(dataset / "manifest.json", edit)
        if edit is rename_split and name in (3, None):
            continue  # digits and `null` as text are names of splits
        with pytest.raises(NotADatasetError, match=r"manifest\.json is damaged"):
            sw.open(str(dataset))


@pytest.mark.parametrize("name", [
    *("../stats.json", "rejects/../a.parquet", "/stats.json", "index/a.parquet", "manifest.json"),
    *("spool/a.bin", "x-train.tfrecord-00000-of-00001", "a\n.labels.txt", "rejects/a/b.parquet"),
    *("thesis.tex", "rejects\\a.parquet", ""),
])  # fmt: skip
def test_names_of_other_files(name: str) -> None:
    assert not is_companion(name)


@pytest.mark.parametrize("record", [
    {"name": "../x", "split": "train", "index": 0, "count": 1},
    {"name": "x", "split": "../train", "index": 0, "count": 1},
    {"name": "x", "split": "train", "index": 1, "count": 1},
    {"name": "x", "split": "train", "index": True, "count": 2},
    {"name": "x", "split": "train", "index": "0", "count": 1},
    {"name": 1, "split": "train", "index": 0, "count": 1},
    {"name": "x", "split": "train", "index": 0},
])  # fmt: skip
def test_names_in_sidecars(record: dict[str, Any]) -> None:
    summary = {"name": record, "num_records": 1, "num_bytes": 20, "crc32c": 3, "digest": ""}
    with pytest.raises(ValueError, match=r"^\$\.name|is not the name of a shard"):
        ShardSummary.from_json(summary)


@pytest.mark.parametrize("count", [1, -1])
def test_a_shard_beyond_the_count_in_its_name(dataset: Path, count: int) -> None:
    def edit(manifest: dict[str, Any]) -> None:
        manifest["splits"]["train"]["shards"][1]["count"] = count

    edit_json(dataset / "manifest.json", edit)
    with pytest.raises(NotADatasetError, match=f"shard 1 of {count}|count: expected"):
        sw.open(str(dataset))


def test_counts_are_bounded(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_check, "MAX_SHARDS", 2)
    with pytest.raises(NotADatasetError, match="it has 4 shards, more than the 2 allowed"):
        sw.open(str(dataset))
    monkeypatch.setattr(manifest_check, "MAX_SHARDS", 4)
    shards = ("splits", "train", "shards")
    edit_json(dataset / "manifest.json", put((*shards, 1, "num_bytes"), 2**62))
    sw.open(str(dataset))
    edit_json(dataset / "manifest.json", put((*shards, 0, "num_bytes"), 2**62))
    with pytest.raises(NotADatasetError, match="more bytes together than can be counted"):
        sw.open(str(dataset))
    edit_json(dataset / "manifest.json", put((*shards, 0, "num_bytes"), 100))
    edit_json(dataset / "manifest.json", put((*shards, 0, "num_records"), 10**12))
    with pytest.raises(NotADatasetError, match="records do not fit in"):
        sw.open(str(dataset))


def test_sizes_are_bounded(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardwright.format.manifest.MAX_BYTES", 100)
    with pytest.raises(StorageError, match="bytes, more than the 100 allowed"):
        sw.open(str(dataset))
    with pytest.raises(ValueError, match="it has 11 bytes, more than the 10 allowed"):
        load_json(b'{"a": "bc"}', max_bytes=10)
    assert load_json(b"[1,2]", max_bytes=32) == [1, 2]
    with pytest.raises(ValueError, match="it has more values than the 2 allowed"):
        load_json(b"[1,2,3]", max_bytes=32)


@pytest.mark.parametrize(("column", "value"), [
    *(("offset", -1), ("offset", 2**62), ("length", 2**40), ("length", 3), ("length", -9)),
    *(("image_offset", -1), ("image_length", 2**62), ("image_length", -1)),
])  # fmt: skip
def test_rows_outside_of_the_shard(column: str, value: int, dataset: Path) -> None:
    edit_rows(dataset, first_shard(dataset), lambda rows: rows[3].update({column: value}))
    features = ["image", "label"] if column.startswith("image") else ["id", "image"]
    with (
        pytest.raises(ShardwrightError, match=r"states a record outside of its shard \(row 3\)"),
        sw.Reader(str(dataset), global_batch_size=4, epochs=1, features=features) as reader,
    ):
        list(reader)
    if column not in ("offset", "length"):
        return
    root = Folder(str(dataset))
    what = "the file ends inside" if value == 3 else "states a record outside of its shard"
    with pytest.raises(StorageError, match=what):
        find_record(root, read_manifest(root), "3", split="train", by="number")


def test_deep_json_is_a_value_error() -> None:
    for depth in (MAX_DEPTH, MAX_DEPTH + 1, 100_000):
        for opening, closing in (("[", "]"), ('{"a":', "}"), ('["]]",', "]"), ('["\\"]",[],', "]")):
            text = opening * depth + "1" + closing * depth
            if depth == MAX_DEPTH and "[]" not in text:
                assert load_json(text.encode()) == json.loads(text)
                continue
            for data in (text.encode(), text.encode("utf-16")):
                with pytest.raises(ValueError, match="nested more than 100 levels deep"):
                    load_json(data)
    with pytest.raises(ValueError, match="nested more than 100 levels deep"):
        check_depth(b"]" * 1000 + b"[" * 101)
    check_depth(b"[]" * 1000 + b'"' + b"[" * 1000 + b'"')


def test_a_deep_manifest(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(b"[" * 100_000)
    with pytest.raises(NotADatasetError, match="nested more than 100 levels deep"):
        read_manifest(Folder(str(tmp_path)))
