"""The page that a build writes: a finished build never fails for it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from shardwright.format.manifest import read_manifest
from shardwright.report import features
from shardwright.storage.folder import Folder
from shardwright.transforms.publish.report_file import place_report, report_bytes
from tests.support.build_helpers import build, make_images
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


@pytest.mark.long
def test_of_two_publishers_the_second_keeps_the_page_of_the_first(tmp_path: Path) -> None:
    """Their pages differ by the times of the shards, and one may copy what the other writes."""
    images, output = make_images(tmp_path / "in", 3), tmp_path / "out"
    assert build(images, output) == 0
    first = read_manifest(Folder(str(output)))
    (output / "manifest.json").unlink()
    for index in (output / "index").iterdir():
        os.utime(index, (2e9, 2e9))
    assert build(images, output) == 0
    second = read_manifest(Folder(str(output)))
    assert second.provenance["timing"] != first.provenance["timing"]
    assert second.files == first.files
    assert judge(str(output)).faults == ()


def test_a_page_is_written_anew_if_it_is_damaged_or_of_other_shards(tmp_path: Path) -> None:
    assert build(make_images(tmp_path / "in", 3), tmp_path / "out") == 0
    root = Folder(str(tmp_path / "out"))
    manifest = read_manifest(root)
    page = root.read_bytes("report.html")
    for damaged in (b"", b"other", page[:-1], page.replace(b"<h2", b"<h3", 1), page + b" "):
        root.write_bytes("report.html", damaged)
        assert place_report(root, manifest, None, None) == page == root.read_bytes("report.html")
    turned = replace(manifest, settings=dict(reversed(manifest.settings.items())))
    assert place_report(root, turned, None, None) == page
    other = place_report(root, replace(manifest, fingerprint="another"), None, None)
    assert page != other == root.read_bytes("report.html")


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
