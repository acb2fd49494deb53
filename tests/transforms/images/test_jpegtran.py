"""`--encode keep --crop-tiles` where jpegtran is missing or another; tests/engines has the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardwright.errors import BuildError, UsageError
from shardwright.transforms.images.jpegtran import divided, find_jpegtran
from tests.support.build_helpers import build
from tests.support.image_makers import drawn


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the only folder that is searched."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    find_jpegtran.cache_clear()
    yield folder
    find_jpegtran.cache_clear()


def program(folder: Path, script: str) -> None:
    (folder / "jpegtran").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "jpegtran").chmod(0o755)


def test_a_missing_jpegtran_is_named_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(tmp_path / "photos", tmp_path / "out", "--crop-tiles") == 2
    told = capsys.readouterr().err
    assert "--crop-tiles with --encode keep needs jpegtran, which is not on PATH" in told
    assert "apt-get install libjpeg-turbo-progs" in told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("script", ["/bin/cat", "exit 1", "echo unknown option >&2; exit 2"])
def test_a_jpegtran_that_does_not_divide_is_refused(path: Path, script: str) -> None:
    program(path, script)
    with pytest.raises(UsageError, match=r"jpegtran does not divide a JPEG into tiles: put lib"):
        divided(drawn("JPEG"))


def test_a_killed_jpegtran_is_no_reject(path: Path) -> None:
    program(path, "kill -9 $$")
    with pytest.raises(BuildError, match=r"jpegtran ended with -9: it was killed"):
        divided(drawn("JPEG"))
