"""Running a graph: the last lines a user reads, the exit code, and errors without a stack trace where they are the user's."""

from __future__ import annotations

import itertools
import logging
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from types import FrameType

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.display import ProgressDisplay
from pipelines.job import BuildJob
from pipelines.networks import fetching_prism, keep_proxies_out
from pipelines.remote import follow, reason_of
from pipelines.runners import describe_runner, is_local, option_of, runner_of
from pipelines.temporary import temporary_folder
from shardwright import errors
from shardwright.errors import BuildError, ShardwrightError, TooManyRejectsError, UsageError
from shardwright.manifest import Manifest, read_manifest
from shardwright.sizes import show_bytes, show_seconds
from shardwright.storage import COUNTERS, Folder
from transforms.planning.size_errors import average, record_bytes_of
from transforms.progress import PROGRESS
from transforms.publishing.leaks import LEAKS
from transforms.reject_files import first_faults
from transforms.rejects import RejectReason

EXIT_DONE, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
_SHOWN_REJECTS = 5
REPORT = 'internal_error is a bug, not a fault of your images: please report it (README.md, "Report a problem") with the line above'
_TRACE = "Traceback (most recent call last):"
# What Beam adds to the message of an error raised on a worker: where it happened.
_STEP = re.compile(r" \[while running '[^\n]*'\]$", re.MULTILINE)
# After an error, Beam's worker threads may put a bundle away twice, and the second time hides the error behind one of their own.
_BEAM_RACE = re.compile(
    r"bundle_processor_cache\.release.*^KeyError: 'bundle_\d+'", re.DOTALL | re.MULTILINE
)
_RAISED = re.compile(r"^shardwright\.errors\.(\w+): (.*)", re.DOTALL | re.MULTILINE)
_BEAM_LOGGERS = (
    "apache_beam.runners.common",
    "apache_beam.runners.worker.sdk_worker",
    "apache_beam.runners.portability.local_job_service",
    "apache_beam.runners.dataflow.dataflow_runner",
    "PrismJobServer",  # what Prism writes to its own log
    "root",
)


def run_build(run: Callable[[BuildJob], None], prepare: Callable[[], BuildJob]) -> int:
    """Prepare a job, run it, and say how it went."""
    logging.getLogger().setLevel(logging.WARNING)
    started = monotonic()
    PROGRESS.start(total_images=0, total_shards=0)
    with stop_signals() as stop:
        try:
            job = prepare()
            say(job.describe_inputs())
            say(describe_runner(job.options.beam_args))
            with ProgressDisplay(PROGRESS):
                run(job)
            if template := option_of(job.options.beam_args, "template_location"):
                say(
                    f"wrote the template {template}; nothing is built before a job is started from it"
                )
            else:
                _say_result(job, read_manifest(job.options.root), monotonic() - started)
        except (Exception, KeyboardInterrupt) as error:
            if (
                stop.signal is not None
            ):  # a worker in this process turns the interrupt into an error of its own
                say(f"stopped by {stop.signal.name}; run the same command again to go on")
                return 128 + stop.signal
            if isinstance(error, TooManyRejectsError):
                _say_some_rejects(job.options.root)
                if RejectReason.INTERNAL_ERROR in str(error):
                    say(REPORT)
            if isinstance(error, ShardwrightError):
                return fail(error)
            raise
    return EXIT_DONE


@dataclass(slots=True)
class Stop:
    """Which signal asked the build to stop, None as long as none did."""

    signal: signal.Signals | None = None


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Make SIGINT and SIGTERM stop the block by a KeyboardInterrupt, so that no temporary file is left; the second one kills."""
    stop = Stop()

    def handle(number: int, _: FrameType | None) -> None:
        stop.signal = signal.Signals(number)
        signal.signal(number, signal.SIG_DFL)
        raise KeyboardInterrupt

    if (
        threading.current_thread() is not threading.main_thread()
    ):  # Python lets no other thread set handlers
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_pipeline(graph: Callable[[beam.Pipeline, BuildJob], object], job: BuildJob) -> None:
    """Run a graph to its end.

    Raises:
        ShardwrightError: What a worker raised on purpose, whichever way the runner carried it here.
        UsageError: Beam refuses its options.
        BuildError: A job on other machines was refused, or failed.
    """
    keep_proxies_out()
    options = PipelineOptions(job.options.all_beam_args)
    for name in _BEAM_LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
    try:
        with temporary_folder():
            pipeline = _make_pipeline(options)
            graph(pipeline, job)
            _run_to_its_end(pipeline, options, job)
    except ShardwrightError as error:
        raise type(error)(_STEP.sub("", str(error))) from error
    except Exception as error:  # runners wrap a worker's error in classes of their own
        known = worker_error(str(error))
        if known is None:
            raise
        raise known from error


def _run_to_its_end(pipeline: beam.Pipeline, options: PipelineOptions, job: BuildJob) -> None:
    if is_local(job.options.beam_args):
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
    except Exception as error:  # the service's or the job server's: none of our code runs here but what was just built
        if worker_error(str(error)) is not None:
            raise
        raise BuildError(
            f"{runner_of(job.options.beam_args)} did not do the job: {reason_of(error)}"
        ) from error


def _make_pipeline(options: PipelineOptions) -> beam.Pipeline:
    """Raises UsageError for a runner that Beam does not know, or options that the runner does not take."""
    try:
        return beam.Pipeline(options=options)
    except (
        ValueError,
        ImportError,
        AttributeError,
    ) as error:  # as Beam tells it, before anything runs
        raise UsageError(f"Beam refuses its options: {error}") from error


def worker_error(text: str) -> ShardwrightError | None:
    """The error of ours that a runner's message ends in, or None: one that led to another error is not the cause."""
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
    """Keeps Beam from logging, with a stack trace, what the last line of the build says: a user's mistake, or a stop."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and isinstance(record.exc_info[1], ShardwrightError | KeyboardInterrupt):
            return False
        text = (
            record.getMessage().replace("\\n", "\n").replace("\\'", "'")
        )  # a worker process's log comes escaped
        # Every worker process warns of a folder that only containers have.
        return worker_error(text) is None and "No semi_persistent_directory" not in text


_FILTER = _KnownFailures()


def fail(error: ShardwrightError) -> int:
    """Say why, and give the exit code."""
    say(f"error: {error}")
    return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED


def say(line: str) -> None:
    """One line for the user. On stderr: Airflow's Beam hook blocks on a child that fills stdout."""
    print(f"shardwright: {line}", file=sys.stderr, flush=True)


def _say_result(job: BuildJob, manifest: Manifest, seconds: float) -> None:
    progress = PROGRESS.snapshot()
    shards = sum(len(split.shards) for split in manifest.splits.values())
    if progress.shards and progress.reused_shards == progress.shards:
        say(f"up to date: all {shards} shards were already written")
    for split in manifest.splits.values():
        say(
            f"{split.name}: {split.num_records} records, {len(split.shards)} shards, {show_bytes(split.num_bytes)}"
        )
    if sizes := record_bytes_of(manifest):
        say(average(sizes.values()).describe())
    _say_splits(manifest)
    if manifest.rejects:
        reasons = ", ".join(f"{number} {reason}" for reason, number in manifest.rejects.items())
        say(f"rejects: {reasons}; each is listed in {job.options.root}/rejects/")
        _say_some_rejects(job.options.root)
        if RejectReason.INTERNAL_ERROR in manifest.rejects:
            say(REPORT)
    _say_retries()
    say(
        f"{job.options.root}: {manifest.num_records} records in {shards} shards, {show_seconds(seconds)}"
    )


def _say_splits(manifest: Manifest) -> None:
    """How well classes were spread over splits, and images that are in two of them."""
    for name, split in manifest.splits.items():
        if (off := split.stats.get("label_deviation")) is not None:
            worst = f"{off['max']:.3%} ({manifest.schema.class_names[off['label']]})"
            say(
                f"{name}: class fractions are off those of the whole by {off['mean']:.3%} on average, by {worst} at worst"
            )
    for name, other in itertools.combinations(
        sorted(manifest.splits, key=lambda split: manifest.splits[split].num_records), 2
    ):
        if (leak := manifest.splits[name].stats.get(LEAKS, {}).get(other)) is not None:
            more = f", and perhaps {leak['unchecked']} more" if leak["unchecked"] else ""
            fix = "report.html names some, and --duplicates drop leaves one of each"
            say(f"leakage: {leak['records']} images of {name} are also in {other}{more}; {fix}")


def _say_retries() -> None:
    """What the stores' bad moments cost, as far as this process saw them."""
    retries = {
        name.removeprefix("retries_"): number
        for name, number in COUNTERS.snapshot().items()
        if name.startswith("retries_")
    }
    if retries:
        kinds = ", ".join(
            f"{number} {kind}"
            for kind, number in sorted(retries.items(), key=lambda item: -item[1])
        )
        say(f"storage: {sum(retries.values())} requests were repeated ({kinds})")


def _say_some_rejects(root: Folder) -> None:
    for reject in first_faults(root, _SHOWN_REJECTS):
        say(f"  {reject.reason}: {reject.id or reject.uri}: {reject.detail}")
