"""`build --fail-on`: a dataset above a limit is not published, and the former one stays."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from shardwright.format.manifest import read_manifest
from shardwright.pipelines.commands import build
from shardwright.storage.folder import Folder
from tests.support.small_datasets import write_image

SPLIT = ("--split", "train=0.5,test=0.5")


def fingerprint(dataset: Path) -> str:
    return read_manifest(Folder(str(dataset))).fingerprint


def run(source: Path, output: Path, *options: str) -> int:
    return build.main([str(source), str(output), *options])


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders of 16 images, one of which is in both splits under another name."""
    root = tmp_path_factory.mktemp("photos")
    for number in range(16):
        write_image(root / "ab"[number % 2] / f"{number}.png", number)
    for number in range(6):
        shutil.copy(root / "a" / "0.png", root / "a" / f"copy{number}.png")
    return root


@pytest.fixture(scope="module")
def yesterday(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of the class `a` alone."""
    root = tmp_path_factory.mktemp("yesterday")
    for number in range(8):
        write_image(root / "images" / "a" / f"{number}.png", number)
    assert run(root / "images", root / "out") == 0
    return root / "out"


@pytest.mark.long
def test_leaks(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert run(photos, out, *SPLIT, "--fail-on", "leaks>0,rejects>1%") == 1
    told = capsys.readouterr().err
    assert "the dataset exceeds the limits of --fail-on (leaks>0: " in told
    assert not (out / "manifest.json").exists()
    assert run(photos, out, *SPLIT, "--fail-on", "leaks>50%") == 0
    assert run(photos, out, *SPLIT, "--fail-on", "leaks>0") == 1  # an up-to-date dataset, too


@pytest.mark.long
def test_drift_of_a_replaced_dataset(
    photos: Path, yesterday: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Path(shutil.copytree(yesterday, tmp_path / "out"))
    before = fingerprint(out)
    replace = ("--if-exists", "overwrite")
    assert run(photos, out, *replace, "--fail-on", "drift>0.3") == 1
    assert "(drift>0.3: 0.3636)" in capsys.readouterr().err
    assert fingerprint(out) == before
    assert run(photos, out, *replace, "--fail-on", "drift>0.4") == 0
    assert fingerprint(out) != before


@pytest.mark.long
def test_drift_against_another_dataset(
    photos: Path, yesterday: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = ("--fail-on", "drift>0.3", "--against")
    assert run(photos, tmp_path / "out", *limits, str(tmp_path / "none")) == 1
    assert "is not a shardwright dataset" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert run(photos, tmp_path / "out", *limits, str(yesterday)) == 1
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_nothing_to_compare_with(
    photos: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert run(photos, tmp_path / "out", "--fail-on", "drift>0.1") == 0
    assert "--fail-on drift: there is no dataset to compare with" in caplog.text


def test_a_wrong_limit(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(photos, tmp_path / "out", "--fail-on", "leak>0") == 2
    assert (
        "the names are drift, new, gone, changed, relabeled, reannotated, moved, leaks, near-leaks"
        in capsys.readouterr().err
    )
