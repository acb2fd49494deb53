"""The DAGs on Dataflow, by Flex Template and Beam operator, against fakes of Google's services."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.engines.airflow.airflow_runs import DAY, Airflow, verify
from tests.engines.engine_builds import ROOT
from tests.servers.dataflow import DataflowFake, start_dataflow
from tests.servers.dataflow.environments import layer
from tests.servers.processes import ServerMissingError, start_gcs
from tests.servers.store_server import StoreServer
from tests.support.image_makers import picture, saved
from tests.support.object_stores import download_folder, new_bucket, put_object, upload_folder

NEXT_DAY = "2026-03-05"
PROJECT, REGION = "test-project", "europe-west4"
IMAGE = "europe-docker.pkg.dev/test-project/images/shardwright:1"
LAUNCHER = f"{ROOT}/.venv/bin/python -m shardwright.pipelines.commands.build"


@dataclass(frozen=True)
class Cloud:
    """Dataflow, and a bucket with images and the template."""

    gcs: StoreServer
    dataflow: DataflowFake
    place: str  # gs://BUCKET

    def conf(self, **changes: Any) -> dict[str, Any]:
        options = {"records-per-shard": 9, "stratify": True}
        places = ("images", "out", "temp", "template.json")
        keys = ("input", "output", "temp_location", "template")
        conf = {key: f"{self.place}/{name}" for key, name in zip(keys, places, strict=True)}
        conf |= {"project": PROJECT, "region": REGION, "max_workers": 3, "name": "my_photos"}
        build = {"split": "train=0.7,test=0.3", "shard_size": None, "options": options}
        return {**conf, **build, **changes}


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory, images: Path) -> Iterator[Cloud]:
    folder = tmp_path_factory.mktemp("cloud")
    image = {IMAGE: worker_image(folder / "image")}
    try:
        with (
            start_gcs(folder / "gcs", token=None) as gcs,
            start_dataflow(gcs, folder, images=image, launcher=LAUNCHER) as dataflow,
        ):
            cloud = Cloud(gcs, dataflow, f"gs://{new_bucket(gcs)}")
            upload_folder(gcs, images, f"{cloud.place}/images")
            put_object(gcs, f"{cloud.place}/template.json", json.dumps(template()).encode())
            yield cloud
    except ServerMissingError as error:
        pytest.skip(str(error))


def worker_image(folder: Path) -> Path:
    """Return the tests' own environment as an image; test_dataflow.py proves the real one."""
    environment = layer(folder, ROOT / ".venv")
    below = next(environment.glob("lib/*/site-packages/below.pth"))
    below.write_text(f"{below.read_text()}{ROOT}\n")
    return environment


def template() -> dict[str, Any]:
    """ContainerSpec with the shipped metadata: the launcher refuses other parameters."""
    shipped = ROOT / "deploy" / "dataflow" / "metadata.json"
    image = {"image": IMAGE, "defaultEnvironment": {"sdkContainerImage": IMAGE}}
    return {**image, "sdkInfo": {"language": "PYTHON"}, "metadata": json.loads(shipped.read_text())}


def run(
    airflow: Airflow,
    cloud: Cloud,
    conf: Mapping[str, Any],
    day: str = DAY,
    *,
    dag: str = "shardwright_dataflow",
    code: int = 0,
    **environment: str,
) -> str:
    connection = {"AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT": "google-cloud-platform://"}
    # gcsfs would ask by gRPC for the bucket's type, half a minute each time: the fake has no gRPC.
    quick = {"GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
    variables = {**cloud.dataflow.environment, **connection, **quick, **environment}
    return airflow.run(dag, conf, day, code=code, **variables)


def check_dataset(cloud: Cloud, name: str, folder: Path) -> None:
    """Verify the dataset of a run, in a copy."""
    download_folder(cloud.gcs, f"{cloud.place}/{name}", folder)
    verify(folder)


def test_the_template_is_launched_and_the_dataset_built(
    airflow: Airflow, cloud: Cloud, tmp_path: Path
) -> None:
    log = run(airflow, cloud, cloud.conf())
    job = cloud.dataflow.jobs[-1]
    made = (job.name, job.project, job.region, job.state)
    assert made == (f"shardwright-my-photos-{DAY}", PROJECT, REGION, "JOB_STATE_DONE")
    words = set(cloud.dataflow.launcher.commands[-1])
    assert {"--records_per_shard=9", "--stratify=true", "--max_num_workers=3"} <= words
    assert f"report: {cloud.place}/out/report.html" in log
    assert "train: 42 records in 5 shards" in log
    check_dataset(cloud, "out", tmp_path / "copy")


def test_a_job_of_the_template_appends_and_commits(
    airflow: Airflow, cloud: Cloud, tmp_path: Path
) -> None:
    """Its launcher is gone by then: it has only written the job."""
    conf = cloud.conf(input=f"{cloud.place}/growing", output=f"{cloud.place}/grown")
    for day, numbers in ((DAY, range(12)), (NEXT_DAY, range(12, 24)), (NEXT_DAY, ())):
        for number in numbers:
            image = saved(picture(size=(20 + number, 20)), "PNG")
            put_object(cloud.gcs, f"{cloud.place}/growing/cat/{number:02d}.png", image)
        log = run(airflow, cloud, conf, day)
        words = set(cloud.dataflow.launcher.commands[-1])
        assert any(word.startswith("--template_location=") for word in words)
        assert "--if_exists=append" in words
        assert cloud.dataflow.jobs[-1].state == "JOB_STATE_DONE"
        assert ("version 2: 12 added, 0 removed" in log) == (day == NEXT_DAY)
    check_dataset(cloud, "grown", tmp_path / "copy")
    names = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*")}
    assert {name for name in names if name.startswith("versions/")} == {"versions/00002.json"}
    assert not [name for name in names if "spool" in name]


def test_a_bad_input_fails_the_task_with_its_reason(
    airflow: Airflow, cloud: Cloud, tmp_path: Path
) -> None:
    conf = cloud.conf(input=f"{cloud.place}/nowhere", output=f"{cloud.place}/other")
    log = run(airflow, cloud, conf, code=1, **airflow.once(tmp_path / "dags"))
    assert cloud.dataflow.jobs[-1].state == "JOB_STATE_FAILED"
    reasons = [line for line in log.splitlines() if "shardwright: error: " in line]
    assert reasons
    assert all(f"{cloud.place}/nowhere" in reason for reason in reasons)


def test_the_beam_operator_submits_and_waits(
    airflow: Airflow, cloud: Cloud, tmp_path: Path
) -> None:
    cloud_options = {"project": PROJECT, "region": REGION, "temp_location": f"{cloud.place}/temp"}
    service = {"dataflow_endpoint": "http://dataflow.sandbox.test", "sdk_container_image": IMAGE}
    options = {**cloud_options, **service, "records-per-shard": 9}
    places = {"input": f"{cloud.place}/images", "output": f"{cloud.place}/by_beam"}
    conf = {**places, "runner": "DataflowRunner", "shard_size": None, "options": options}
    log = run(airflow, cloud, conf, dag="shardwright_beam")
    job = cloud.dataflow.jobs[-1]
    made = (job.name, job.region, job.state)
    assert made == (f"shardwright-photos-{DAY}", REGION, "JOB_STATE_DONE")
    assert job.request["labels"].keys() == {"airflow-version", "shardwright", "dataset"}
    assert "train: 60 records in 7 shards" in log
    check_dataset(cloud, "by_beam", tmp_path / "copy")
