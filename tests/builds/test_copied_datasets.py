"""A finished dataset as INPUT: its records are copied, and equal those of a new build."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import shardwright as sw
from shardwright.format.index import read_summary
from shardwright.format.manifest import read_manifest
from shardwright.inspect.verify import verify
from shardwright.storage.folder import Folder
from tests.support.build_helpers import (
    CLASSES,
    build,
    hashes_of,
    index_of,
    make_images,
    manifest_of,
    png_of,
    rejects_of,
    shards_of,
    write_table,
)
from tests.support.helpers import make_files

NUM = 24


@dataclass(frozen=True)
class Case:
    """A dataset, and the options that cut another one of the same images into other shards.

    Attributes:
        make: Writes the inputs below a folder and returns INPUT.
        options: Of the first build.
        shards: The size of its shards.
        others: Of other shards.
        splits: Options that a new build of the images needs for its splits.
    """

    make: Callable[[Path], Path]
    options: tuple[str, ...] = ()
    shards: tuple[str, ...] = ("--shard-size", "2KB")
    others: tuple[str, ...] = ("--shard-size", "5KB")
    splits: tuple[str, ...] = ()


def folders(root: Path) -> Path:
    return make_images(root / "images", NUM)


def flat(root: Path) -> Path:
    return make_files(root / "images", *(f"{n}.png" for n in range(9)), data=png_of(1))


def _table(root: Path, **columns: Callable[[int], Any]) -> Path:
    make_images(root / "in", NUM)
    rows = [
        {"path": f"in/{CLASSES[n % 3]}/{n:04d}.png", "label": CLASSES[n % 3],
         **{name: value(n) for name, value in columns.items()}}
        for n in range(NUM)
    ]  # fmt: skip
    return write_table(root / "t.jsonl", rows)


def numbers(root: Path) -> Path:
    return _table(
        root,
        count=lambda n: 2**40 - n,
        ratio=lambda n: None if n % 4 else n / 7,
        good=lambda n: n % 2 == 0,
        split=lambda n: "train" if n % 5 else "test",
    )


def columns(root: Path) -> Path:
    return _table(
        root,
        count=lambda n: n,
        caption=lambda n: "é" * n,
        sizes=lambda n: list(range(n % 4)),
        split=lambda n: "train" if n % 5 else "test",
    )


def coco(root: Path) -> Path:
    make_images(root / "images", 9)
    names = [str(path.relative_to(root / "images")) for path in (root / "images").rglob("*.png")]
    images = [
        {"id": number, "file_name": name, "width": 8, "height": 8}
        for number, name in enumerate(sorted(names))
    ]
    annotations = [
        {"id": number, "image_id": number % 7, "category_id": number % 2, "area": 4.0,
         "bbox": [1, 1, 1 + number % 3, 2], "iscrowd": 0, "segmentation": []}
        for number in range(13)
    ]  # fmt: skip
    categories = [{"id": 0, "name": "cat"}, {"id": 1, "name": "dog"}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    path = root / "instances.json"
    path.write_text(json.dumps(content))
    return path


BY_COUNT = {"shards": ("--records-per-shard", "4"), "others": ("--records-per-shard", "7")}
THREE = ("--split", "train=0.6,validation=0.2,test=0.2")
CASES = {
    "class folders": Case(folders),
    "splits": Case(folders, THREE),
    "numbers": Case(numbers),
    "unlabeled": Case(flat, shards=("--shard-count", "2"), others=("--shard-count", "3")),
    "garden": Case(folders, ("--feature-names", "model-garden")),
    "columns": Case(columns, **BY_COUNT),
    "boxes": Case(coco, **BY_COUNT),
    "jpeg": Case(folders, ("--encode", "jpeg"), **BY_COUNT),
    "raw": Case(folders, ("--encode", "raw", "--resize", "6x6"), **BY_COUNT),
    "tensor": Case(
        folders, ("--encode", "tensor", "--tensor-dtype", "float32", "--resize", "6x6"), **BY_COUNT
    ),
}


def content_of(root: Path) -> dict[str, Any]:
    """Return what a dataset holds, without what depends on its INPUT and its plan."""
    manifest = read_manifest(Folder(str(root)))
    summaries = [read_summary(Folder(str(root)), name) for name, _ in manifest.named_shards()]
    return {
        "shards": hashes_of(root),
        "index": {name: table.replace_schema_metadata() for name, table in index_of(root).items()},
        "stats": [summary and summary.stats for summary in summaries],
        "split stats": {name: _own(split.stats) for name, split in manifest.splits.items()},
        "schema": manifest.to_json()["schema"],
        "tfds": [(root / name).read_bytes() for name in ("features.json", "dataset_info.json")],
    }


def _own(stats: Any) -> dict[str, Any]:
    return {key: value for key, value in stats.items() if key != "record_bytes"}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_copy_equals_a_new_build(case: Case, tmp_path: Path) -> None:
    source, name = case.make(tmp_path), ("--name", "zoo")
    first, copy, other, new = (tmp_path / place for place in ("a", "b", "c", "d"))
    assert build(source, first, *name, *case.options, *case.shards) == 0
    assert build(first, copy, *name, *case.shards) == 0
    assert content_of(copy) == content_of(first)
    assert len(shards_of(copy)) > 1
    assert list(verify(str(copy)).faults) == []

    assert build(first, other, *name, *case.others) == 0
    assert build(source, new, *name, *case.options, *case.others) == 0
    assert content_of(other) == content_of(new)
    assert len(shards_of(other)) != len(shards_of(first))
