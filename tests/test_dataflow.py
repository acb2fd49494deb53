"""What a Dataflow job is told beside the user's options."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines import dataflow
from pipelines.dataflow import dataflow_arguments, job_name
from shardwright.errors import UsageError

ENOUGH = ["--runner=DataflowRunner", "--project=p", "--region=r", "--temp_location=gs://b/tmp"]


@pytest.fixture(autouse=True)
def no_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither this machine's settings nor its gcloud say project or region."""
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    monkeypatch.delenv("CLOUDSDK_COMPUTE_REGION", raising=False)
    monkeypatch.setenv("PATH", "")


def added(*beam_args: str, output: str = "gs://b/flowers") -> list[str]:
    """What is added to enough options and these."""
    given = [*ENOUGH, *beam_args]
    whole = dataflow_arguments(given, dataset="my_flowers", output=output)
    assert whole[: len(given)] == given
    return whole[len(given) :]


def test_what_is_left_open_is_filled_in() -> None:
    told = dict(
        arg.removeprefix("--").partition("=")[::2]
        for arg in added()
        if not arg.startswith("--labels=")
    )
    assert told == {
        "setup_file": str(dataflow.SETUP_FILE),
        "requirements_file": str(dataflow.REQUIREMENTS),
        "requirements_cache": "skip",
        "job_name": job_name("my_flowers", "gs://b/flowers"),
        "number_of_worker_harness_threads": "2",
        "no_save_main_session": "",
    }
    assert [arg for arg in added() if arg.startswith("--labels=")] == [
        "--labels=shardwright=0-1-0",
        "--labels=dataset=my_flowers",
    ]


def test_what_is_given_stays() -> None:
    given = [
        "--job_name=mine",
        "--labels=dataset=other",
        "--labels=team=x",
        "--number_of_worker_harness_threads=5",
        "--save_main_session",
    ]
    assert added(*given, "--sdk_container_image=gcr.io/p/i:1") == ["--labels=shardwright=0-1-0"]


def test_labels_may_be_one_json_object() -> None:
    labels = '--labels={"dataset": "other", "team": "x"}'
    assert [arg for arg in added(labels) if arg.startswith("--labels")] == [
        "--labels=shardwright=0-1-0"
    ]
    with pytest.raises(UsageError, match="give key=value, or a JSON object"):
        added('--labels={"dataset"}')


def test_project_and_region_are_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p2")
    monkeypatch.setenv("CLOUDSDK_COMPUTE_REGION", "r2")
    whole = dataflow_arguments(
        ["--runner=DataflowRunner", "--staging_location=gs://b/s"], dataset="d", output="gs://b/d"
    )
    assert {"--project=p2", "--region=r2"} <= set(whole)


def test_all_that_is_missing_is_told_at_once() -> None:
    with pytest.raises(UsageError, match=r"lacks --project=.*; --region=.*; --temp_location=gs://"):
        dataflow_arguments(["--runner=DataflowRunner"], dataset="d", output="gs://b/d")


def test_without_a_checkout_the_ways_on_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(dataflow, "SETUP_FILE", tmp_path / "setup.py")
    monkeypatch.setattr(dataflow, "REQUIREMENTS", tmp_path / "deploy" / "worker-requirements.txt")
    with pytest.raises(UsageError, match="give --sdk_container_image"):
        added()
    with pytest.raises(UsageError, match="--setup_file and --extra_package bring no extras"):
        added("--extra_package=shardwright.whl")
    assert not any("_file" in arg for arg in added("--sdk_container_image=i"))


def test_a_requirements_file_of_the_users_must_have_what_workers_need(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    with pytest.raises(UsageError, match=r"requirements\.txt: there is no such file"):
        added(f"--requirements_file={path}")
    path.write_text("scipy\n")
    with pytest.raises(UsageError, match=r"does not name tfx-bsl.*worker-requirements\.txt"):
        added(f"--requirements_file={path}")
    path.write_text("scipy\ntfx-bsl==1.21.0\n")
    assert not any("requirements" in arg for arg in added(f"--requirements_file={path}"))


def test_a_job_has_the_name_of_its_output() -> None:
    name = job_name("my_flowers", "gs://b/a")
    assert name.startswith("shardwright-my-flowers-")
    assert job_name("my_flowers", "gs://b/a/") == name != job_name("my_flowers", "gs://b/c")
    assert len(job_name("x" * 200, "o")) <= 63
