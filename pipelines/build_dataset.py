"""The command `shardwright build`, also run by `python -m pipelines.build_dataset`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pipelines.graphs import build_graph
from pipelines.job import BuildJob, prepare_job
from pipelines.options import parse_options
from pipelines.running import run_build, run_pipeline
from pipelines.stock_build import run_stock_build


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 done, 1 the build failed, 2 wrong usage."""
    return run_build(
        _run, lambda: prepare_job(parse_options(sys.argv[1:] if argv is None else argv))
    )


def _run(job: BuildJob) -> None:
    if job.options.writer == "beam":
        run_stock_build(job)
    else:
        run_pipeline(build_graph, job)


if __name__ == "__main__":
    sys.exit(main())
