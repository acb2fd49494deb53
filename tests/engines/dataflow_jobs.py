"""Builds on the fake of Dataflow, their jobs, and the image of deploy/Dockerfile."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from apache_beam.portability.api import beam_runner_api_pb2 as beam_proto

from tests.engines.engine_builds import ROOT, Ended, EngineBuild, start
from tests.servers.dataflow import DataflowFake, start_dataflow
from tests.servers.dataflow.environments import clean_environment, layer
from tests.servers.dataflow.service import Job
from tests.servers.dataflow.workers import read_object
from tests.servers.processes import start_gcs
from tests.servers.store_server import StoreServer
from tests.support.object_stores import download_folder, new_bucket, upload_folder

# As Beam's client names it for Python 3.11.
BEAM_IMAGE = "gcr.io/cloud-dataflow/v1beta3/beam_python3.11_sdk:2.77.0"
OWN_IMAGE = "europe-docker.pkg.dev/test-project/images/shardwright:1"
PROJECT, REGION = "test-project", "europe-west4"
# DATAFLOW_WORKERS=full: workers without an image install TensorFlow too, which tfx-bsl asks for,
# as real ones do: 2 GB and minutes.
FULL_WORKERS = os.environ.get("DATAFLOW_WORKERS") == "full"
# Of one build on a busy machine: worker environments are made meanwhile.
SECONDS = 900 if FULL_WORKERS else 300
_RUN = re.compile(r"^RUN (.*?[^\\])$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Cloud:
    """A project with Dataflow and one bucket."""

    gcs: StoreServer
    dataflow: DataflowFake
    bucket: str

    @property
    def settings(self) -> list[str]:
        """Options of every job."""
        place = [f"--project={PROJECT}", f"--region={REGION}"]
        temp = f"--temp_location=gs://{self.bucket}/temp"
        return ["--runner=DataflowRunner", *place, temp, *self.dataflow.arguments]

    def upload(self, folder: Path, prefix: str) -> str:
        upload_folder(self.gcs, folder, f"gs://{self.bucket}/{prefix}")
        return f"gs://{self.bucket}/{prefix}"

    def start(self, source: str, output: str, *options: str) -> EngineBuild:
        place, env = f"gs://{self.bucket}/{output}", self.dataflow.environment
        return start(self.settings, source, place, *options, env=env)

    def build(self, source: str, output: str, *options: str) -> Built:
        """Build; whatever the exit code is."""
        before = len(self.dataflow.jobs)
        ended = self.start(source, output, *options).wait(SECONDS)
        return Built(self, ended, self.dataflow.jobs[before:], f"gs://{self.bucket}/{output}")

    def download(self, output: str, folder: Path) -> Path:
        """Copy a dataset to a folder, and return it."""
        folder.mkdir()
        download_folder(self.gcs, output, folder)
        return folder


@dataclass(frozen=True)
class Built:
    """A build that ended, and the jobs it made."""

    cloud: Cloud
    ended: Ended
    jobs: list[Job]
    output: str

    @property
    def job(self) -> Job:
        told = f"{len(self.jobs)} jobs; the build's log:\n{self.ended.log[-8000:]}"
        assert len(self.jobs) == 1, told
        return self.jobs[0]

    @property
    def last_line(self) -> str:
        return self.ended.log.rstrip().rpartition("\n")[2]

    def _object(self, place: str) -> bytes:
        return read_object(self.cloud.gcs, place)

    def staged(self) -> dict[str, bytes]:
        """Return the packages that the request names, as they are in the store."""
        packages = self.job.request["environment"]["workerPools"][0].get("packages", [])
        return {
            package["name"]: self._object(
                package["location"].removeprefix("storage.googleapis.com/")
            )
            for package in packages
        }

    def pipeline(self) -> bytes:
        options = self.job.request["environment"]["sdkPipelineOptions"]["options"]
        return self._object(options["pipelineUrl"])

    def stated_hashes(self) -> dict[str, str]:
        """Return the sha256 of every staged file by name, which workers check."""
        components = beam_proto.Pipeline.FromString(self.pipeline()).components
        hashes = {}
        for environment in components.environments.values():
            for dependency in environment.dependencies:
                role = beam_proto.ArtifactStagingToRolePayload.FromString(dependency.role_payload)
                file = beam_proto.ArtifactUrlPayload.FromString(dependency.type_payload)
                hashes[role.staged_name] = file.sha256
        return hashes


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Look several times a second until the condition holds.

    Raises:
        AssertionError: It does not within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"this did not come within {seconds:g} s"
        time.sleep(0.1)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def start_cloud(folder: Path, images: dict[str, Path] | None) -> Iterator[Cloud]:
    """Start a GCS server and a fake of Dataflow, whose jobs stay running if `images` is None."""
    with (
        start_gcs(folder / "gcs", token=None) as gcs,
        start_dataflow(gcs, folder / "dataflow", images=images) as dataflow,
    ):
        yield Cloud(gcs, dataflow, new_bucket(gcs))


def image_of_dockerfile(folder: Path, base: Path) -> Path:
    """Make deploy/Dockerfile's stage `package`: every RUN of it, over `base`, in no container."""
    image = layer(folder / "image", base)
    source, requirements = folder / "shardwright", folder / "worker-requirements.txt"
    _copy_checkout(source)
    shutil.copyfile(ROOT / "deploy" / "worker-requirements.txt", requirements)
    stages = re.split(r"^FROM ", (ROOT / "deploy" / "Dockerfile").read_text(), flags=re.MULTILINE)
    ours = [stage for stage in stages if stage.split("\n")[0].endswith(" AS package")]
    steps = [step for stage in ours for step in _RUN.findall(stage)]
    assert steps, "deploy/Dockerfile has no RUN in a stage called package"
    environment = clean_environment()
    environment["PATH"] = f"{image / 'bin'}:{environment['PATH']}"
    here = {"/tmp/worker-requirements.txt": requirements, "/tmp/shardwright": source}
    for step in steps:
        script = re.sub(r"--mount=\S+|--no-cache-dir|\\\n", " ", step)
        # In one pass: these paths may begin alike.
        script = re.sub("|".join(here), lambda place: str(here[place[0]]), script)
        run = subprocess.run(
            ["sh", "-ec", script],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert run.returncode == 0, f"{script}\n{run.stderr[-3000:]}"
    shutil.rmtree(source)
    return image


def _copy_checkout(folder: Path) -> None:
    """Copy the files of `docker build` that the package is made of."""
    folder.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    no_caches = shutil.ignore_patterns("__pycache__")
    for package in ("shardwright", "pipelines", "transforms", "schemas"):
        shutil.copytree(ROOT / package, folder / package, symlinks=True, ignore=no_caches)
