"""What `shardwright.load` refuses, and what it works out before it reads."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import shardwright as sw
from shardwright.errors import NotADatasetError, StorageError, UsageError
from shardwright.manifest import Manifest, ShardInfo, SplitInfo, write_json
from shardwright.naming import MANIFEST, ShardName
from shardwright.read_plan import plan_read
from shardwright.reader.corpus import Source as Origin
from shardwright.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.storage import Folder
from tests.small_datasets import Datasets

IMAGE = Feature("image", FeatureKind.IMAGE, Source.IMAGE)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Datasets:
    return Datasets(tmp_path_factory)


def ids_of(dataset: tf.data.Dataset) -> list[str]:
    return [example["id"].decode() for example in dataset.as_numpy_iterator()]


@pytest.mark.parametrize(
    ("dataset", "arguments", "message"),
    [
        (
            "mixed",
            {"split": "dev"},
            r"split 'dev' is not in mixed, which has test, train, validation",
        ),
        (
            "mixed",
            {"split": "train[:50 percent]"},
            r"'50 percent' must be a whole number of records",
        ),
        ("mixed", {"split": "train[:60%]+train[50%:]"}, r"names records of 'train' twice"),
        (
            "mixed",
            {"split": None},
            r"split=None must be a name, such as 'train' or 'train\[:10%\]'; 'all' is all of test, train, validation",
        ),
        ("mixed", {"split": "train+train"}, r"names records of 'train' twice"),
        (
            "mixed",
            {"features": ["label", "boxes"]},
            r"feature 'boxes' is not in mixed, which has image, id, label",
        ),
        ("mixed", {"features": "label"}, r"features='label' must be a list"),
        ("mixed", {"features": []}, r"features=\[\] must be a list of one or more"),
        ("mixed", {"features": ["label"], "as_supervised": True}, r"leave features out"),
        (
            "mixed",
            {"batch_size": 4},
            r"those of this split differ: give image_size=\(height, width\)",
        ),
        ("mixed", {"batch_size": 0}, r"batch_size=0 must be a whole number above 0"),
        ("mixed", {"batch_size": 2.5}, r"batch_size=2.5 must be a whole number above 0"),
        ("mixed", {"image_size": 224}, r"image_size=224 must be \(height, width\)"),
        ("mixed", {"image_size": (224, 0)}, r"image_size=\(224, 0\) must be"),
        ("mixed", {"image_size": (224, 224, 3)}, r"image_size=\(224, 224, 3\) must be"),
        ("mixed", {"image_size": (8, 8), "decode": False}, r"leave it out with decode=False"),
        ("unlabeled", {"as_supervised": True}, r"this dataset has no labels"),
        ("mixed", {"seed": 0.5}, r"seed=0.5 must be a whole number, or None"),
        (
            "mixed",
            {"shuffle": True, "window": 0},
            r"window=0 must be a whole number of shards above 0",
        ),
        (
            "mixed",
            {"window": 2},
            r"window=2 is how many shards are shuffled with each other: give shuffle=True",
        ),
        ("mixed", {"max_bad_records": -1}, r"max_bad_records=-1 must be a whole number, 0 or more"),
        ("mixed", {"threads": 0}, r"threads=0 must be a whole number above 0"),
        ("mixed", {"ram_bytes": "much"}, r"ram_bytes 'much' is no size"),
        (
            "mixed",
            {"ram_bytes": True},
            r"ram_bytes=True must be a number of bytes, or a size such as '8GB'",
        ),
        ("mixed", {"keep": "all"}, r"keep='all' must be 'records', 'images', or None"),
        (
            "mixed",
            {"keep": "images"},
            r"keep='images' needs images of one size, and those of this split differ",
        ),
        (
            "mixed",
            {"keep": "images", "decode": False},
            r"keep='images' keeps decoded images, and none are decoded",
        ),
        (
            "mixed",
            {"keep": "images", "features": ["id"]},
            r"keep='images' keeps decoded images, and none are decoded",
        ),
        ("mixed", {"keep_in": "/tmp"}, r"keep_in='/tmp' says where, and nothing is kept"),
        (
            "mixed",
            {"keep": "records", "keep_in": "/nowhere/at/all"},
            r"keep_in='/nowhere/at/all' must be 'memory', or a folder",
        ),
    ],
    ids=str,
)
def test_refuses_arguments(
    datasets: Datasets, dataset: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        sw.load(datasets[dataset], **arguments)


def test_refuses_what_is_no_dataset(datasets: Datasets, tmp_path: Path) -> None:
    with pytest.raises(NotADatasetError, match="is not a shardwright dataset"):
        sw.load(str(tmp_path))
    unfinished = shutil.copytree(datasets["mixed"], tmp_path / "unfinished")
    (unfinished / MANIFEST).unlink()
    with pytest.raises(NotADatasetError, match="run the same `shardwright build` command again"):
        sw.load(str(unfinished))


def _remove(shard: Path) -> None:
    shard.unlink()


def _cut_one_record(shard: Path) -> None:
    """At a record's border, where tf.data alone sees no fault."""
    data = shard.read_bytes()
    shard.write_bytes(data[: 16 + int.from_bytes(data[:8], "little")])


def _lengthen(shard: Path) -> None:
    shard.write_bytes(shard.read_bytes() * 2)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            _remove,
            r"mixed-train.tfrecord-00001-of-\d+ is missing, and the manifest states [\d,]+ bytes with 3 records",
        ),
        (
            _cut_one_record,
            r"mixed-train.tfrecord-00001-of-\d+ is [\d,]+ bytes long, and the manifest states",
        ),
        (
            _lengthen,
            r"mixed-train.tfrecord-00001-of-\d+ is [\d,]+ bytes long, and the manifest states",
        ),
    ],
)
def test_refuses_a_shard_that_is_missing_or_of_another_length(
    datasets: Datasets, tmp_path: Path, damage: Any, message: str
) -> None:
    copy = shutil.copytree(datasets["mixed"], tmp_path / "copy")
    damage(next(copy.glob("*-train.tfrecord-00001-*")))

    with pytest.raises(StorageError, match=message):
        sw.load(str(copy))
    assert (
        len(ids_of(sw.load(str(copy), "test")))
        == sw.open(datasets["mixed"]).splits["test"].num_records
    )


def test_a_flipped_bit_is_a_data_loss_error(datasets: Datasets, tmp_path: Path) -> None:
    copy = shutil.copytree(datasets["mixed"], tmp_path / "copy")
    shard = next(copy.glob("*-train.tfrecord-00001-*"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)

    with pytest.raises(tf.errors.DataLossError):
        list(sw.load(str(copy)))


def test_a_stale_shard_is_never_read(datasets: Datasets, tmp_path: Path) -> None:
    copy = shutil.copytree(datasets["mixed"], tmp_path / "copy")
    shard = next(copy.glob("*-train.tfrecord-00000-*"))
    for stale in (ShardName("mixed", "train", 0, 1), ShardName("mixed", "train", 99, 100)):
        shutil.copy(shard, copy / stale.shard)

    assert ids_of(sw.load(str(copy))) == ids_of(sw.load(datasets["mixed"]))


def _size_stats(width: tuple[int, int], height: tuple[int, int], count: int) -> dict[str, Any]:
    return {
        "width": {"min": width[0], "max": width[1], "count": count},
        "height": {"min": height[0], "max": height[1], "count": count},
    }


@pytest.mark.parametrize(
    ("stats", "shape"),
    [
        (_size_stats((8, 8), (6, 6), 4), (6, 8, 3)),
        (_size_stats((8, 9), (6, 6), 4), None),
        (_size_stats((8, 8), (6, 6), 3), None),  # the size of one image is not known
        (_size_stats((0, 0), (0, 0), 4), None),
        ({}, None),
    ],
    ids=str,
)
def test_one_size_is_told_from_statistics(
    tmp_path: Path, stats: dict[str, Any], shape: tuple[int, ...] | None
) -> None:
    split = SplitInfo("train", (ShardInfo(0, 4, 0, 0, ""),), stats)
    manifest = Manifest(
        "tiny", "1.0.0", ExampleSchema((IMAGE,)), {"train": split}, {}, 4, {}, "", {}
    )
    write_json(Folder(str(tmp_path)), MANIFEST, manifest.to_json())
    (tmp_path / manifest.shard_names("train")[0].shard).touch()

    assert plan_read(Origin.open(Folder(str(tmp_path)), None), "train", None).image_shape == shape


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"shuffle": True},
        {"repeat": True},
        {"shuffle": True, "repeat": True},
        {"keep": "images"},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "shards", [(), (ShardInfo(0, 0, 0, 0, ""),)], ids=["no shard", "an empty shard"]
)
def test_a_split_without_records_is_an_empty_dataset(
    tmp_path: Path, shards: tuple[ShardInfo, ...], arguments: dict[str, Any]
) -> None:
    manifest = Manifest(
        "tiny",
        "1.0.0",
        ExampleSchema((IMAGE,)),
        {"train": SplitInfo("train", shards)},
        {},
        0,
        {},
        "",
        {},
    )
    write_json(Folder(str(tmp_path)), MANIFEST, manifest.to_json())
    for name in manifest.shard_names("train"):
        (tmp_path / name.shard).touch()

    assert list(sw.load(str(tmp_path), image_size=(2, 2), batch_size=3, **arguments)) == []
