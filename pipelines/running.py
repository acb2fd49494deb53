"""Running a graph: the last lines a user reads, the exit code, and errors without a stack trace where they are the user's."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from time import monotonic

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.display import ProgressDisplay
from pipelines.job import BuildJob
from pipelines.runners import beam_arguments, runner_of
from shardwright import errors
from shardwright.errors import ShardwrightError, UsageError
from shardwright.manifest import Manifest, read_manifest
from shardwright.sizes import show_bytes, show_seconds
from transforms.progress import PROGRESS
from transforms.sources import describe_source

EXIT_DONE, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
# What a runner makes of an error raised on a worker: its class, its message, and where it happened.
_WORKER_ERROR = re.compile(r"shardwright\.errors\.(\w+): (.*?)(?: \[while running|\n\n|\Z)", re.DOTALL)


def run_build(graph: Callable[[beam.Pipeline, BuildJob], object], prepare: Callable[[], BuildJob]) -> int:
    """Prepare a job, run its graph, and say how it went."""
    logging.getLogger().setLevel(logging.WARNING)
    started = monotonic()
    try:
        job = prepare()
        say(f"INPUT is {describe_source(job.source)}")
        say(f"runner: {runner_of(job.options.beam_args)}, {job.options.threads} threads")
        with ProgressDisplay(PROGRESS):
            run_pipeline(graph, job)
        _say_result(job, read_manifest(job.options.root), monotonic() - started)
    except ShardwrightError as error:
        return fail(error)
    except KeyboardInterrupt:
        say("stopped; run the same command again to go on")
        return 130
    return EXIT_DONE


def run_pipeline(graph: Callable[[beam.Pipeline, BuildJob], object], job: BuildJob) -> None:
    """Run a graph to its end.

    Raises:
        ShardwrightError: What a worker raised on purpose, whichever way the runner carried it here.
    """
    options = PipelineOptions(beam_arguments(job.options.beam_args))
    try:
        pipeline = beam.Pipeline(options=options)
        graph(pipeline, job)
        pipeline.run().wait_until_finish()
    except ShardwrightError:
        raise
    except Exception as error:  # runners wrap a worker's error in classes of their own
        known = worker_error(str(error))
        if known is None:
            raise
        raise known from error


def worker_error(text: str) -> ShardwrightError | None:
    """The error of ours that a runner's message speaks of, or None."""
    for name, message in reversed(_WORKER_ERROR.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, ShardwrightError) and kind is not errors.RecordFault:
            return kind(message.strip())
    return None


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
        say(f"{split.name}: {split.num_records} records, {len(split.shards)} shards, {show_bytes(split.num_bytes)}")
    if manifest.rejects:
        reasons = ", ".join(f"{number} {reason}" for reason, number in manifest.rejects.items())
        say(f"rejects: {reasons}; each is listed in {job.options.root}/rejects/")
    say(f"{job.options.root}: {manifest.num_records} records in {shards} shards, {show_seconds(seconds)}")
