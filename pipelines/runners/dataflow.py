"""Complete the arguments of a Dataflow job: the package for its workers, its name and labels.

Workers are fresh machines. They get the package from an image (`deploy/Dockerfile`) or, for a quick
start, from a source distribution of a checkout. The latter has no extras, so a requirements file
lists the packages of `[build]`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from shardwright.errors import UsageError
from shardwright.pipelines.runners.worker_image import is_beams_own

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

_CHECKOUT = Path(__file__).resolve().parents[2]
SETUP_FILE = _CHECKOUT / "setup.py"
REQUIREMENTS = _CHECKOUT / "deploy" / "worker-requirements.txt"
# One thread has 128 reads in flight, and the GIL lets one thread compute at a time. The second
# thread writes while the store completes the first one's upload. More threads only take memory;
# Dataflow's default is 12.
WORKER_THREADS = 2
# Without a cache, a worker fetches all side inputs again for each bundle, which may be one shard.
CACHE_MB = 256

_CACHE = "max_cache_memory_usage_mb"


def dataflow_arguments(beam_args: Sequence[str], *, dataset: str, output: str) -> list[str]:
    """Return the user's arguments and the missing ones: package, name, labels, threads, cache.

    Raises:
        UsageError: Project, region or temporary location is missing (the message lists all that
            are), or workers would not have this package.
    """
    from apache_beam.options import pipeline_options as beam

    options = beam.PipelineOptions(list(beam_args))
    cloud, debug = options.view_as(beam.GoogleCloudOptions), options.view_as(beam.DebugOptions)
    added = _settings(cloud)
    added += _package_arguments(options)
    if not cloud.job_name:
        added.append(f"--job_name={job_name(dataset, output)}")
    labels = {"shardwright": _label(metadata.version("shardwright")), "dataset": _label(dataset)}
    given = _label_keys(cloud.labels or ())
    added += [f"--labels={key}={value}" for key, value in labels.items() if key not in given]
    if debug.number_of_worker_harness_threads is None:
        added.append(f"--number_of_worker_harness_threads={WORKER_THREADS}")
    if not any(arg.startswith(f"--{_CACHE}") for arg in beam_args):
        added.append(f"--{_CACHE}={CACHE_MB}")
    if options.view_as(beam.SetupOptions).save_main_session is None:
        # Nothing is defined in __main__: workers import the modules.
        added.append("--no_save_main_session")
    return [*beam_args, *added]


def _settings(cloud: PipelineOptions) -> list[str]:
    """Return arguments for project and region, looked up as Google's own tools do."""
    from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner

    project = cloud.project or os.environ.get("GOOGLE_CLOUD_PROJECT")
    region = cloud.region or DataflowRunner().get_default_gcp_region()
    needed = {
        "--project=ID, or GOOGLE_CLOUD_PROJECT": project,
        "--region=REGION, such as us-central1, or CLOUDSDK_COMPUTE_REGION": region,
        "--temp_location=gs://BUCKET/FOLDER, for staged files": cloud.temp_location
        or cloud.staging_location,
    }
    if missing := [what for what, value in needed.items() if not value]:
        raise UsageError(f"--runner DataflowRunner needs {'; '.join(missing)}")
    return [
        f"--{name}={value}"
        for name, value in (("project", project), ("region", region))
        if not getattr(cloud, name)
    ]


def _package_arguments(options: PipelineOptions) -> list[str]:
    """Return arguments that bring this package and its dependencies to the workers."""
    from apache_beam.options.pipeline_options import SetupOptions, WorkerOptions

    setup, workers = options.view_as(SetupOptions), options.view_as(WorkerOptions)
    image = workers.sdk_container_image
    is_bare = not image or is_beams_own(image)
    if setup.prebuild_sdk_container_engine:
        _check_prebuilding(setup)  # Beam then builds an image from these arguments
    elif not is_bare:
        return []
    elif workers.use_public_ips is False:
        raise UsageError(
            "--no_use_public_ips: workers without a public address cannot install packages when "
            "they start: give --sdk_container_image of an image with this package "
            "(deploy/Dockerfile), or leave it out"
        )
    return [*_setup_arguments(setup), *_requirements_arguments(setup)]


def _check_prebuilding(setup: PipelineOptions) -> None:
    if setup.prebuild_sdk_container_engine != "local_docker":
        return
    if not setup.docker_registry_push_url:
        raise UsageError(
            "--prebuild_sdk_container_engine local_docker needs --docker_registry_push_url, such "
            "as REGION-docker.pkg.dev/PROJECT/REPOSITORY: workers pull the image from there"
        )
    if shutil.which("docker") is None:
        raise UsageError(
            "--prebuild_sdk_container_engine local_docker needs the program docker: install it, "
            "or give cloud_build"
        )


def _setup_arguments(setup: PipelineOptions) -> list[str]:
    if setup.setup_file or setup.extra_packages:
        return []
    if SETUP_FILE.is_file():
        return [f"--setup_file={SETUP_FILE}"]
    raise UsageError(
        "--runner DataflowRunner: workers need this package, and it is not installed from "
        "a checkout: give --sdk_container_image (deploy/Dockerfile builds one), or "
        "--setup_file of a checkout with --requirements_file"
    )


def _requirements_arguments(setup: PipelineOptions) -> list[str]:
    if not setup.requirements_file:
        if not REQUIREMENTS.is_file():
            raise UsageError(
                "--runner DataflowRunner: --setup_file and --extra_package install no extras, and "
                "workers need [build]: give --requirements_file (deploy/worker-requirements.txt of "
                "a checkout), or --sdk_container_image"
            )
        # Workers download them; the submitter may have another platform.
        cache = ["--requirements_cache=skip"] if setup.requirements_cache is None else []
        return [f"--requirements_file={REQUIREMENTS}", *cache]
    if not Path(setup.requirements_file).is_file():
        raise UsageError(f"--requirements_file {setup.requirements_file} does not exist")
    if "tfx" not in Path(setup.requirements_file).read_text():
        raise UsageError(
            f"--requirements_file {setup.requirements_file} lacks tfx-bsl, which workers need: "
            f"add the lines of {REQUIREMENTS.parent.name}/{REQUIREMENTS.name}"
        )
    return []


def job_name(dataset: str, output: str) -> str:
    """Return the job name, the same for every build of one OUTPUT.

    Dataflow then rejects a second job while one is running.
    """
    place = hashlib.blake2b(output.rstrip("/").encode(), digest_size=4).hexdigest()
    return f"shardwright-{dataset.replace('_', '-')[:40].strip('-')}-{place}"


def _label_keys(labels: Sequence[str]) -> set[str]:
    """Return the keys of labels given as key=value, or all together as a JSON object."""
    try:
        return {
            key
            for label in labels
            for key in (json.loads(label) if label.startswith("{") else [label.partition("=")[0]])
        }
    except json.JSONDecodeError as error:
        raise UsageError(
            f"--labels {' '.join(labels)}: give key=value, or a JSON object ({error})"
        ) from error


def _label(text: str) -> str:
    """Return a valid label: at most 63 lower-case letters, digits, dashes and underscores."""
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:63]


def console_url(project: str, region: str, job_id: str) -> str:
    """Return the address of a job in the Google Cloud console."""
    return f"https://console.cloud.google.com/dataflow/jobs/{region}/{job_id}?project={project}"
