"""Dataflow's workers: environments of an image and the staged packages, which run a pipeline.

A virtual environment takes the place of an image. A worker's own one is a layer over it, filled in
the order of Beam's boot program: the requirements file, extra packages, then workflow.tar.gz
(https://github.com/apache/beam/blob/v2.77.0/sdks/python/container/boot.go). One worker runs the
whole job, and does not retry bundles.
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
    """A runner of jobs, each in an environment in `folder` that is removed when the job ends.

    Attributes:
        images: Container image name -> the environment in its place.
        gcs: Holds staged jobs.
        folder: For environments and staged files.
        environment: Variables of workers, for the store and its credentials.
        with_dependencies: Install dependencies of the requirements file too, as Beam's boot program
            does. False saves the gigabytes of TensorFlow that tfx-bsl needs.
        imported: Job id -> module name -> file, of jobs that ran to their end.
    """

    images: Mapping[str, Path]
    gcs: StoreServer
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    with_dependencies: bool = False
    imported: dict[str, dict[str, str]] = field(default_factory=dict)

    def run(self, job: Job) -> None:
        """Set a worker up, run the job on it, and end the job."""
        image = worker_image(job.request)
        if image not in self.images:
            job.end(FAILED, f"Error message from worker: failed to pull image {image}: not found")
            return
        place = self.folder / job.id
        try:
            staged = fetch_staged(self.gcs, job, place / "staged")
            environment = layer(place / "environment", self.images[image])
            self._install(environment, staged)
            job.say("Workers have started successfully.")
            error = self._run_pipeline(job, environment, place)
        except InstallError as fault:
            error = f"Error message from worker: failed to install packages: {fault}"
        finally:  # before the job ends: the tests may end with it
            shutil.rmtree(place / "environment", ignore_errors=True)
        job.end(DONE if error is None else FAILED, error)

    def _install(self, environment: Path, staged: Path) -> None:
        """Install the staged packages in the boot program's order."""
        if (requirements := staged / "requirements.txt").exists():
            options = () if self.with_dependencies else ("--no-deps",)
            pip_install(environment, ["-r", requirements, "--find-links", staged, *options])
        if (extra := staged / "extra_packages.txt").exists():
            for name in extra.read_text().split():
                pip_install(environment, ["--force-reinstall", "--no-deps", staged / name])
                pip_install(environment, [staged / name])
        if (workflow := staged / "workflow.tar.gz").exists():
            pip_install(environment, [workflow])

    def _run_pipeline(self, job: Job, environment: Path, place: Path) -> str | None:
        """Return None, or the end of the worker's log."""
        script, result = place / "run_staged.py", place / "imported.json"
        shutil.copy(_RUN_STAGED, script)
        python, pipeline = python_of(environment), place / "staged" / "pipeline.pb"
        command = [str(part) for part in (python, "-I", script, pipeline, result)]
        variables = clean_environment() | dict(self.environment)
        with (place / "worker.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=place, env=variables, stdout=log, stderr=log)
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
    """Return the image of a job's workers."""
    return str(request["environment"]["workerPools"][0]["workerHarnessContainerImage"])


def fetch_staged(gcs: StoreServer, job: Job, folder: Path) -> Path:
    """Download a job's staged files and `pipeline.pb`; return the folder."""
    folder.mkdir(parents=True)
    environment = job.request["environment"]
    for package in environment["workerPools"][0].get("packages", []):
        address = "gs://" + package["location"].removeprefix("storage.googleapis.com/")
        (folder / package["name"]).write_bytes(read_object(gcs, address))
    pipeline = environment["sdkPipelineOptions"]["options"]["pipelineUrl"]
    (folder / "pipeline.pb").write_bytes(read_object(gcs, pipeline))
    return folder


def read_object(gcs: StoreServer, address: str) -> bytes:
    """Return an object's bytes; raise urllib.error.HTTPError if there is none."""
    bucket, _, name = address.removeprefix("gs://").partition("/")
    quoted = urllib.parse.quote(name, safe="")
    return gcs.request("GET", f"/storage/v1/b/{bucket}/o/{quoted}?alt=media")


def _wait(process: subprocess.Popen[bytes], job: Job) -> None:
    deadline = time.monotonic() + RUN_S
    while process.poll() is None and time.monotonic() < deadline and not job.cancelled.wait(0.2):
        pass
