"""What a Dataflow job is told beside the user's options: how its workers get this package, and what it is called.

Workers are fresh machines. They get the package either from an image (`deploy/Dockerfile`), or, the quick way, from a source
distribution of a checkout, which brings no extras: what `[build]` stands for comes by a requirements file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from shardwright.errors import UsageError

if TYPE_CHECKING:
    from apache_beam.options.pipeline_options import PipelineOptions

_CHECKOUT = Path(__file__).resolve().parents[1]
SETUP_FILE = _CHECKOUT / "setup.py"
REQUIREMENTS = _CHECKOUT / "deploy" / "worker-requirements.txt"
# Reads run ahead within a shard, 128 at a time, and Python's lock lets one thread compute: the second writes while the first waits
# for its shard to be put together by the store. More would only hold more memory; Dataflow's own choice is 12.
WORKER_THREADS = 2


def dataflow_arguments(beam_args: Sequence[str], *, dataset: str, output: str) -> list[str]:
    """The user's arguments and what they leave open: package, name, labels, threads.

    Raises:
        UsageError: Project, region or a place for Dataflow's files are missing, all told at once; or workers would not have this package.
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
    if options.view_as(beam.SetupOptions).save_main_session is None:
        added.append(
            "--no_save_main_session"
        )  # modules are imported on workers; nothing lives in __main__
    return [*beam_args, *added]


def _settings(cloud: PipelineOptions) -> list[str]:
    """Project and region as Google's own tools find them."""
    from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner

    project = cloud.project or os.environ.get("GOOGLE_CLOUD_PROJECT")
    region = cloud.region or DataflowRunner().get_default_gcp_region()
    needed = {
        "--project=ID, or GOOGLE_CLOUD_PROJECT": project,
        "--region=REGION, such as us-central1, or CLOUDSDK_COMPUTE_REGION": region,
        "--temp_location=gs://BUCKET/FOLDER, for what is staged": cloud.temp_location
        or cloud.staging_location,
    }
    if missing := [what for what, value in needed.items() if not value]:
        raise UsageError(f"--runner DataflowRunner lacks {'; '.join(missing)}")
    return [
        f"--{name}={value}"
        for name, value in (("project", project), ("region", region))
        if not getattr(cloud, name)
    ]


def _package_arguments(options: PipelineOptions) -> list[str]:
    """How workers get this package, and what it needs."""
    from apache_beam.options.pipeline_options import SetupOptions, WorkerOptions

    setup = options.view_as(SetupOptions)
    if options.view_as(WorkerOptions).sdk_container_image or setup.prebuild_sdk_container_engine:
        return []
    added = []
    if not (setup.setup_file or setup.extra_packages):
        if not SETUP_FILE.is_file():
            raise UsageError(
                "--runner DataflowRunner: workers need this package, which is not installed from a checkout here: give "
                "--sdk_container_image (deploy/Dockerfile makes one), or --setup_file of a checkout with --requirements_file"
            )
        added.append(f"--setup_file={SETUP_FILE}")
    if not setup.requirements_file:
        if not REQUIREMENTS.is_file():
            raise UsageError(
                "--runner DataflowRunner: --setup_file and --extra_package bring no extras, and workers need those of [build]: give "
                "--requirements_file (deploy/worker-requirements.txt of a checkout), or --sdk_container_image"
            )
        added.append(f"--requirements_file={REQUIREMENTS}")
        if setup.requirements_cache is None:
            added.append(
                "--requirements_cache=skip"
            )  # workers fetch them; the submitter need not download for another platform
    elif not Path(setup.requirements_file).is_file():
        raise UsageError(f"--requirements_file {setup.requirements_file}: there is no such file")
    elif "tfx" not in Path(setup.requirements_file).read_text():
        raise UsageError(
            f"--requirements_file {setup.requirements_file} does not name tfx-bsl, so workers would lack it: "
            f"add the lines of {REQUIREMENTS.parent.name}/{REQUIREMENTS.name}"
        )
    return added


def job_name(dataset: str, output: str) -> str:
    """The same for every build of one OUTPUT, so that Dataflow refuses a second one beside a running one."""
    place = hashlib.blake2b(output.rstrip("/").encode(), digest_size=4).hexdigest()
    return f"shardwright-{dataset.replace('_', '-')[:40].strip('-')}-{place}"


def _label_keys(labels: Sequence[str]) -> set[str]:
    """Of labels given as key=value or, all at once, as a JSON object."""
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
    """As Google takes labels: lower-case letters, digits, dashes and underscores, 63 at most."""
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:63]


def console_url(project: str, region: str, job_id: str) -> str:
    """Where a job can be looked at."""
    return f"https://console.cloud.google.com/dataflow/jobs/{region}/{job_id}?project={project}"
