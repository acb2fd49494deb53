"""The page that a build writes: a finished build never fails for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright.format.manifest import read_manifest
from shardwright.storage.folder import Folder
from tests.support.build_helpers import build, make_images
from transforms.publish.report_file import report_bytes


def test_a_dataset_whose_indexes_cannot_be_read_has_a_page_without_pictures(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert build(make_images(tmp_path / "in", 3), tmp_path / "out") == 0
    root = Folder(str(tmp_path / "out"))
    manifest = read_manifest(root)
    page = report_bytes(Folder(str(tmp_path / "lost")), manifest, None, None)
    assert b'<h2 id="classes">' in page
    assert b"data:image/" not in page
    assert "report.html has no pictures, because of StorageError" in caplog.text


def test_a_page_in_place_is_kept_unless_it_is_damaged(tmp_path: Path) -> None:
    assert build(make_images(tmp_path / "in", 3), tmp_path / "out") == 0
    root = Folder(str(tmp_path / "out"))
    manifest = read_manifest(root)
    page = root.read_bytes("report.html")
    assert report_bytes(root, manifest, manifest, None) == page
    (tmp_path / "out" / "report.html").write_bytes(b"other")
    assert report_bytes(root, manifest, manifest, None) == page


def test_a_damaged_dataset_that_is_replaced_is_not_compared(tmp_path: Path) -> None:
    assert build(make_images(tmp_path / "in", 3), tmp_path / "out") == 0
    root = Folder(str(tmp_path / "out"))
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "manifest.json").write_text("{}")
    page = report_bytes(root, read_manifest(root), None, Folder(str(tmp_path / "old")))
    assert b"Changes</h2>" not in page
