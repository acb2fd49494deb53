"""Run a graph on its runner, and turn the errors of workers back into those that they raised.

A job on other machines is followed: its address, its progress and its outcome.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol, TypeVar

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions
from apache_beam.runners.runner import PipelineResult, PipelineState

from shardwright import errors
from shardwright.errors import BuildError, ShardwrightError, UsageError
from shardwright.inspect.build_scan import find_plan
from shardwright.pipelines.runners.beam_options import (
    is_local,
    kind_of,
    num_processes,
    option_of,
    runner_of,
)
from shardwright.pipelines.runners.dataflow import console_url
from shardwright.pipelines.runners.processes import (
    ending_workers,
    hear_beam,
    lost_worker,
    reporting_death,
    temporary_folder,
)
from shardwright.storage.folder import Folder
from shardwright.terminal import say
from shardwright.transforms.progress import PROGRESS, Progress

_TRACE = "Traceback (most recent call last):"
# Beam's addition to the message of a worker's error: the step that raised it.
_STEP = re.compile(r" \[while running '[^\n]*'\]$", re.MULTILINE)
# After an error, Beam's worker threads may release a bundle twice. The second time raises a
# KeyError, which hides the first error.
_BEAM_RACE = re.compile(
    r"bundle_processor_cache\.release.*^KeyError: 'bundle_\d+'", re.DOTALL | re.MULTILINE
)
_RAISED = re.compile(r"^shardwright\.errors\.(\w+): (.*)", re.DOTALL | re.MULTILINE)
_BEAM_LOGGERS = (
    "apache_beam.runners.common",
    "apache_beam.runners.worker.sdk_worker",
    "apache_beam.runners.portability.local_job_service",
    "apache_beam.runners.dataflow.dataflow_runner",
    "PrismJobServer",  # the lines of Prism's own log
    "root",
)
_LOG = logging.getLogger(__name__)
_TICK_SECONDS = 10.0
_FETCH_SECONDS = 20.0
_RUNNER = "apache_beam.runners.portability.prism_runner"
_NO_PROXY = "no_grpc_proxy"
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


class RunOptions(Protocol):
    """The options of a build that a run needs: those for Beam, and OUTPUT, to see progress."""

    @property
    def beam_args(self) -> Sequence[str]: ...
    @property
    def all_beam_args(self) -> list[str]: ...
    @property
    def root(self) -> Folder: ...
    @property
    def settings(self) -> Mapping[str, Any]: ...


class Runnable(Protocol):
    """A build, seen from its runner."""

    @property
    def options(self) -> RunOptions: ...


_Job = TypeVar("_Job", bound=Runnable)
_View = TypeVar("_View", bound=PipelineOptions)


class ViewedOptions(PipelineOptions):
    """Beam's options whose views are made once. All views share one dict of values.

    Beam asks for 650 views while it makes and runs a small graph, and parses all flags for each.
    """

    def view_as(self, cls: type[_View]) -> _View:
        views = self.__dict__.setdefault("views", {})  # Beam's own __setattr__ knows only flags
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


def run_pipeline(graph: Callable[[beam.Pipeline, _Job], object], job: _Job) -> None:
    """Run a graph to its end.

    Raises:
        ShardwrightError: A worker raised it, whatever the runner wrapped it in.
        UsageError: Beam rejects its options.
        BuildError: A job on other machines was rejected, or failed. Or a worker process died.
    """
    hear_beam()
    # Before Beam starts a process or a channel: gRPC reads the variable once for each channel.
    keep_proxies_out()
    options = ViewedOptions(job.options.all_beam_args)
    for name in _BEAM_LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
    try:
        with temporary_folder(), ending_prism():
            try:
                pipeline = beam.Pipeline(options=options)
            # Beam's errors for invalid options, before anything runs.
            except (ValueError, ImportError, AttributeError) as error:
                raise UsageError(f"Beam rejects its options: {error}") from error
            graph(pipeline, job)
            _run_to_its_end(pipeline, options, job)
    except ShardwrightError as error:
        # FnApiRunner raises the worker's own class in this process, with the step added to the
        # message.
        raise type(error)(_STEP.sub("", str(error))) from error
    except Exception as error:  # runners wrap a worker's error in classes of their own
        known = worker_error(str(error)) or lost_worker(error)
        if known is None:
            raise
        raise known from error


def _run_to_its_end(pipeline: beam.Pipeline, options: PipelineOptions, job: Runnable) -> None:
    if is_local(job.options.beam_args):
        with ExitStack() as stack:
            # Only here: elsewhere the death of this process does not end the job.
            stack.enter_context(reporting_death())
            if num_processes(job.options.beam_args) > 1:
                stack.enter_context(ending_workers())
                stack.enter_context(_remote_progress(job.options))  # they have their own counters
            # Not around the wait: the timeout is for all new sockets of this process.
            with fetching_prism(job.options.beam_args):
                result = pipeline.run()
            result.wait_until_finish()
        return
    try:
        result = pipeline.run()
        # A template is only stored: there is no job to follow.
        if not option_of(job.options.beam_args, "template_location"):
            follow(result, options, job.options, say)
    except ShardwrightError:
        raise
    except Exception as error:  # of the service or the job server: our own code runs on workers
        if worker_error(str(error)) is not None:
            raise
        raise BuildError(
            f"the job failed on {runner_of(job.options.beam_args)}: {reason_of(error)}"
        ) from error


def worker_error(text: str) -> ShardwrightError | None:
    """Return the ShardwrightError in the last traceback of a runner's message, or None.

    A ShardwrightError that led to another error is not the cause.
    """
    # Python prints a cause before its effect, so the last traceback is what ended the bundle.
    traces = text.split(_TRACE)
    while len(traces) > 1 and _BEAM_RACE.search(traces[-1]):
        traces.pop()
    raised = _RAISED.search(traces[-1])
    kind = getattr(errors, raised[1], None) if raised else None
    if (
        raised is None
        or not isinstance(kind, type)
        or not issubclass(kind, ShardwrightError)
        or kind is errors.RecordFault
    ):
        return None
    # A message may have several lines. Beam's addition ends it; without one an empty line does.
    end = _STEP.search(raised[2])
    message = raised[2][: end.start()] if end else raised[2].partition("\n\n")[0]
    return kind(message.strip())


class _KnownFailures(logging.Filter):
    """A filter for user errors and stops, which Beam would log with a stack trace.

    The last line of the build reports them.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and isinstance(record.exc_info[1], ShardwrightError | KeyboardInterrupt):
            return False
        # The log of a worker process is escaped.
        text = record.getMessage().replace("\\n", "\n").replace("\\'", "'")
        # Every worker process warns about a folder that only containers have.
        return worker_error(text) is None and "No semi_persistent_directory" not in text


_FILTER = _KnownFailures()


def follow(
    result: PipelineResult,
    beam_options: PipelineOptions,
    options: RunOptions,
    say: Callable[[str], None],
) -> None:
    """Wait for a job to end; an interrupt cancels it.

    Raises:
        BuildError: It ended in another state than DONE, without an error.
        Exception: The runner's error for a failed job.
    """
    if hasattr(result, "job_id"):  # a Dataflow job
        cloud = beam_options.view_as(GoogleCloudOptions)
        say(f"job {result.job_id()}: {console_url(cloud.project, cloud.region, result.job_id())}")
    try:
        with _remote_progress(options):
            state = result.wait_until_finish()
    except KeyboardInterrupt:
        say("cancelling the job")
        # Or the job would go on, and cost money, while the user thinks that it has stopped.
        result.cancel()
        raise
    if state not in (None, PipelineState.DONE):
        raise BuildError(f"the job ended as {state}; run the same command again to resume")


@contextmanager
def _remote_progress(options: RunOptions) -> Iterator[None]:
    """Show the progress of a job in other processes in the block, as far as OUTPUT has it.

    Every runner writes there; few report counters while a job runs.
    """
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(_TICK_SECONDS):
            try:
                found = written_so_far(options.root, options.settings)
                if found is not None:
                    PROGRESS.show(found)
            except ShardwrightError as error:  # no reason to stop the job
                _LOG.info("could not read the progress: %s", error)

    threading.Thread(target=look, daemon=True, name="shardwright-remote-progress").start()
    try:
        yield
    finally:
        stop.set()


def written_so_far(root: Folder, settings: Mapping[str, Any]) -> Progress | None:
    """Return the progress of a build in OUTPUT, or None before it is planned.

    Images are derived from the number of finished shards.

    Raises:
        NotADatasetError: The plan is damaged.
        StorageError: OUTPUT cannot be read.
    """
    plan = find_plan(root)
    # Until this job has recorded its plan, there may be that of an earlier build.
    if plan is None or plan.file.settings != settings:
        return None
    done = plan.progress(time.time()).done
    return Progress(plan.planned.records, plan.planned.shards, done.records, done.shards)


def reason_of(error: BaseException) -> str:
    """Return a runner's error in one line of at most 1000 characters.

    It is the last line of the worker's traceback, or else the first five lines of the message.
    """
    if isinstance(error, grpc.FutureTimeoutError):
        return "its job server did not respond"
    # Errors of Google's clients have their text in `message`; some others have no text at all.
    text: Any = getattr(error, "message", None) or str(error) or type(error).__name__
    lines = [line.strip() for line in str(text).replace("\\n", "\n").splitlines() if line.strip()]
    if "Traceback (most recent call last):" in lines:
        return next(
            (line for line in reversed(lines) if not line.startswith(("File ", "^", "~"))),
            lines[-1],
        )[:1000]
    return " ".join(lines[:5])[:1000]


@contextmanager
def fetching_prism(beam_args: Sequence[str]) -> Iterator[None]:
    """Give Beam's download of Prism a timeout in the block.

    Beam sets none, so behind a firewall that drops packets the download hangs. If DirectRunner
    cannot get Prism, Beam falls back to its in-process runner.

    Args:
        beam_args: Options for Beam.

    Raises:
        UsageError: The file of `--prism_location` does not exist.
        BuildError: The runner is PrismRunner, and Prism cannot be downloaded.
    """
    runner = kind_of(beam_args)
    if runner not in ("prismrunner", "directrunner", "switchingdirectrunner"):
        yield
        return
    location = option_of(beam_args, "prism_location")
    if location and "://" not in location and not os.path.exists(location):
        raise UsageError(f"--prism_location {location} does not exist")
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_FETCH_SECONDS)
    try:
        yield
    except (RuntimeError, TimeoutError) as error:
        # DirectRunner goes on without Prism, so an error that it lets through is another one.
        if runner != "prismrunner" or not (
            isinstance(error, TimeoutError) or "fetch remote prism binary" in str(error)
        ):
            raise
        way_on = "give the path of its binary with --prism_location, or leave --runner out"
        raise BuildError(f"could not download Prism ({error}): {way_on}") from error
    finally:
        socket.setdefaulttimeout(before)


@contextmanager
def ending_prism() -> Iterator[None]:
    """Stop Prism after the block if Beam started it.

    Beam would stop it when this process exits. By then the run's temporary folder is gone, so Beam
    fails to remove its own in there, and leaves Prism running.
    """
    try:
        yield
    finally:
        if _RUNNER in sys.modules:
            from apache_beam.runners.portability.prism_runner import PrismRunner

            server = PrismRunner.shared_handle.acquire(lambda: None)  # None if there is none
            if server is not None:
                server.stop()


def keep_proxies_out() -> None:
    """Make gRPC connect directly to the processes of this machine.

    Under `https_proxy` it would connect through the proxy and wait forever. Only gRPC reads
    `no_grpc_proxy`. It takes precedence over `no_proxy`, so the hosts of the latter are copied.
    """
    given = next(
        (os.environ[name] for name in (_NO_PROXY, "no_proxy", "NO_PROXY") if os.environ.get(name)),
        "",
    )
    hosts = [host for host in given.split(",") if host]
    os.environ[_NO_PROXY] = ",".join(
        [*hosts, *(host for host in _THIS_MACHINE if host not in hosts)]
    )
