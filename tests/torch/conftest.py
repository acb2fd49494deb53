"""Tests of what runs with torch, in an environment that has neither TensorFlow nor Beam: `make torch`.

`tests/test_torch_environment.py` runs each of these files there, on datasets that the pipeline has built here.
"""

from __future__ import annotations

import importlib.util
import os

import pytest

# Where torch is missing these files cannot be imported; test_torch_environment.py sees to it that they run.
collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]


def _dataset(name: str) -> str:
    return os.environ[f"SHARDWRIGHT_TEST_{name}"]


@pytest.fixture(scope="session")
def pictures() -> str:
    """See `tests/trainer_datasets.py`."""
    return _dataset("PICTURES")


@pytest.fixture(scope="session")
def digits() -> str:
    """See `tests/trainer_datasets.py`."""
    return _dataset("DIGITS")
