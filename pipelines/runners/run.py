"""Run a graph on its runner, and turn the errors of workers back into those that they raised."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from shardwright import errors
from shardwright.errors import BuildError, ShardwrightError, UsageError
from shardwright.pipelines.commands.results import say
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.runners.beam_options import is_local, option_of, runner_of
from shardwright.pipelines.runners.deaths import lost_worker, reporting_death
from shardwright.pipelines.runners.networks import keep_proxies_out
from shardwright.pipelines.runners.prism import ending_prism, fetching_prism
from shardwright.pipelines.runners.remote import follow, reason_of
from shardwright.pipelines.runners.temporary import temporary_folder

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


def run_pipeline(graph: Callable[[beam.Pipeline, BuildJob], object], job: BuildJob) -> None:
    """Run a graph to its end.

    Raises:
        ShardwrightError: A worker raised it, whatever the runner wrapped it in.
        UsageError: Beam rejects its options.
        BuildError: A job on other machines was rejected, or failed. Or a worker process died.
    """
    keep_proxies_out()
    options = PipelineOptions(job.options.all_beam_args)
    for name in _BEAM_LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
    try:
        with temporary_folder(), ending_prism():
            pipeline = _make_pipeline(options)
            graph(pipeline, job)
            _run_to_its_end(pipeline, options, job)
    except ShardwrightError as error:
        raise type(error)(_STEP.sub("", str(error))) from error
    except Exception as error:  # runners wrap a worker's error in classes of their own
        known = worker_error(str(error)) or lost_worker(error)
        if known is None:
            raise
        raise known from error


def _run_to_its_end(pipeline: beam.Pipeline, options: PipelineOptions, job: BuildJob) -> None:
    if is_local(job.options.beam_args):
        with reporting_death():
            with fetching_prism(job.options.beam_args):
                result = pipeline.run()
            result.wait_until_finish()
        return
    try:
        result = pipeline.run()
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


def _make_pipeline(options: PipelineOptions) -> beam.Pipeline:
    """Return a pipeline. Raises UsageError if Beam does not know the runner or an option."""
    try:
        return beam.Pipeline(options=options)
    # Beam's errors for invalid options, before anything runs.
    except (ValueError, ImportError, AttributeError) as error:
        raise UsageError(f"Beam rejects its options: {error}") from error


def worker_error(text: str) -> ShardwrightError | None:
    """Return the ShardwrightError in the last traceback of a runner's message, or None.

    A ShardwrightError that led to another error is not the cause.
    """
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
