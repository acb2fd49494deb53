"""Repairs of whole datasets: only what is broken is written, and it gets its old bytes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines import repair_dataset
from shardwright.format.manifest import read_manifest
from shardwright.inspect.verify import verify
from shardwright.storage.folder import Folder
from tests.support.build_helpers import build, files_below, make_images, rejects_of

OPTIONS = ("--split", "train=0.7,test=0.3", "--shard-count", "2", "--signals")
NUM_IMAGES = 24


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `photos`, of which two are rejected, and the dataset `data` of them."""
    root = tmp_path_factory.mktemp("repair")
    make_images(root / "photos", NUM_IMAGES)
    for name in ("cat/bad.png", "bird/bad.png"):
        (root / "photos" / name).write_bytes(b"\x89PNG\r\n\x1a\n and nothing else")
    (root / "photos/notes.txt").write_text("not an image")
    options = (*OPTIONS, "--max-reject-fraction", "0.5", "--near-duplicates", "report")
    assert build(root / "photos", root / "data", *options) == 0
    return root


@pytest.fixture
def place(built: Path, tmp_path: Path) -> Path:
    """Return a copy of the dataset, which names the same INPUT."""
    shutil.copytree(built / "data", tmp_path / "data")
    return tmp_path / "data"


def state_of(root: Path) -> dict[str, tuple[str, int]]:
    """Return the hash and the modification time of every file."""
    return {
        name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for name, path in files_below(root).items()
    }


def repair(dataset: Path, *options: str) -> int:
    return repair_dataset.main([str(dataset), *options])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def names_of(place: Path, pattern: str) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.glob(pattern))


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink], ids=["flip", "cut", "delete"])
@pytest.mark.parametrize(
    "pattern",
    [
        "data-train.tfrecord-*", "index/train-*", "signals/test-*", "rejects/t*-*", "plan.json",
        "rejects/plan.parquet", "features.json", "stats.json", "report.html", "label.labels.txt",
        "near_duplicates.parquet", "stats.pb",
    ],
)  # fmt: skip
def test_a_broken_file_gets_its_bytes_again(
    place: Path, pattern: str, damage: Callable[[Path], None]
) -> None:
    before, name = state_of(place), names_of(place, pattern)[0]
    damage(place / name)
    assert not verify(str(place)).is_sound
    assert repair(place) == 0
    after = state_of(place)
    assert after.keys() == before.keys()
    assert {each for each in after if after[each] != before[each]} == {name}
    assert after[name][0] == before[name][0]
    assert verify(str(place)).is_sound
