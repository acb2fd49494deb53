"""A finished dataset as INPUT: its records are copied, and equal those of a new build."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import StorageError, UsageError
from shardwright.format.index import read_summary
from shardwright.format.manifest import read_manifest
from shardwright.format.records import scan_records
from shardwright.pipelines.job.build import describe_job, prepare_job
from shardwright.pipelines.local.build import build_here
from shardwright.pipelines.options.build import parse_options
from shardwright.storage.folder import Folder
from tests.support.build_helpers import (
    CLASSES,
    build,
    hashes_of,
    index_of,
    make_images,
    manifest_of,
    png_of,
    reasons_of,
    record_ids,
    rejects_of,
    shards_of,
    write_table,
)
from tests.support.damage import example, first_shard, forge_records, read_features
from tests.support.helpers import make_files
from tests.support.judge import judge
from tests.support.listings import detect
from tests.support.tfrecord_makers import source_of

NUM = 24


@dataclass(frozen=True)
class Case:
    """A dataset, and the options that cut another one of the same images into other shards.

    Attributes:
        make: Writes the inputs below a folder and returns INPUT.
        options: Of the first build.
        shards: The size of its shards.
        others: Of other shards.
    """

    make: Callable[[Path], Path]
    options: tuple[str, ...] = ()
    shards: tuple[str, ...] = ("--shard-size", "2KB")
    others: tuple[str, ...] = ("--shard-size", "5KB")


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
    images = [{"id": number, "file_name": name} for number, name in enumerate(sorted(names))]
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
GARDEN = ("--feature-names", "model-garden", "--encode", "jpeg")
RAW = ("--encode", "raw", "--resize", "6x6")
CASES = {
    "splits": Case(folders, THREE),
    "numbers": Case(numbers),
    "unlabeled": Case(flat, shards=("--shard-count", "2"), others=("--shard-count", "3")),
    # Where sizes are estimated, or texts and lists vary, exact sizes cut elsewhere by a record.
    "garden": Case(folders, GARDEN, **BY_COUNT),
    "columns": Case(columns, **BY_COUNT),
    "boxes": Case(coco, **BY_COUNT),
    "raw": Case(folders, RAW, **BY_COUNT),
}


def make(source: Path, output: Path, *options: str) -> Path:
    """Build a dataset without Beam, which would take most of the time."""
    build_here(prepare_job(parse_options([str(source), str(output), *options])))
    return output


def content_of(root: Path) -> dict[str, Any]:
    """Return what a dataset holds, without what depends on its INPUT and its plan."""
    manifest = read_manifest(Folder(str(root)))
    summaries = [read_summary(Folder(str(root)), name) for name, _ in manifest.named_shards()]
    return {
        "shards": hashes_of(root),
        "index": {name: table.replace_schema_metadata() for name, table in index_of(root).items()},
        "stats": [summary and summary.stats for summary in summaries],
        "split stats": {name: split.stats for name, split in manifest.splits.items()},
        "schema": manifest.to_json()["schema"],
        "tfds": [(root / name).read_bytes() for name in ("features.json", "dataset_info.json")],
    }


@pytest.mark.long_but_first
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_copy_in_other_shards_equals_a_new_build(case: Case, tmp_path: Path) -> None:
    source, name = case.make(tmp_path), ("--name", "zoo")
    first = make(source, tmp_path / "first", *name, *case.options, *case.shards)
    copy = make(first, tmp_path / "copy", *name, *case.others)
    new = make(source, tmp_path / "new", *name, *case.options, *case.others)
    assert content_of(copy) == content_of(new)
    assert len(shards_of(copy)) != len(shards_of(first))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with splits, texts and signals, 4 records a shard."""
    root = tmp_path_factory.mktemp("first")
    options = ("--name", "zoo", "--signals", *BY_COUNT["shards"])
    return make(columns(root), root / "first", *options)


@pytest.mark.long
def test_a_copy_in_the_same_shards_equals_the_dataset(first: Path, tmp_path: Path) -> None:
    """Also its signals, which are measured again; built on Beam."""
    copy = tmp_path / "copy"
    options = ("--name", "zoo", "--signals", *BY_COUNT["shards"])
    assert build(first, copy, *options) == 0
    assert content_of(copy) == content_of(first)
    for path in (first / "signals").iterdir():
        assert (copy / "signals" / path.name).read_bytes() == path.read_bytes()
    assert list(judge(str(copy)).faults) == []
    shards_of(copy)[1].unlink()
    assert build(first, copy, *options) == 0
    assert hashes_of(copy) == hashes_of(first)


def shards_by_id(root: Path) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Return the shard and the index row of each record."""
    return {
        row["id"]: (path, row)
        for path, table in zip(shards_of(root), index_of(root).values(), strict=True)
        for row in table.to_pylist()
    }


def test_damaged_records_are_rejects(first: Path, tmp_path: Path) -> None:
    """A flipped byte of a record's length, small features, image or footer; a shard cut short."""
    copied = Path(shutil.copytree(first, tmp_path / "first"))
    rows = shards_by_id(copied)
    (*_, (cut, last)) = (one for one in rows.values() if "-train." in one[0].name)
    chosen = [name for name, (path, _) in rows.items() if path != cut][::4]
    for name, place in zip(chosen, ("offset", "image", "small", "footer"), strict=False):
        path, row = rows[name]
        end = row["offset"] + row["length"]
        at = {"offset": row["offset"], "image": row["image_offset"] + 9, "footer": end - 1}
        data = bytearray(path.read_bytes())
        data[at.get(place, row["image_offset"] - 30)] ^= 1
        path.write_bytes(data)
    os.truncate(cut, last["offset"] + 20)
    make(copied, tmp_path / "out", "--max-reject-fraction", "0.3")
    wanted = dict.fromkeys(chosen[:4], "corrupt") | {last["id"]: "truncated"}
    assert reasons_of(tmp_path / "out") == wanted
    assert {row["uri"] for row in rejects_of(tmp_path / "out")} == {
        str(rows[name][0]) for name in wanted
    }
    assert set(record_ids(tmp_path / "out")) == rows.keys() - wanted.keys()


def test_records_of_another_form_are_rejects(first: Path, tmp_path: Path) -> None:
    """Their frames are sound, but they are not what the schema says."""
    copied = Path(shutil.copytree(first, tmp_path / "first"))
    shard = first_shard(copied)
    with open(copied / shard.shard, "rb") as file:
        records = [span.data for span in scan_records(file)]
    features = dict(read_features(copied, shard)[1])
    images = features.pop("image")
    records[0] = b"nothing"
    records[1] = example(features | {"caption": [7], "image": images})
    records[2] += b"more"
    forge_records(copied, shard, records)
    ids = index_of(copied)[Path(shard.sidecar).name]["id"].to_pylist()
    make(copied, tmp_path / "out", "--max-reject-fraction", "0.3")
    assert reasons_of(tmp_path / "out") == dict.fromkeys(ids[:3], "corrupt")
    (detail,) = [row["detail"] for row in rejects_of(tmp_path / "out") if row["id"] == ids[1]]
    assert "feature 'caption' is a int64_list, expected bytes_list; `shardwright verify`" in detail


def test_a_damaged_index_ends_the_build(first: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(first, tmp_path / "first"))
    sidecar = sorted((copied / "index").iterdir())[0]
    sidecar.write_bytes(sidecar.read_bytes()[:-1])
    with pytest.raises(StorageError, match=re.escape(f"{sidecar} is damaged")):
        make(copied, tmp_path / "out")


def test_splits_are_kept_unless_they_are_drawn_again(first: Path, tmp_path: Path) -> None:
    for options, splits in (
        ((), {"train", "test"}),
        (("--split", "a=0.5,b=0.5", "--duplicates", "drop"), {"a", "b"}),
    ):
        out = make(first, tmp_path / "_".join(sorted(splits)), *options)
        assert manifest_of(out)["splits"].keys() == splits
        assert set(record_ids(out)) == set(record_ids(first))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--encode", "jpeg"), "leave --encode out"),
        (("--label-column", "count"), "leave --label-column out"),
        (("--schema", "unlabeled"), "leave --schema out"),
        (("--check", "decode"), "leave --check out"),
    ],
)
def test_options_that_change_records_copy_none(
    first: Path, options: tuple[str, ...], message: str
) -> None:
    """The dataset is then read like TFRecord files of others."""
    assert detect(str(first), changes=options).name == "tfrecord"
    with pytest.raises(UsageError, match=message):
        describe_job(parse_options([str(first), "out", "--input-format", "dataset", *options]))


def test_other_folders_are_no_datasets(tmp_path: Path) -> None:
    make_files(tmp_path / "in", "a.png", "b.png", data=png_of(1))
    for text in ("{", "[]", '{"version": 3}'):
        (tmp_path / "in" / "manifest.json").write_text(text)
        assert source_of(tmp_path / "in").name == "folder"
    with pytest.raises(UsageError, match="in is not a finished dataset: it has no manifest"):
        detect(str(tmp_path / "in"), input_format="dataset")
