"""Tests with torch, in the environment of `make torch`, on datasets that were built here."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests import ROOT
from tests.support import trainer_datasets

PYTHON = ROOT / ".torch" / "bin" / "python"
TESTS = ROOT / "tests" / "torch"

pytestmark = [
    pytest.mark.skipif(not PYTHON.exists(), reason="no environment with torch: run `make torch`"),
    pytest.mark.timeout(3000),
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Places of the datasets and temporary files, and one thread of torch's."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(tmp_path_factory.mktemp("torch")),
        "SHARDWRIGHT_TEST_PICTURES": str(trainer_datasets.pictures(tmp_path_factory)),
        "SHARDWRIGHT_TEST_DIGITS": str(trainer_datasets.digits(tmp_path_factory)),
        "SHARDWRIGHT_TEST_SCENES": str(trainer_datasets.scenes(tmp_path_factory)),
    }


def run_python(*args: str | Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [str(PYTHON), *map(str, args)]
    return subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=2900
    )


@pytest.mark.parametrize("tests", ["not long", pytest.param("long", marks=pytest.mark.long)])
def test_all_tests_with_torch_pass_and_none_is_skipped(
    environment: dict[str, str], tests: str
) -> None:
    options = ("-p", "no:cacheprovider", "-rs", f"--confcutdir={TESTS}", "--timeout=300")
    options += ("-m", tests)
    done = run_python("-m", "pytest", *options, TESTS, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ passed", done.stdout, re.MULTILINE), done.stdout
    assert "skipped" not in done.stdout, done.stdout


def test_a_dataset_is_read_without_tensorflow_and_beam(environment: dict[str, str]) -> None:
    code = """
import importlib.util, sys
sys.modules["PIL"] = None  # torchvision brings it
import shardwright as sw
names = "tensorflow apache_beam tfx_bsl jax grain keras".split()
missing = [name for name in names if importlib.util.find_spec(name) is None]
image = sw.TrainImage(16)
reader = sw.Reader(sys.argv[1], global_batch_size=16, image=image, epochs=1, remainder="pad")
num_read = sum(int(batch["mask"].sum()) for batch in reader)
print(len(missing), num_read, sw.open(sys.argv[1]).num_records)
for call in (reader.jax, reader.tf_data, reader.keras, lambda: sw.load(sys.argv[1])):
    try:
        call()
    except sw.errors.UsageError as error:
        print(error)
"""
    done = run_python("-c", code, environment["SHARDWRIGHT_TEST_PICTURES"], env=environment)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "6 61 61",
        "this needs jax, which is not installed: pip install 'shardwright[jax]'",
        "this needs tensorflow, which is not installed: pip install 'shardwright[tensorflow]'",
        "this needs keras, which is not installed: pip install keras",
        "this needs tensorflow, which is not installed: pip install 'shardwright[tensorflow]'",
    ]
