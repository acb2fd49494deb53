"""Dataflow's workers: environments made from an image and from what was staged, and nothing else, in which a staged pipeline is run.

An image is played by a virtual environment. A worker's own one lies over it, as the boot program of Beam's images makes it, and is
filled in that program's order (https://github.com/apache/beam/blob/v2.77.0/sdks/python/container/boot.go): the requirements file,
extra packages, then workflow.tar.gz without extras. One worker runs the whole job, once: a bundle that fails is not tried again.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers.dataflow.environments import (
    InstallError,
    clean_environment,
    layer,
    pip_install,
    python_of,
)
from tests.servers.dataflow.service import DONE, FAILED, Job, Json
from tests.servers.store_server import StoreServer

_RUN_STAGED = Path(__file__).with_name("run_staged.py")
RUN_S = 180.0


@dataclass
class Workers:
    """Runs jobs, each in an environment of its own below `folder`, which is removed when the job ends.

    Attributes:
        images: The environment that stands for each container image, by the image's name.
        gcs: Where jobs are staged.
        folder: For environments and for what was staged.
        environment: Variables that let workers reach the store and log in: what the machine and its service account are in the cloud.
        with_dependencies: Install the dependencies of what the requirements file names too, as Beam's boot program does. False saves
            the gigabytes of TensorFlow that tfx-bsl asks for.
        imported: Of each job that ran to its end: where its modules came from, by name.
        seconds: Of each job: how long installing and running took.
    """

    images: Mapping[str, Path]
    gcs: StoreServer
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    with_dependencies: bool = False
    imported: dict[str, dict[str, str]] = field(default_factory=dict)
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict)

    def run(self, job: Job) -> None:
        """Set a worker up, run the job on it, and end the job."""
        image = worker_image(job.request)
        if image not in self.images:
            job.end(FAILED, f"Error message from worker: failed to pull image {image}: not found")
            return
        started, place = time.monotonic(), self.folder / job.id
        try:
            staged = fetch_staged(self.gcs, job, place / "staged")
            environment = layer(place / "environment", self.images[image])
            self._install(environment, staged)
            job.say("Workers have started successfully.")
            installed = time.monotonic()
            error = self._run_pipeline(job, environment, place)
            self.seconds[job.id] = (installed - started, time.monotonic() - installed)
        except InstallError as fault:
            error = f"Error message from worker: failed to install packages: {fault}"
        finally:  # before the job ends: the tests may end with it
            shutil.rmtree(place / "environment", ignore_errors=True)
        job.end(DONE if error is None else FAILED, error)

    def _install(self, environment: Path, staged: Path) -> None:
        """What was staged, in the boot program's order. Raises InstallError."""
        if (requirements := staged / "requirements.txt").exists():
            alone = () if self.with_dependencies else ("--no-deps",)
            pip_install(
                environment, ["--requirement", requirements, "--find-links", staged, *alone]
            )
        if (extra := staged / "extra_packages.txt").exists():
            for name in extra.read_text().split():
                pip_install(environment, ["--force-reinstall", "--no-deps", staged / name])
                pip_install(environment, [staged / name])
        if (workflow := staged / "workflow.tar.gz").exists():
            pip_install(environment, [workflow])

    def _run_pipeline(self, job: Job, environment: Path, place: Path) -> str | None:
        """None, or what the worker's log ends with."""
        script, result = place / "run_staged.py", place / "imported.json"
        shutil.copy(_RUN_STAGED, script)
        command: list[str | Path] = [
            python_of(environment),
            "-I",
            script,
            place / "staged" / "pipeline.pb",
            result,
        ]
        variables = clean_environment() | dict(self.environment)
        with (place / "worker.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=place, env=variables, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
            try:
                _wait(process, job)
            finally:
                process.kill()
                process.wait()
        if not result.exists():
            return (place / "worker.log").read_text(errors="replace")[-20_000:]
        self.imported[job.id] = json.loads(result.read_text())
        return None


def worker_image(request: Json) -> str:
    """The image of a job's workers, as its request names it."""
    return str(request["environment"]["workerPools"][0]["workerHarnessContainerImage"])


def fetch_staged(gcs: StoreServer, job: Job, folder: Path) -> Path:
    """Everything that was staged for a job, under its staged names, and `pipeline.pb`; gives the folder."""
    folder.mkdir(parents=True)
    environment = job.request["environment"]
    for package in environment["workerPools"][0].get("packages", []):
        address = "gs://" + package["location"].removeprefix("storage.googleapis.com/")
        (folder / package["name"]).write_bytes(read_object(gcs, address))
    (folder / "pipeline.pb").write_bytes(
        read_object(gcs, environment["sdkPipelineOptions"]["options"]["pipelineUrl"])
    )
    return folder


def read_object(gcs: StoreServer, address: str) -> bytes:
    """An object's bytes.

    Raises:
        urllib.error.HTTPError: There is none at this address.
    """
    bucket, _, name = address.removeprefix("gs://").partition("/")
    return gcs.request(
        "GET", f"/storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe='')}?alt=media"
    )


def _wait(process: subprocess.Popen[bytes], job: Job) -> None:
    deadline = time.monotonic() + RUN_S
    while process.poll() is None and time.monotonic() < deadline and not job.cancelled.wait(0.2):
        pass
