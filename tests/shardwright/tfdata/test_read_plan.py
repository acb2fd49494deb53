"""Arguments and datasets that `shardwright.load` refuses, and what it derives from a manifest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.errors import NotADatasetError, StorageError, UsageError
from shardwright.format.manifest import Manifest, write_json
from shardwright.format.naming import MANIFEST, ShardName
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.format.splits import ShardInfo, SplitInfo
from shardwright.reader.corpus import DatasetSource
from shardwright.storage.folder import Folder
from shardwright.tfdata.read_plan import plan_read
from tests.support.small_datasets import Datasets, datasets_fixture, tensor_ids  # noqa: F401

DIFFER = "needs images of one size, but those of this split differ"
NOT_DECODED = "keep='images' keeps decoded images, but none are decoded"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "dev"}, "split 'dev' is not in mixed, which has test, train, validation"),
        ({"split": "train[:50 percent]"}, "'50 percent' must be a whole number of records"),
        ({"split": "train[:60%]+train[50%:]"}, "selects some records of 'train' twice"),
        (
            {"split": None},
            r"split=None must be a name, such as 'train' or 'train\[:10%\]'; "
            "'all' is all of test, train, validation",
        ),
        ({"split": "train+train"}, "selects some records of 'train' twice"),
        ({"features": ["boxes"]}, "feature 'boxes' is not in mixed, which has image, id, label"),
        ({"features": "label"}, "features='label' must be a list"),
        ({"features": []}, r"features=\[\] must be a list of one or more"),
        ({"features": ["label"], "as_supervised": True}, "leave one of them out"),
        ({"batch_size": 4}, rf"batch_size=4 {DIFFER}: set image_size=\(height, width\)"),
        ({"batch_size": 0}, "batch_size=0 must be a whole number above 0"),
        ({"batch_size": 2.5}, "batch_size=2.5 must be a whole number above 0"),
        ({"image_size": 224}, r"image_size=224 must be \(height, width\)"),
        ({"image_size": (224, 0)}, r"image_size=\(224, 0\) must be"),
        ({"image_size": (224, 224, 3)}, r"image_size=\(224, 224, 3\) must be"),
        ({"image_size": (8, 8), "decode": False}, "leave it out with decode=False"),
        ({"dataset": "unlabeled", "as_supervised": True}, "as_supervised=True needs a label"),
        ({"seed": 0.5}, "seed=0.5 must be a whole number, or None"),
        ({"shuffle": True, "window": 0}, "window=0 must be a whole number of shards above 0"),
        (
            {"window": 2},
            "window=2, the number of shards shuffled together, needs shuffle=True",
        ),
        ({"max_bad_records": -1}, "max_bad_records=-1 must be a whole number, at least 0"),
        ({"threads": 0}, "threads=0 must be a whole number above 0"),
        ({"ram_bytes": "much"}, "ram_bytes 'much' is not a size"),
        ({"ram_bytes": True}, "ram_bytes=True must be a number of bytes, or a size such as '8GB'"),
        ({"keep": "all"}, "keep='all' must be 'records', 'images', or None"),
        ({"keep": "images"}, f"keep='images' {DIFFER}"),
        ({"keep": "images", "decode": False}, NOT_DECODED),
        ({"keep": "images", "features": ["id"]}, NOT_DECODED),
        ({"keep_in": "/tmp"}, "keep_in='/tmp' has no effect without keep"),
        ({"keep": "records", "keep_in": "/no"}, "keep_in='/no' must be 'memory', or an"),
    ],
    ids=str,
)
def test_refuses_arguments(datasets: Datasets, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        sw.load(**{**arguments, "dataset": datasets[arguments.get("dataset", "mixed")]})


@pytest.fixture
def copy(datasets: Datasets, tmp_path: Path) -> Path:
    """A copy of the dataset "mixed" that a test may damage."""
    return Path(shutil.copytree(datasets["mixed"], tmp_path / "copy"))


def test_refuses_other_folders(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(NotADatasetError, match="is not a shardwright dataset"):
        sw.load(str(tmp_path))
    (copy / MANIFEST).unlink()
    with pytest.raises(NotADatasetError, match="run the same `shardwright build` command again"):
        sw.load(str(copy))


def cut_after_one_record(data: bytes) -> bytes:
    """Cut where tf.data alone sees no fault."""
    return data[: 16 + int.from_bytes(data[:8], "little")]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (None, r"is missing, and the manifest states [\d,]+ bytes with 3 records"),
        (cut_after_one_record, r"is [\d,]+ bytes long, and the manifest states"),
        (lambda data: data * 2, r"is [\d,]+ bytes long, and the manifest states"),
    ],
)
def test_refuses_a_shard_that_is_missing_or_of_another_length(
    datasets: Datasets, copy: Path, damage: Callable[[bytes], bytes] | None, message: str
) -> None:
    shard = next(copy.glob("*-train.tfrecord-00001-*"))
    if damage is None:
        shard.unlink()
    else:
        shard.write_bytes(damage(shard.read_bytes()))
    with pytest.raises(StorageError, match=f"{shard.name} {message}"):
        sw.load(str(copy))
    assert tensor_ids(sw.load(str(copy), "test")) == tensor_ids(sw.load(datasets["mixed"], "test"))


def test_a_stale_shard_is_never_read(datasets: Datasets, copy: Path) -> None:
    shard = next(copy.glob("*-train.tfrecord-00000-*"))
    for stale in (ShardName("mixed", "train", 0, 1), ShardName("mixed", "train", 99, 100)):
        shutil.copy(shard, copy / stale.shard)
    assert tensor_ids(sw.load(str(copy))) == tensor_ids(sw.load(datasets["mixed"]))


def write_manifest(folder: Path, split: SplitInfo) -> None:
    """Write the manifest of a dataset with one split of shards of zeros."""
    schema = ExampleSchema((Feature("image", FeatureKind.IMAGE, Source.IMAGE),))
    splits, count = {split.name: split}, split.num_records
    manifest = Manifest("tiny", "1.0.0", schema, splits, {}, count, {}, "", {})
    write_json(Folder(str(folder)), MANIFEST, manifest.to_json())
    for name, info in manifest.named_shards(split.name):
        (folder / name.shard).write_bytes(bytes(info.num_bytes))


@pytest.mark.parametrize(
    ("width", "height", "count", "shape"),
    [
        ((8, 8), (6, 6), 4, (6, 8, 3)),
        ((8, 9), (6, 6), 4, None),
        ((8, 8), (6, 6), 3, None),  # the size of one image is not known
        ((0, 0), (0, 0), 4, None),
        (None, None, 4, None),
    ],
)
def test_one_size_is_derived_from_statistics(
    tmp_path: Path, width: Any, height: Any, count: int, shape: tuple[int, ...] | None
) -> None:
    stats = {
        name: {"min": ends[0], "max": ends[1], "sum": sum(ends), "count": count}
        for name, ends in (("width", width), ("height", height))
        if ends
    }
    write_manifest(tmp_path, SplitInfo("train", (ShardInfo(0, 4, 100, 0, ""),), stats))
    assert (
        plan_read(DatasetSource.open(Folder(str(tmp_path)), None), "train", None).image_shape
        == shape
    )


@pytest.mark.long
@pytest.mark.parametrize("shards", [(), (ShardInfo(0, 0, 0, 0, ""),)], ids=["none", "empty"])
def test_a_split_without_records_is_an_empty_dataset(
    tmp_path: Path, shards: tuple[ShardInfo, ...]
) -> None:
    write_manifest(tmp_path, SplitInfo("train", shards))
    both = {"shuffle": True, "repeat": True}
    for options in ({}, {"shuffle": True}, {"repeat": True}, both, {"keep": "images"}):
        assert list(sw.load(str(tmp_path), image_size=(2, 2), batch_size=3, **options)) == []
