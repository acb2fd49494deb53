"""`plan --estimate`: from a folder and an archive."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from shardwright.pipelines.commands import plan
from tests.support.build_helpers import make_images


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("in") / "zoo", 100, side=180)


def estimate(capsys: pytest.CaptureFixture[str], *argv: object) -> dict[str, Any]:
    capsys.readouterr()
    assert plan.main([*map(str, argv), "--estimate", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)["build_estimate"]
    return found


def test_a_folder(images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = estimate(capsys, images, tmp_path / "out", "--check", "decode")
    assert list(found) == ["figures", "unknown", "warning"]
    figures = {name: figure["value"] for name, figure in found["figures"].items()}
    names = ["bytes read", "bytes written", "image", "CPU of image", "shard", "all", "memory"]
    assert list(figures) == names
    assert figures["all"] == figures["shard"] == pytest.approx(100 * figures["image"])
    assert figures["image"] > figures["CPU of image"] / 64 > 0
    assert (found["unknown"], found["warning"]) == ([], "")
    assert not (tmp_path / "out").exists()


def test_text(images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.main([str(images), str(tmp_path / "out"), "--estimate"]) == 0
    out = capsys.readouterr().out
    assert "\nestimate for FnApiRunner:\n  bytes read " in out
    assert " = 100 x image, in one process\n" in out


def test_images_that_must_be_unpacked(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = shutil.make_archive(str(tmp_path / "photos"), "gztar", images)
    found = estimate(capsys, packed, tmp_path / "out")
    assert found["unknown"] == ["time: INPUT must be unpacked first"]
    assert found["figures"]["bytes spooled"]["value"] == found["figures"]["bytes read"]["value"]
