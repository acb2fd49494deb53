"""Dataflow: the requests of Beam's own client, and builds by workers that have only what is staged.

The service is a fake, tests/servers/dataflow. Its workers are environments made from nothing but
the staged files, and an image.
"""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.dataflow_jobs import (
    BEAM_IMAGE,
    FULL_WORKERS,
    OWN_IMAGE,
    Built,
    Cloud,
    image_of_dockerfile,
    sha256,
    start_cloud,
)
from tests.engines.engine_builds import LOCAL, OPTIONS, ROOT, build, shard_digests
from tests.engines.engine_images import add_bad_images, make_engine_images
from tests.servers.dataflow.environments import beam_image
from tests.servers.processes import ServerMissingError

ACCOUNT = "builder@test-project.iam.gserviceaccount.com"
SUBNETWORK = "regions/europe-west4/subnetworks/private"
WORKER_OPTIONS = (
    "--machine_type=n2-standard-4",
    "--disk_size_gb=50",
    "--max_num_workers=7",
    "--num_workers=2",
    f"--service_account_email={ACCOUNT}",
    "--network=builders",
    f"--subnetwork={SUBNETWORK}",
    "--experiments=upload_graph_is_not_this",
    "--dataflow_service_options=enable_google_cloud_profiler",
    "--label=team=vision",
)
IN_IMAGE = f"--sdk_container_image={OWN_IMAGE}"
SMALL_JPEGS = (*OPTIONS, "--encode", "jpeg", "--resize", "32x32")
# A list for Dataflow's log; nothing is installed from it.
DEPENDENCY_LIST = "submission_environment_dependencies.txt"
pytestmark = pytest.mark.timeout(1500 if FULL_WORKERS else 600)


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """A cloud with two images: Beam's own, and that of deploy/Dockerfile."""
    folder = tmp_path_factory.mktemp("cloud")
    images: dict[str, Path] = {}
    try:
        with start_cloud(folder, images) as cloud:
            assert cloud.dataflow.workers is not None
            cloud.dataflow.workers.with_dependencies = FULL_WORKERS
            images[BEAM_IMAGE] = beam_image(folder / "beam")
            images[OWN_IMAGE] = image_of_dockerfile(folder, images[BEAM_IMAGE])
            yield cloud
    except ServerMissingError as error:
        pytest.skip(str(error))
    finally:
        for image in images.values():  # gigabytes
            shutil.rmtree(image)


@pytest.fixture(scope="module")
def quick(cloud: Cloud, source: str) -> Built:
    """The quick way, from a checkout, with all kinds of options for its workers."""
    return cloud.build(source, "quick", *OPTIONS, *WORKER_OPTIONS)


@pytest.fixture(scope="module")
def imaged(cloud: Cloud, source: str) -> Built:
    """Workers of the image that deploy/Dockerfile makes."""
    return cloud.build(source, "imaged", *SMALL_JPEGS, IN_IMAGE, "--no_use_public_ips")


def test_a_build_logs_the_url_of_its_job(quick: Built) -> None:
    assert quick.ended.code == 0, quick.ended.log
    jobs = "https://console.cloud.google.com/dataflow/jobs"
    url = f"{jobs}/europe-west4/{quick.job.id}?project=test-project"
    assert f"shardwright: job {quick.job.id}: {url}" in quick.ended.log.splitlines()
    assert "60 records" in quick.last_line
    assert "Traceback" not in quick.ended.log


def test_the_request_has_the_name_labels_and_worker_options(quick: Built) -> None:
    job = quick.job
    environment, labels = job.request["environment"], job.request["labels"]
    pool = environment["workerPools"][0]
    assert (job.project, job.region) == ("test-project", "europe-west4")
    assert job.name.startswith("shardwright-engine-")  # the dataset's name
    assert labels == {"team": "vision", "dataset": "engine", "shardwright": labels["shardwright"]}
    assert environment["version"]["job_type"] == "FNAPI_BATCH"
    assert len(json.dumps(job.request)) < 100_000  # of 10 MB; the graph is in the store
    assert environment["serviceAccountEmail"] == ACCOUNT
    assert (pool["machineType"], pool["diskSizeGb"], pool["numWorkers"]) == ("n2-standard-4", 50, 2)
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 7
    assert (pool["network"], pool["subnetwork"]) == ("builders", SUBNETWORK)
    assert pool["numThreadsPerWorker"] == 2
    assert "upload_graph_is_not_this" in environment["experiments"]
    assert environment["serviceOptions"] == ["enable_google_cloud_profiler"]
    temp = f"storage.googleapis.com/{quick.cloud.bucket}/temp/"
    assert environment["tempStoragePrefix"].startswith(temp)


def test_without_an_image_the_package_and_its_requirements_are_staged(quick: Built) -> None:
    pool = quick.job.request["environment"]["workerPools"][0]
    assert pool["workerHarnessContainerImage"] == BEAM_IMAGE
    staged = quick.staged()
    assert set(staged) == {"workflow.tar.gz", "requirements.txt", DEPENDENCY_LIST}
    assert "tfx-bsl==" in staged["requirements.txt"].decode()
    with tarfile.open(fileobj=io.BytesIO(staged["workflow.tar.gz"])) as archive:
        names = {member.name.partition("/")[2] for member in archive}
    folders = {name.split("/")[0] for name in names if "/" in name}
    assert {f"shardwright/{name}" for name in ("pipelines", "transforms", "schemas")} <= names
    assert not {"benchmarks", "demo", ".venv", ".servers"} & folders


def test_with_an_image_only_the_pipeline_is_staged(imaged: Built) -> None:
    pool = imaged.job.request["environment"]["workerPools"][0]
    assert pool["workerHarnessContainerImage"] == OWN_IMAGE
    assert [image["containerImage"] for image in pool["sdkHarnessContainerImages"]] == [OWN_IMAGE]
    assert pool["ipConfiguration"] in (2, "WORKER_IP_PRIVATE")
    assert set(imaged.staged()) == {DEPENDENCY_LIST}


@pytest.mark.parametrize("way", ["quick", "imaged"])
def test_staged_files_have_the_stated_hashes(way: str, request: pytest.FixtureRequest) -> None:
    built: Built = request.getfixturevalue(way)
    assert built.stated_hashes() == {name: sha256(data) for name, data in built.staged().items()}
    options = built.job.request["environment"]["sdkPipelineOptions"]["options"]
    assert options["pipelineProtoHash"] == sha256(built.pipeline())
    assert options["save_main_session"] is False
    assert "pickled_main_session" not in built.staged()


@pytest.mark.parametrize("way", ["quick", "imaged"])
def test_workers_import_only_their_environment(way: str, request: pytest.FixtureRequest) -> None:
    built: Built = request.getfixturevalue(way)
    assert built.ended.code == 0, built.ended.log
    workers = built.cloud.dataflow.workers
    assert workers is not None
    imported = workers.imported[built.job.id]
    environment = workers.folder / built.job.id / "environment"
    place = environment if way == "quick" else Path(workers.images[OWN_IMAGE])
    assert {"shardwright.transforms", "shardwright", "tfx_bsl", "apache_beam"} <= set(imported)
    for name in ("shardwright.transforms", "shardwright", "tfx_bsl"):
        assert Path(imported[name]).is_relative_to(place)
    assert not [file for file in imported.values() if Path(file).is_relative_to(ROOT)]
    assert not {"tensorflow", "transforms"} & set(imported)


def test_quick_equals_a_local_build(quick: Built, local_dataset: Path, tmp_path: Path) -> None:
    dataset = quick.cloud.download(quick.output, tmp_path / "dataset")
    assert shard_digests(dataset, index=False) == shard_digests(local_dataset, index=False)
    assert json.loads((dataset / "manifest.json").read_text())["splits"].keys() == {"train", "test"}


def test_imaged_equals_a_local_build(imaged: Built, engine_images: Path, tmp_path: Path) -> None:
    build(LOCAL, engine_images, tmp_path / "local", *SMALL_JPEGS)
    dataset = imaged.cloud.download(imaged.output, tmp_path / "dataset")
    assert shard_digests(dataset, index=False) == shard_digests(tmp_path / "local", index=False)


def test_the_same_command_again_finds_nothing_to_do(imaged: Built, source: str) -> None:
    again = imaged.cloud.build(source, "imaged", *SMALL_JPEGS, IN_IMAGE)
    assert again.ended.code == 0, again.ended.log
    assert again.job.name == imaged.job.name  # the service refuses two jobs of one OUTPUT at a time


def test_a_workers_error_ends_the_build_with_its_reason(cloud: Cloud, tmp_path: Path) -> None:
    images = make_engine_images(tmp_path / "images", 12)
    add_bad_images(images)
    bad = cloud.upload(images, "bad-images")
    built = cloud.build(bad, "bad", "--max-reject-fraction", "0.01", IN_IMAGE)
    assert built.ended.code == 1, built.ended.log
    assert built.job.state == "JOB_STATE_FAILED"
    assert "--max-reject-fraction 0.01 allows" in built.last_line
    assert "Traceback" not in built.ended.log
