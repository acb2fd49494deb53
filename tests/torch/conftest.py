"""Tests of code that runs with torch, in an environment without TensorFlow and Beam: `make torch`.

`shardwright/trainers/test_torch_environment.py` runs these files there, on datasets that the
pipeline has built.
"""

from __future__ import annotations

import importlib.util
import os

import pytest

# Without torch these files cannot be imported.
collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["test_*.py"]


@pytest.fixture(scope="session")
def pictures() -> str:
    return os.environ["SHARDWRIGHT_TEST_PICTURES"]  # see `tests/support/trainer_datasets.py`


@pytest.fixture(scope="session")
def digits() -> str:
    return os.environ["SHARDWRIGHT_TEST_DIGITS"]


@pytest.fixture(scope="session")
def scenes() -> str:
    return os.environ["SHARDWRIGHT_TEST_SCENES"]
