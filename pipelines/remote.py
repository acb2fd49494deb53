"""A job on other machines: where it can be seen, how far it is, and how it ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import grpc
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.runners.runner import PipelineResult, PipelineState

from pipelines.dataflow import console_url
from shardwright.errors import BuildError
from transforms.metrics import NAMESPACE
from transforms.progress import PROGRESS

_LOG = logging.getLogger(__name__)
_TICK_SECONDS = 15.0  # Dataflow updates its own about as often


def follow(result: PipelineResult, options: PipelineOptions, say: Callable[[str], None]) -> None:
    """Wait for the end of a job; a stop on this side cancels it.

    Raises:
        BuildError: It ended otherwise than done, and did not say why.
        Exception: What the runner raises for a job that failed.
    """
    _say_where(result, options, say)
    try:
        with _RemoteProgress(result):
            state = result.wait_until_finish()
    except KeyboardInterrupt:
        say("cancelling the job")
        result.cancel()
        raise
    if state not in (None, PipelineState.DONE):
        raise BuildError(f"the job ended as {state}; run the same command again to go on")


def _say_where(result: PipelineResult, options: PipelineOptions, say: Callable[[str], None]) -> None:
    if hasattr(result, "job_id"):  # Dataflow's
        cloud = options.view_as(GoogleCloudOptions)
        say(f"job {result.job_id()}: {console_url(cloud.project, cloud.region, result.job_id())}")


class _RemoteProgress:
    """Shows the job's counters as this build's progress until the block ends."""

    def __init__(self, result: PipelineResult) -> None:
        self._result = result
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="shardwright-remote-progress")

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(_TICK_SECONDS):
            try:
                PROGRESS.show(counters_of(self._result))
            except Exception as error:  # whatever a runner's metrics may raise: the job goes on without being watched
                _LOG.info("the job's counters cannot be read now: %s", error)


def counters_of(result: PipelineResult) -> dict[str, int]:
    """Our counters, by name, as far as the runner knows them."""
    found = result.metrics().query(MetricsFilter().with_namespace(NAMESPACE))["counters"]
    counters: dict[str, int] = {}
    for counter in found:
        counters[counter.key.metric.name] = counters.get(counter.key.metric.name, 0) + (counter.result or 0)
    return counters


def reason_of(error: BaseException) -> str:
    """What a runner's error says, in one line: the last line of the worker's trace, else its first lines."""
    if isinstance(error, grpc.FutureTimeoutError):
        return "its job server does not answer"
    text: Any = getattr(error, "message", None) or str(error) or type(error).__name__
    lines = [line.strip() for line in str(text).replace("\\n", "\n").splitlines() if line.strip()]
    if "Traceback (most recent call last):" in lines:
        return next((line for line in reversed(lines) if not line.startswith(("File ", "^", "~"))), lines[-1])[:1000]
    return " ".join(lines[:5])[:1000]
