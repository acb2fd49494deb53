"""Temporary files of builds."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from shardwright.pipelines.commands import plan
from shardwright.pipelines.runners.processes import remove_abandoned, temporary_folder
from tests.support.build_helpers import build, make_images


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary folder, empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], 0),
        (["--runner=DirectRunner"], 0),
        (["--writer", "beam"], 0),
        (["--min-side", "100"], 1),  # every image is rejected
        (["--runner=NoRunner"], 2),
    ],
)
def test_a_build_leaves_nothing(
    options: list[str], code: int, temporary: Path, tmp_path: Path
) -> None:
    assert build(make_images(tmp_path / "in", 2), tmp_path / "out", *options) == code
    assert os.listdir(temporary) == []
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(temporary)


def test_a_plan_leaves_nothing(temporary: Path, tmp_path: Path) -> None:
    source = make_images(tmp_path / "in", 2)
    assert plan.main([str(source), str(tmp_path / "out")]) == 0
    assert os.listdir(temporary) == []


def test_the_next_run_removes_the_folder_of_a_killed_one(temporary: Path) -> None:
    code = (
        "import os, signal; from shardwright.pipelines.runners.processes import temporary_folder\n"
        "with temporary_folder() as folder:\n"
        "    open(f'{folder}/image', 'w').close(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    [left] = temporary.iterdir()
    os.utime(left, (1, 1))
    with temporary_folder() as used:
        assert os.listdir(temporary) == [Path(used).name]
        os.utime(used, (1, 1))
        tempfile.tempdir = str(temporary)
        remove_abandoned()
        assert os.path.exists(used)


def test_a_pipeline_that_never_runs_leaves_nothing(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMPDIR")
    with temporary_folder() as folder:
        beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))
        assert [path.name[:18] for path in Path(folder).iterdir()] == ["beam-pipeline-temp"]
        assert os.environ["TMPDIR"] == folder
    assert os.listdir(temporary) == []
    assert "TMPDIR" not in os.environ
