"""Fixtures of the Airflow tests, which know the project by its command only."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.engines.airflow.airflow_runs import DAGS, Airflow
from tests.engines.engine_builds import ROOT
from tests.engines.engine_images import make_engine_images

# A folder's name that a shell or a template engine would change.
ODD_NAME = """a b; touch INJECTED $(touch INJECTED) '"`{{ 7 * 7 }}"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if importlib.util.find_spec("airflow") is None:
        missing = pytest.mark.skip(reason="Airflow is not installed here: make test-airflow")
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(missing)


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    """AIRFLOW_HOME with a database and the shipped DAGs, for this process too; no network."""
    folder = tmp_path_factory.mktemp("airflow")
    shutil.copytree(DAGS, folder / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    settings = {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "1",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW_VAR_SHARDWRIGHT_VENV": str(ROOT / ".venv"),
    }
    os.environ.update(settings)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else every process compiles Airflow again
    home = Airflow(folder, dict(os.environ))
    for words in (("db", "migrate"), ("dags", "reserialize")):
        command, quiet = home.command(*words), subprocess.DEVNULL
        subprocess.run(command, env=home.environment, check=True, stdout=quiet, timeout=240)
    return home


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class folders with 60 PNG and JPEG files in a folder with an odd name; not to be changed."""
    return make_engine_images(tmp_path_factory.mktemp("images") / ODD_NAME)
