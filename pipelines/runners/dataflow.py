"""Complete the arguments of a Dataflow job, and check before it is submitted what its workers use.

Workers are fresh machines. They get the package from an image (`deploy/Dockerfile`) or, for a quick
start, from a source distribution of a checkout. The latter has no extras, so a requirements file
lists the packages of `[build]`. An image must agree with this machine in Python and Beam, because
functions and their arguments are pickled here and loaded there.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from shardwright.errors import UsageError
from shardwright.storage.addresses import is_remote, parse_address
from shardwright.storage.options import SECRET_KEYS, StorageOptions, parse_bool

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
# Images of Beam, which lack this package.
_BEAMS_OWN = re.compile(r"(docker\.io/)?(apache|gcr\.io/cloud-dataflow/v1beta3)/beam_python")
# Values that name a file or a profile; an image may have them.
_LOCAL_KEYS = frozenset(
    {"application_credentials", "profile", "service_account", "web_identity_token_file"}
)


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
    try:  # key=value, or all together as a JSON object
        given = {
            key
            for label in cloud.labels or ()
            for key in (json.loads(label) if label.startswith("{") else [label.partition("=")[0]])
        }
    except json.JSONDecodeError as error:
        raise UsageError(
            f"--labels {' '.join(cloud.labels)}: give key=value, or a JSON object ({error})"
        ) from error
    added += [f"--labels={key}={value}" for key, value in labels.items() if key not in given]
    if debug.number_of_worker_harness_threads is None:
        added.append(f"--number_of_worker_harness_threads={WORKER_THREADS}")
    # By the words, because the parsed option has a default, which looks the same as a given value.
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
    is_bare = not image or _BEAMS_OWN.match(image)
    # Beam builds an image from these arguments, if it is asked to.
    if not setup.prebuild_sdk_container_engine and not is_bare:
        return []
    if not setup.prebuild_sdk_container_engine and workers.use_public_ips is False:
        raise UsageError(
            "--no_use_public_ips: workers without a public address cannot install packages when "
            "they start: give --sdk_container_image of an image with this package "
            "(deploy/Dockerfile), or leave it out"
        )
    added = []
    if not setup.setup_file and not setup.extra_packages:
        if not SETUP_FILE.is_file():
            raise UsageError(
                "--runner DataflowRunner: workers need this package, and it is not installed from "
                "a checkout: give --sdk_container_image (deploy/Dockerfile builds one), or "
                "--setup_file of a checkout with --requirements_file"
            )
        added = [f"--setup_file={SETUP_FILE}"]
    return [*added, *_requirements_arguments(setup)]


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
    return []


def job_name(dataset: str, output: str) -> str:
    """Return the job name, the same for every build of one OUTPUT.

    Dataflow then rejects a second job while one is running.
    """
    place = hashlib.blake2b(output.rstrip("/").encode(), digest_size=4).hexdigest()
    # Dataflow allows letters, digits and dashes. The hash keeps jobs of two OUTPUTs of one name
    # apart.
    return f"shardwright-{dataset.replace('_', '-')[:40].strip('-')}-{place}"


def _label(text: str) -> str:
    """Return a valid label: at most 63 lower-case letters, digits, dashes and underscores."""
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:63]


def console_url(project: str, region: str, job_id: str) -> str:
    """Return the address of a job in the Google Cloud console."""
    return f"https://console.cloud.google.com/dataflow/jobs/{region}/{job_id}?project={project}"


def check_credentials(
    places: Mapping[str, str | None], storage: StorageOptions, *, has_image: bool
) -> None:
    """Reject credentials that would be staged, or that workers do not have. No request is sent.

    Args:
        places: Name on the command line -> path or address that workers read or write, or None.
        storage: Their options.
        has_image: Workers have the user's own image, which may have credentials.

    Raises:
        UsageError: With the option or the address, and the fix.
    """
    # Before any request: they would be in the job's description, which others in the project can
    # read.
    for _, key, _ in storage.settings:
        if key in SECRET_KEYS:
            raise UsageError(
                f"--storage-option {key}: Dataflow stores the options of a job, and this one is a "
                "secret: leave it out; workers use gs:// as their service account, and s3:// with "
                "--storage-option role_arn=ARN (docs/dataflow.md)"
            )
        if key in _LOCAL_KEYS and not has_image:
            raise UsageError(
                f"--storage-option {key} names a file or profile of this machine, which workers of "
                "Dataflow do not have: leave it out, or give --sdk_container_image of an image "
                "that has it"
            )
    for name, place in places.items():
        store = parse_address(place).store if place is not None and is_remote(place) else ""
        values = storage.for_store(store)
        anonymous = parse_bool("skip_signature", values.get("skip_signature", "false"))
        has_access = anonymous or "role_arn" in values or "profile" in values
        if store.startswith("s3://") and not has_access:
            raise UsageError(
                f"{name} {place}: workers of Dataflow have no AWS credentials: give "
                "--storage-option role_arn=ARN of a role that trusts their service account "
                "(docs/dataflow.md), or anonymous=true for a public bucket"
            )
