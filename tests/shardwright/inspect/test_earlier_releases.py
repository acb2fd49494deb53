"""Datasets without checksums of the files beside the shards: read, and verified by content."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import shardwright as sw
from shardwright.errors import StorageError
from shardwright.format.listed_files import DatasetFault
from shardwright.inspect.verify import verify, verify_quickly
from shardwright.storage.folder import Folder
from tests.support.damage import assert_fault, build, forget_checksums
from tests.support.readers import ids_of

SIDECARS = [f"index/train-0000{number}-of-00003.parquet" for number in range(2)]


@pytest.fixture(name="earlier")
def earlier_fixture(dataset: Path) -> Path:
    forget_checksums(dataset)
    return dataset


def read(dataset: Path) -> list[str]:
    with sw.Reader(str(dataset), global_batch_size=4, epochs=1) as reader:
        return ids_of(reader)


def test_they_are_sound(earlier: Path, zoo: Path) -> None:
    found = verify(str(earlier))
    assert found.is_sound
    [note] = found.notes
    assert "without checksums of itself and of the files beside the shards" in note.what
    assert verify_quickly(Folder(str(earlier))).is_sound
    assert read(earlier) == read(zoo)


def test_a_sidecar_of_another_shard(earlier: Path) -> None:
    shutil.copy(earlier / SIDECARS[1], earlier / SIDECARS[0])
    what = "is not the index of the shard in the manifest"
    assert_fault(earlier, DatasetFault.of_file(SIDECARS[0], what))
    with pytest.raises(StorageError, match="is not the index of the shard in the manifest"):
        read(earlier)


def test_a_sidecar_that_is_not_parquet(earlier: Path) -> None:
    (earlier / SIDECARS[0]).write_text("PAR1 no more")
    assert_fault(earlier, DatasetFault.of_file(SIDECARS[0], "cannot be read"))
    with pytest.raises(StorageError, match=r"00000-of-00003\.parquet cannot be read"):
        read(earlier)


@pytest.mark.long
def test_the_same_build_adds_the_checksums(zoo_images: Path, tmp_path: Path) -> None:
    out = build(zoo_images / "ape", tmp_path / "out", "--max-reject-fraction", "0.5")
    whole = sw.open(str(out))
    forget_checksums(out)
    build(zoo_images / "ape", out, "--max-reject-fraction", "0.5")
    assert not verify(str(out)).notes
    assert sw.open(str(out)).files.keys() >= {"features.json", "stats.json", "plan.json"}
    assert sw.open(str(out)).splits == whole.splits
    assert sw.open(str(out)).files["stats.json"] == whole.files["stats.json"]
