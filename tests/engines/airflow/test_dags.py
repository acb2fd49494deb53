"""The DAGs as Airflow reads them; nothing is run."""

from __future__ import annotations

import ast
import shlex
from copy import copy
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from tests.engines.airflow.airflow_runs import DAGS, Airflow
from tests.engines.airflow.conftest import ODD_NAME
from tests.engines.engine_builds import ROOT

NAMES = ("shardwright_bash", "shardwright_beam", "shardwright_dataflow")
OF_THE_PROJECT = {"shardwright", "pipelines", "transforms", "schemas", "tests", "benchmarks"}
FIRST_TASK = dict(zip(NAMES, ("command", "options", "launch"), strict=True))


@pytest.fixture(scope="module")
def bag(airflow: Airflow) -> Any:
    from airflow.dag_processing.dagbag import BundleDagBag

    folder = airflow.folder / "dags"
    # With the folder on Python's path, as Airflow has it.
    return BundleDagBag(folder, bundle_path=folder, bundle_name="dags-folder")


def first_task(bag: Any, dag: str, day: datetime | None = None, **params: Any) -> Any:
    """Return the result of the task that works out the build's options."""
    run = SimpleNamespace(logical_date=day, run_after=datetime(2026, 7, 8, 9, tzinfo=UTC))
    values = {
        name: copy(param).resolve(params.get(name, param.value))
        for name, param in bag.dags[dag].params.items()
    }
    return bag.dags[dag].get_task(FIRST_TASK[dag]).python_callable(params=values, dag_run=run)


def test_all_load_without_errors(bag: Any) -> None:
    assert bag.import_errors == {}
    assert sorted(bag.dags) == sorted(NAMES)


@pytest.mark.parametrize("path", sorted(DAGS.glob("*.py")), ids=lambda path: path.stem)
def test_none_imports_the_project(path: Any) -> None:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert not OF_THE_PROJECT & {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("name", NAMES)
def test_each_builds_daily_one_at_a_time(bag: Any, name: str) -> None:
    dag = bag.dags[name]
    assert dag.timetable.expression == "0 0 * * *"
    assert (dag.catchup, dag.max_active_runs, dag.max_active_tasks) == (False, 1, 1)
    assert "shardwright" in dag.tags
    assert "Each run adds to OUTPUT what is new or changed in" in dag.doc_md
    assert dag.get_task("build").upstream_task_ids == {FIRST_TASK[name]}
    for task in dag.tasks:
        assert task.retries == 2
        assert task.execution_timeout == timedelta(hours=12)
        assert [callback.__name__ for callback in task.on_failure_callback] == ["alert"]


WRONG_PARAMS: list[dict[str, Any]] = [
    {"input": ""},
    {"input": None},
    {"output": 5},
    {"name": "Photos 1"},
    {"split": ""},
    {"shard_size": 150},
    {"options": {"--resize": "8x8"}},
    {"options": {"resize 8": "8x8"}},
    {"options": {"resize": {"w": 8}}},
    {"options": "--resize 8x8"},
]


@pytest.mark.parametrize(
    ("name", "params"),
    [
        *((name, params) for name in NAMES for params in WRONG_PARAMS),
        ("shardwright_beam", {"runner": "NoRunner"}),
        ("shardwright_dataflow", {"max_workers": 0}),
        ("shardwright_dataflow", {"input": "/photos"}),
    ],
    ids=repr,
)
def test_wrong_params_are_refused(bag: Any, name: str, params: dict[str, Any]) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError):
        first_task(bag, name, **params)


def test_a_run_by_hand_is_dated_by_when_it_runs(bag: Any) -> None:
    assert first_task(bag, "shardwright_beam", output="/d/{date}/")["output"] == "/d/2026-07-08"
    day = datetime(2026, 3, 4, tzinfo=UTC)
    dated = first_task(bag, "shardwright_beam", day, output="/d/{date}")
    assert dated["output"] == "/d/2026-03-04"


@pytest.mark.parametrize(
    ("params", "given"),
    [
        ({}, {"input": "/data/photos", "output": "/data/dataset", "if-exists": "append"}),
        ({"options": {"if-exists": "error"}}, {"if-exists": "error"}),
        ({"output": "/d/{date}", "input": "/in/{date}"}, {"input": "/in/2026-07-08"}),
        ({"input": "/in/{date}.csv"}, {"if-exists": "append", "keep-missing": True}),
        ({"input": "/in/d-{date}.tar"}, {"input": "/in/d-2026-07-08.tar", "keep-missing": True}),
        ({"max_gone": "25%"}, {"if-exists": "append", "max-gone": "25%"}),
    ],
    ids=repr,
)
def test_the_dataset_grows_unless_each_date_has_one(
    bag: Any, params: dict[str, Any], given: dict[str, Any]
) -> None:
    options = first_task(bag, "shardwright_beam", **params)
    assert given.items() <= options.items()
    assert ("if-exists" in options) == ("{date}" not in params.get("output", ""))
    assert options.get("keep-missing", False) == given.get("keep-missing", False)


@pytest.mark.parametrize(
    "text", [ODD_NAME, "; rm -rf /", "a\nb", "--help", "", "ä.sh", "$HOME", "\\", "!!", "*"]
)
def test_the_shell_gets_every_text_as_one_word(bag: Any, text: str) -> None:
    options = {"resize": text, "stratify": True, "threads": 2}
    line = first_task(bag, "shardwright_bash", input=f"x{text}", options=options)
    words = shlex.split(line)
    assert words[:2] == [str(ROOT / ".venv" / "bin" / "shardwright"), "build"]
    assert {f"--input=x{text}", f"--resize={text}", "--stratify", "--threads=2"} <= set(words)


def test_options_become_arguments(bag: Any) -> None:
    lists = {"transform": ["a.py", "b.py"], "stratify": False}
    params = {"split": None, "options": {**lists, "records_per_shard": 9, "input": "elsewhere"}}
    words = shlex.split(first_task(bag, "shardwright_bash", shard_size=None, **params))
    given = [word for word in words if "transform" in word]
    assert given == ["--transform=a.py", "--transform=b.py"]
    left_out = ("--stratify", "--shard-size", "--split")
    assert not [word for word in words if word.startswith(left_out)]
    assert [word for word in words if word.startswith("--input")] == ["--input=/data/photos"]
