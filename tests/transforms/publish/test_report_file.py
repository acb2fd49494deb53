"""The page that a build writes: a finished build never fails for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright.format import naming
from shardwright.format.manifest import read_manifest
from shardwright.report import features
from shardwright.storage.folder import Folder
from shardwright.transforms.publish.report_file import report_bytes
from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import make_images
from tests.support.judge import judge


def test_a_dataset_whose_indexes_cannot_be_read_has_a_page_without_pictures(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert build(make_images(tmp_path / "in", 3), tmp_path / "out") == 0
    root = Folder(str(tmp_path / "out"))
    manifest = read_manifest(root)
    page = report_bytes(Folder(str(tmp_path / "lost")), manifest, None, None)
    assert b'<h2 id="classes">' in page
    assert b"This page is incomplete, because of StorageError: " in page
    assert b"Pillow is not installed" not in page
    assert b"data:image/" not in page
    assert "report.html has no pictures, because of StorageError" in caplog.text


def test_the_page_is_outside_of_the_manifest_and_a_build_makes_a_lost_one_again(
    tmp_path: Path,
) -> None:
    images, output = make_images(tmp_path / "in", 3), tmp_path / "out"
    assert build(images, output) == 0
    assert naming.REPORT not in read_manifest(Folder(str(output))).files
    page = (output / naming.REPORT).read_bytes()
    (output / naming.REPORT).unlink()
    assert judge(str(output)).is_sound
    assert build(images, output) == 0
    assert (output / naming.REPORT).read_bytes() == page


def test_a_page_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    images, output = make_images(tmp_path / "in", 3), tmp_path / "out"
    assert build(images, output) == 0
    for name in (naming.MANIFEST, naming.REPORT):
        (output / name).unlink()
    (output / naming.REPORT / "x").mkdir(parents=True)
    assert build(images, output) == 0
    assert "report.html is not written (`shardwright report` does): " in caplog.text
    assert judge(str(output)).is_sound


@pytest.mark.long
def test_a_page_that_fails_does_not_decide_whether_a_dataset_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(features, "_figures", lambda _: 1 / 0)
    assert build(make_images(tmp_path / "in", 3), tmp_path / "out") == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "This section cannot be shown, because of ZeroDivisionError" in page
    assert page.count("data:image/") == 3
    assert "report.html, classes: " in caplog.text
    assert judge(str(tmp_path / "out")).is_sound


def test_a_damaged_dataset_that_is_replaced_is_not_compared(tmp_path: Path) -> None:
    assert build(make_images(tmp_path / "in", 3), tmp_path / "out") == 0
    root = Folder(str(tmp_path / "out"))
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "manifest.json").write_text("{}")
    page = report_bytes(root, read_manifest(root), Folder(str(tmp_path / "old")), None)
    assert b"Changes</h2>" not in page
