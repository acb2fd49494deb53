"""The example that trains with torch: it learns, and a run that was stopped in the middle of an epoch ends as one that was not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "train_torch.py"


def run(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)


def output_of(*args: str | Path) -> list[str]:
    done = run(*args)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_stopped_run_ends_as_one_that_never_stopped(digits: str, tmp_path: Path) -> None:
    checkpoint = ("--checkpoint", tmp_path / "run.pt")
    undisturbed = output_of(digits)

    first = output_of(digits, *checkpoint, "--stop-after", "70", "--workers", "2")
    second = output_of(digits, *checkpoint)

    assert first == ["stopped after step 70 of 132, in epoch 1"]
    assert second == ["goes on after step 70 of 132", *undisturbed]
    records, weights, accuracy = undisturbed
    assert re.fullmatch(r"records [0-9a-f]{64}", records)
    assert re.fullmatch(r"weights [0-9a-f]{64}", weights)
    found = re.fullmatch(r"test accuracy (0\.\d{4}) on 169 images", accuracy)
    assert found
    assert float(found[1]) > 0.8


def test_stopping_needs_a_place_for_the_run(digits: str) -> None:
    done = run(digits, "--stop-after", "3")

    assert done.returncode == 2
    assert "--stop-after needs --checkpoint" in done.stderr
