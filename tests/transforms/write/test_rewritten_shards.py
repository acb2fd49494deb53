"""Shards that are written again without some records: bytes are copied, the index follows."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import RecordFault, StorageError
from shardwright.format.index import read_index
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.format.naming import ShardName
from shardwright.pipelines.job.build import prepare_job
from shardwright.pipelines.local.build import build_here
from shardwright.pipelines.options.build import parse_options
from shardwright.storage.folder import Folder
from shardwright.transforms.reject_files import read_rejects
from shardwright.transforms.rejects import Reject, RejectReason
from shardwright.transforms.write.rewritten_shards import rewrite_shard
from tests.support.build_helpers import make_images


class Built:
    """A dataset of one shard with one reject."""

    def __init__(self, root: Path) -> None:
        make_images(root / "photos", 10)
        (root / "photos/cat/bad.png").write_bytes(b"\x89PNG\r\n\x1a\n and nothing else")
        words = [str(root / "photos"), str(root / "data"), "--max-reject-fraction", "0.5"]
        build_here(prepare_job(parse_options([*words, "--signals"])))
        self.root, self.to = Folder(str(root / "data")), Folder(str(root / "to"))
        self.manifest: Manifest = read_manifest(self.root)
        [(self.name, self.info)] = self.manifest.named_shards()
        self.rows = read_index(self.root, self.name).to_pylist()

    def frames(self, folder: Folder) -> dict[str, bytes]:
        """Return the bytes of every record by id, at the offsets of the index."""
        data = folder.read_bytes(self.name.shard)
        return {
            row["id"]: data[row["offset"] : row["offset"] + row["length"]]
            for row in read_index(folder, self.name).to_pylist()
        }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("rewritten"))


def test_a_shard_with_all_records_is_the_same(built: Built) -> None:
    rewrite_shard(built.root, built.manifest, built.name, to=built.to)
    name = built.name
    for path in (name.shard, name.sidecar, name.signals, name.rejects):
        assert built.to.read_bytes(path) == built.root.read_bytes(path)


@given(numbers=st.sets(st.integers(0, 9)))
def test_the_other_records_are_copied(built: Built, numbers: set[int]) -> None:
    ids = {built.rows[number]["id"] for number in numbers}
    summary = rewrite_shard(built.root, built.manifest, built.name, to=built.to, without=ids)
    there, here = built.frames(built.root), built.frames(built.to)
    assert list(here.items()) == [(id, frame) for id, frame in there.items() if id not in ids]
    assert summary.num_records == 10 - len(ids)
    data = built.to.read_bytes(built.name.shard)
    assert data == b"".join(here.values())
    for row in read_index(built.to, built.name).to_pylist():
        start = row["image_offset"]
        assert data[start : start + 4] == b"\x89PNG"
    assert summary.rejects == {"truncated": 1}


def test_rejects_are_added(built: Built) -> None:
    lost = Reject(built.rows[3]["id"], "uri", RejectReason.LOST, "gone")
    summary = rewrite_shard(
        built.root, built.manifest, built.name, to=built.to, without={lost.id}, rejects=[lost]
    )
    assert summary.rejects == {"lost": 1, "truncated": 1}
    assert lost in read_rejects(built.to, built.name.rejects)
    counts = summary.stats["rejected_labels"]
    assert sum(counts.values()) == 2
    assert counts[str(built.rows[3]["label"])] >= 1


def damaged(built: Built, folder: Folder, name: str, place: int) -> Folder:
    """Return a folder with a file of the dataset that has one changed byte."""
    data = bytearray(built.root.read_bytes(name))
    data[place] ^= 1
    folder.write_bytes(name, bytes(data))
    return folder


def test_a_damaged_record_never_stays(built: Built, tmp_path: Path) -> None:
    row = built.rows[4]
    folder = damaged(built, Folder(str(tmp_path)), built.name.shard, row["image_offset"] + 5)
    with pytest.raises(RecordFault, match=f"record at byte {row['offset']}: the checksum"):
        rewrite_shard(built.root, built.manifest, built.name, to=built.to, records=folder)
    summary = rewrite_shard(
        built.root, built.manifest, built.name, to=built.to, without={row["id"]}, records=folder
    )
    assert summary.num_records == 9


def test_damaged_lists_are_not_believed(built: Built, tmp_path: Path) -> None:
    name: ShardName = built.name
    for path in (name.shard, name.sidecar, name.rejects):
        Folder(str(tmp_path)).write_bytes(path, built.root.read_bytes(path))
    folder = damaged(built, Folder(str(tmp_path)), name.rejects, 20)
    with pytest.raises(StorageError, match=r"rejects/.* is damaged"):
        rewrite_shard(folder, built.manifest, name, to=built.to)
    damaged(built, folder, name.sidecar, 20)
    with pytest.raises(StorageError, match=r"index/.* is damaged"):
        rewrite_shard(folder, built.manifest, name, to=built.to)
