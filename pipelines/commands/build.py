"""The commands `build` and `append`; `python -m shardwright.pipelines.commands.build` is the first.

Options are imported when no help is asked for, Beam and the steps when options are valid, so that
`--help` and mistakes are answered at once.
"""

from __future__ import annotations

import functools
import gc
import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shardwright.errors import UsageError
from shardwright.inspect.cli import run_to_end
from shardwright.pipelines.options.arguments import answer_help
from shardwright.terminal import say

if TYPE_CHECKING:
    from shardwright.pipelines.job.build import BuildJob, Detect
    from shardwright.pipelines.options.build import BuildOptions
    from shardwright.transforms.inputs.source import InputSource

_MANY = 10_000  # images whose re-encoding takes longer than processes take to start


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 done, 1 the build failed, 2 wrong usage."""
    words = sys.argv[1:] if argv is None else argv
    answer_help("build", words)
    from shardwright.pipelines.commands.results import run_build

    return run_build(run_job, lambda: _prepare(words))


def append(argv: Sequence[str]) -> int:
    """Run `build --if-exists append`; the exit code is that of `main`."""
    if given := next((word for word in argv if word.startswith("--if-exists")), None):
        say(f"error: append is `build --if-exists append`: leave {given} out")
        return 2
    return main([*argv, "--if-exists=append"])


def _prepare(argv: Sequence[str]) -> BuildJob:
    from shardwright.pipelines.options.build import parse_options

    return in_processes(prepare_build(parse_options(argv)))


def in_processes(job: BuildJob) -> BuildJob:
    """Return the job with as many processes as keep the machine's cores busy, if one does not.

    Processes take seconds to start, so INPUT must have many images. An append does not know how
    many of them are new.
    """
    from shardwright.pipelines.runners.beam_options import process_arguments

    options = job.options
    added = process_arguments(options.beam_args, job.write_job.computing_threads)
    fits = options.writer == "planned" and options.threads is None and job.known is None
    if not (added and fits and _lists_many(job.source)):
        return job
    return replace(job, options=replace(options, beam_args=(*options.beam_args, *added)))


def _lists_many(source: InputSource) -> bool:
    """Return whether a folder or a table has many images, as far as its listing shows at once."""
    import pyarrow as pa

    if not source.is_listed_fast:
        return False
    listed = (found for part in source.parts() for found in source.list_part(part))
    sizes = (rows.num_rows for rows in listed if isinstance(rows, pa.RecordBatch))
    return any(total >= _MANY for total in itertools.accumulate(sizes))


def prepare_build(options: BuildOptions, detect: Detect | None = None) -> BuildJob:
    """Return the job of a build, or of what a dataset that grows lacks.

    Args:
        options: Options of the build.
        detect: Finds the format of INPUT; None for the installed formats.

    Raises:
        UsageError: INPUT is invalid, or an option does not fit it.
        BuildError: A table cannot be read, or OUTPUT belongs to another build.
    """
    for option, given in (
        ("--keep-missing", options.keep_missing),
        ("--max-gone", options.max_gone is not None),
    ):
        if given and options.if_exists != "append":
            raise UsageError(f"{option} needs --if-exists append, not {options.if_exists}")
    from shardwright.transforms.inputs.detection import detect_source

    if options.if_exists == "append":
        from shardwright.pipelines.commands.append import prepare_version

        return prepare_version(options, detect or detect_source)
    from shardwright.pipelines.job.build import prepare_job

    return prepare_job(options, detect or detect_source)


def run_job(job: BuildJob) -> None:
    """Build the dataset of a job.

    Raises:
        ShardwrightError: INPUT cannot be read, there are too many rejects, or a worker failed.
    """
    if job.known is not None:
        from shardwright.pipelines.commands.append import append_version

        append_version(job)
        return
    if job.options.writer == "beam":
        from shardwright.pipelines.commands.stock_writer import run_stock_build

        run_stock_build(job)
        return
    from shardwright.pipelines.local.build import publish_finished

    if not publish_finished(job):
        _import_beam()
        from shardwright.pipelines.job.graph import build_graph
        from shardwright.pipelines.runners.run import run_pipeline

        run_pipeline(build_graph, job)


@functools.cache
def _import_beam() -> None:
    """Import the graph and Beam, whose objects no collection visits, now or later."""
    from shardwright.pipelines.runners.processes import no_collections

    with no_collections():
        import shardwright.pipelines.job.graph  # noqa: F401
    gc.freeze()


if __name__ == "__main__":
    sys.exit(run_to_end(main))
