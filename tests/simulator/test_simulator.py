"""Histories of datasets in a simulated store, with faults and kills: each ends as it must."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tests import ROOT
from tests.support.random_tests import is_long


@pytest.mark.weight(60)
def test_histories(rng: np.random.Generator) -> None:
    seed, number = int(rng.integers(2**32)), 300 if is_long() else 40
    words = ["--seed", str(seed), "--histories", str(number)]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.simulator", *words], cwd=ROOT, capture_output=True, text=True
    )
    assert not ran.returncode, ran.stdout + ran.stderr
