"""Follow a job on other machines: report its address, its progress and its outcome."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import grpc
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.runners.runner import PipelineResult, PipelineState

from shardwright.errors import BuildError, ShardwrightError
from shardwright.format import naming
from shardwright.format.json_files import read_json
from shardwright.format.plan_file import PlanFile
from shardwright.pipelines.options.build import BuildOptions
from shardwright.pipelines.runners.dataflow import console_url
from shardwright.transforms.progress import PROGRESS, Progress

_LOG = logging.getLogger(__name__)
_TICK_SECONDS = 10.0


def follow(
    result: PipelineResult,
    beam_options: PipelineOptions,
    options: BuildOptions,
    say: Callable[[str], None],
) -> None:
    """Wait for a job to end; an interrupt cancels it.

    Raises:
        BuildError: It ended in another state than DONE, without an error.
        Exception: The runner's error for a failed job.
    """
    _say_where(result, beam_options, say)
    try:
        with _RemoteProgress(options):
            state = result.wait_until_finish()
    except KeyboardInterrupt:
        say("cancelling the job")
        result.cancel()
        raise
    if state not in (None, PipelineState.DONE):
        raise BuildError(f"the job ended as {state}; run the same command again to resume")


def _say_where(
    result: PipelineResult, options: PipelineOptions, say: Callable[[str], None]
) -> None:
    if hasattr(result, "job_id"):  # a Dataflow job
        cloud = options.view_as(GoogleCloudOptions)
        say(f"job {result.job_id()}: {console_url(cloud.project, cloud.region, result.job_id())}")


class _RemoteProgress:
    """The progress of a remote job, read from OUTPUT until the block ends.

    Every runner writes there; few report counters while a job runs.
    """

    def __init__(self, options: BuildOptions) -> None:
        self._options = options
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, daemon=True, name="shardwright-remote-progress"
        )

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(_TICK_SECONDS):
            try:
                if (found := written_so_far(self._options)) is not None:
                    PROGRESS.show(found)
            except ShardwrightError as error:  # no reason to stop the job
                _LOG.info("could not read the progress: %s", error)


def written_so_far(options: BuildOptions) -> Progress | None:
    """Return the progress of this build in OUTPUT, or None before it is planned.

    Images and bytes are derived from the number of finished shards.

    Raises:
        StorageError: OUTPUT cannot be read.
    """
    finished = options.root.num_bytes_of(naming.MANIFEST) is not None
    root = options.root.below(naming.NEXT_DIR if finished else "")
    plan = read_json(root, naming.PLAN, PlanFile)
    if plan is None or plan.settings != options.settings:
        return None
    sidecars = root.names(naming.INDEX_DIR)
    found = Progress()
    for split, planned in plan.splits.items():
        shards = planned.num_shards
        done = sum(
            name.startswith(f"{split}-") and name.endswith(f"-of-{shards:05d}.parquet")
            for name in sidecars
        )
        found.total_shards += shards
        found.total_images += planned.num_records
        found.shards += done
        found.images += planned.num_records * done // max(shards, 1)
        found.num_bytes += planned.num_bytes * done // max(shards, 1)
    return found


def reason_of(error: BaseException) -> str:
    """Return a runner's error in one line of at most 1000 characters.

    It is the last line of the worker's traceback, or else the first five lines of the message.
    """
    if isinstance(error, grpc.FutureTimeoutError):
        return "its job server did not respond"
    text: Any = getattr(error, "message", None) or str(error) or type(error).__name__
    lines = [line.strip() for line in str(text).replace("\\n", "\n").splitlines() if line.strip()]
    if "Traceback (most recent call last):" in lines:
        return next(
            (line for line in reversed(lines) if not line.startswith(("File ", "^", "~"))),
            lines[-1],
        )[:1000]
    return " ".join(lines[:5])[:1000]
