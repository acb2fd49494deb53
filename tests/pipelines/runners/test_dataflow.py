"""Options of a Dataflow job beside the user's."""

from __future__ import annotations

import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.sdk_container_builder import SdkContainerImageBuilder

from shardwright.errors import UsageError
from shardwright.pipelines.runners import dataflow
from shardwright.pipelines.runners.dataflow import dataflow_arguments, job_name

ENOUGH = ["--runner=DataflowRunner", "--project=p", "--region=r", "--temp_location=gs://b/tmp"]
LABEL = "--labels=shardwright=0-1-0"


@pytest.fixture(autouse=True)
def no_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the project and the region of this machine and its gcloud."""
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    monkeypatch.delenv("CLOUDSDK_COMPUTE_REGION", raising=False)
    monkeypatch.setenv("PATH", "")


def added(*beam_args: str) -> list[str]:
    """Return the arguments that are added to enough options and these."""
    given = [*ENOUGH, *beam_args]
    whole = dataflow_arguments(given, dataset="my_flowers", output="gs://b/flowers")
    assert whole[: len(given)] == given
    return whole[len(given) :]


def test_defaults() -> None:
    assert sorted(added()) == sorted([
        f"--setup_file={dataflow.SETUP_FILE}",
        f"--requirements_file={dataflow.REQUIREMENTS}",
        "--requirements_cache=skip",
        f"--job_name={job_name('my_flowers', 'gs://b/flowers')}",
        "--number_of_worker_harness_threads=2",
        "--max_cache_memory_usage_mb=256",
        "--no_save_main_session",
        LABEL,
        "--labels=dataset=my_flowers",
    ])  # fmt: skip


@pytest.mark.parametrize("labels", [
    ["--labels=dataset=other", "--labels=team=x"],
    ['--labels={"dataset": "other", "team": "x"}'],
])  # fmt: skip
def test_given_options_stay(labels: list[str]) -> None:
    given = ["--job_name=mine", "--number_of_worker_harness_threads=5", "--save_main_session"]
    given += ["--max_cache_memory_usage_mb", "0"]
    assert added(*given, *labels, "--sdk_container_image=gcr.io/p/i:1") == [LABEL]


def test_labels_that_are_no_json() -> None:
    with pytest.raises(UsageError, match="give key=value, or a JSON object"):
        added('--labels={"dataset"}')


def test_project_and_region_are_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p2")
    monkeypatch.setenv("CLOUDSDK_COMPUTE_REGION", "r2")
    args = ["--runner=DataflowRunner", "--staging_location=gs://b/s"]
    whole = dataflow_arguments(args, dataset="d", output="gs://b/d")
    assert {"--project=p2", "--region=r2"} <= set(whole)


def test_all_missing_options_are_in_one_error() -> None:
    with pytest.raises(UsageError, match=r"needs --project=.*; --region=.*; --temp_location=gs://"):
        dataflow_arguments(["--runner=DataflowRunner"], dataset="d", output="gs://b/d")


def test_without_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(dataflow, "SETUP_FILE", tmp_path / "setup.py")
    monkeypatch.setattr(dataflow, "REQUIREMENTS", tmp_path / "deploy" / "worker-requirements.txt")
    with pytest.raises(UsageError, match="give --sdk_container_image"):
        added()
    with pytest.raises(UsageError, match="--setup_file and --extra_package install no extras"):
        added("--extra_package=shardwright.whl")
    assert "_file" not in str(added("--sdk_container_image=i"))


BEAM_IMAGE = "apache/beam_python{}.{}_sdk:" + metadata.version("apache-beam")


def test_beams_own_image_gets_the_package() -> None:
    """It has no package, so it is as if no image were given."""
    image = BEAM_IMAGE.format(*sys.version_info)
    for tagged in (image, image.partition(":")[0], f"{image.partition(':')[0]}:latest"):
        assert f"--setup_file={dataflow.SETUP_FILE}" in added(f"--sdk_container_image={tagged}")


def test_no_public_addresses_need_an_image() -> None:
    fix = "cannot install packages when they start: give --sdk_container_image"
    beams_own = f"--sdk_container_image={BEAM_IMAGE.format(*sys.version_info)}"
    for image in ([], [beams_own]):
        with pytest.raises(UsageError, match=f"^--no_use_public_ips: .* {fix}"):
            added("--no_use_public_ips", *image)
    prebuilt = "--prebuild_sdk_container_engine=cloud_build"
    for fine in ("--sdk_container_image=gcr.io/p/i:1", prebuilt):
        added("--no_use_public_ips", fine)


def test_a_prebuilt_image_has_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Beam's own builder, with a program that keeps the context instead of `docker build`."""
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\n[ $1 = push ] || cp -r . {tmp_path}/context\n")
    docker.chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin"
    monkeypatch.setenv("PATH", path)
    given = ["--prebuild_sdk_container_engine=local_docker", "--docker_registry_push_url=gcr.io/p"]
    options = PipelineOptions([*ENOUGH, *given, *added(*given)])
    assert SdkContainerImageBuilder.build_container_image(options).startswith("gcr.io/p/")
    context = tmp_path / "context"
    assert "tfx-bsl==" in (context / "requirements.txt").read_text()
    with tarfile.open(context / "workflow.tar.gz") as archive:
        assert any(name.endswith("/shardwright/__init__.py") for name in archive.getnames())
    assert (context / "Dockerfile").read_text().startswith(f"FROM {BEAM_IMAGE.split('{')[0]}")


def test_a_users_requirements_file_is_there_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    option = f"--requirements_file={path}"
    with pytest.raises(UsageError, match=r"requirements\.txt does not exist"):
        added(option)
    path.write_text("scipy\nobstore==0.12.1\n")
    assert "requirements" not in str(added(option))


def test_a_job_is_named_after_its_output() -> None:
    name = job_name("my_flowers", "gs://b/a")
    assert name.startswith("shardwright-my-flowers-")
    assert job_name("my_flowers", "gs://b/a/") == name != job_name("my_flowers", "gs://b/c")
    assert len(job_name("x" * 200, "o")) <= 63
