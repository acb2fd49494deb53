"""The example of a pipeline of one's own runs, and what it makes is a dataset like any other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import shardwright as sw
from shardwright.verify import verify
from tests.build_helpers import hashes_of, make_images, png_of, reasons_of

EXAMPLE = Path(__file__).parent.parent / "examples" / "own_pipeline.py"


def run(*args: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLE, *args], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_runs_and_runs_again(tmp_path: Path) -> None:
    source = make_images(tmp_path / "in", 40, side=16)
    (source / "cat" / "tiny.png").write_bytes(png_of(0, side=2))
    said = run(source, tmp_path / "out", "--min-kb", "0.5")
    assert "40 records, rejects: {'bad_value': 1}" in said
    dataset = sw.open(str(tmp_path / "out"))
    assert set(dataset.splits) == {"train", "test"}
    assert dataset.num_classes == 3
    assert reasons_of(tmp_path / "out") == {"cat/tiny.png": "bad_value"}
    assert not list(verify(str(tmp_path / "out")).faults)
    before = hashes_of(tmp_path / "out")
    run(source, tmp_path / "out", "--min-kb", "0.5")
    assert hashes_of(tmp_path / "out") == before
