"""Everything that needs torch, in the environment that `make torch` makes: with torch, without TensorFlow, Beam and the pipeline's rest.

The files of `tests/torch` run there, each in a process of its own, on datasets that were built here.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests import trainer_datasets

ROOT = Path(__file__).parents[1]
PYTHON = ROOT / ".torch" / "bin" / "python"
TESTS = ROOT / "tests" / "torch"

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="there is no environment with torch: run `make torch`"
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a process there: where the datasets are, and one thread of torch's, for the sake of other tests' time."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "SHARDWRIGHT_TEST_PICTURES": str(trainer_datasets.pictures(tmp_path_factory)),
        "SHARDWRIGHT_TEST_DIGITS": str(trainer_datasets.digits(tmp_path_factory)),
    }


def run_python(
    *args: str | Path, env: dict[str, str], timeout: float = 280
) -> subprocess.CompletedProcess[str]:
    command = [str(PYTHON), *map(str, args)]
    return subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=timeout
    )


@pytest.mark.parametrize("path", sorted(TESTS.glob("test_*.py")), ids=lambda path: path.stem)
def test_file(path: Path, environment: dict[str, str]) -> None:
    done = run_python(
        "-m",
        "pytest",
        path,
        f"--confcutdir={TESTS}",
        "-p",
        "no:cacheprovider",
        "-rs",
        env=environment,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ passed", done.stdout, re.MULTILINE), done.stdout
    assert "skipped" not in done.stdout, done.stdout


def test_a_dataset_is_read_where_there_is_neither_tensorflow_nor_beam(
    environment: dict[str, str],
) -> None:
    code = """
import importlib.util, sys
sys.modules["PIL"] = None  # torchvision brings it
import shardwright as sw
missing = [name for name in ("tensorflow", "apache_beam", "tfx_bsl", "jax", "grain", "keras") if importlib.util.find_spec(name) is None]
reader = sw.Reader(sys.argv[1], global_batch_size=16, image=sw.TrainImage(16), epochs=1, remainder="pad")
print(len(missing), sum(int(batch["mask"].sum()) for batch in reader), sw.open(sys.argv[1]).num_records)
for call in (reader.jax, reader.tf_data, reader.keras, lambda: sw.load(sys.argv[1])):
    try:
        call()
    except sw.errors.UsageError as error:
        print(error)
"""
    done = run_python("-c", code, environment["SHARDWRIGHT_TEST_PICTURES"], env=environment)

    assert done.returncode == 0, done.stderr
    counts, *messages = done.stdout.splitlines()
    assert counts == "6 61 61"
    assert messages == [
        "this needs jax, which is not installed: pip install 'shardwright[jax]'",
        "this needs tensorflow, which is not installed: pip install 'shardwright[tensorflow]'",
        "this needs keras, which is not installed: pip install keras",
        "this needs tensorflow, which is not installed: pip install 'shardwright[tensorflow]'",
    ]
