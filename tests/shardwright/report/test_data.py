"""Pictures by id: near-duplicates and changes, in a bounded number of bytes and of records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwright.errors import StorageError
from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.manifest import read_manifest
from shardwright.report import data
from shardwright.report.data import NearPair, pictures_of, read_near_pairs
from shardwright.report.pictures import LARGE, LARGEST, SMALL, detail_for
from shardwright.storage.folder import Folder
from tests.shardwright.report.test_page import manifest_of
from tests.support.build_helpers import build, make_images


def test_the_most_distant_near_duplicates_are_chosen(tmp_path: Path) -> None:
    pairs = [NearPair(f"{number}", "a", number) for number in range(40)]
    rows = [NearPair("a", "a", 0), *pairs]
    path = tmp_path / naming.NEAR_DUPLICATES
    pq.write_table(pa.Table.from_pylist([{"group": 1, **row._asdict()} for row in rows]), path)
    content = {naming.NEAR_DUPLICATES: FileContent.of(path.read_bytes())}
    root, manifest = Folder(str(tmp_path)), manifest_of(files=content)
    found = read_near_pairs(root, manifest)
    assert [pair.distance for pair in found] == list(range(39, 27, -1))
    assert read_near_pairs(root, manifest_of()) == []
    path.write_bytes(b"PAR1")
    with pytest.raises(StorageError, match=naming.NEAR_DUPLICATES):
        read_near_pairs(root, manifest)
    path.unlink()
    assert read_near_pairs(root, manifest) == []


@pytest.mark.long
def test_pictures_by_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build(make_images(tmp_path / "in", 6), tmp_path / "out") == 0
    root = Folder(str(tmp_path / "out"))
    manifest = read_manifest(root)
    ids = ["bird/0000.png", "cat/0001.png", "no/such.png"]
    found = pictures_of(root, manifest, ids)
    assert sorted(found) == ids[:2]
    assert all(picture.thumbnail for picture in found.values())
    monkeypatch.setattr(data, "_MAX_SEARCHED", 5)
    assert pictures_of(root, manifest, ids) == {}
    assert pictures_of(root, replace(manifest, splits={}), []) == {}


def test_fewer_pictures_are_larger() -> None:
    for number, detail in ((1, LARGEST), (80, LARGEST), (90, LARGE), (500, LARGE), (501, SMALL)):
        assert detail_for(number, 2_550_000) == detail
