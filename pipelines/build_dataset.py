"""The command `shardwright build`, also run by `python -m pipelines.build_dataset`.

Beam and the steps are imported when options are valid, so that `--help` and mistakes are answered
at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipelines.options import parse_options
from pipelines.running import run_build

if TYPE_CHECKING:
    from pipelines.job import BuildJob


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 done, 1 the build failed, 2 wrong usage."""
    return run_build(_run, lambda: _prepare(sys.argv[1:] if argv is None else argv))


def _prepare(argv: Sequence[str]) -> BuildJob:
    options = parse_options(argv)
    from pipelines.job import prepare_job

    return prepare_job(options)


def _run(job: BuildJob) -> None:
    if job.options.writer == "beam":
        from pipelines.stock_build import run_stock_build

        run_stock_build(job)
        return
    from pipelines.up_to_date import publish_finished

    if not publish_finished(job):
        from pipelines.garbage import import_beam

        import_beam()
        from pipelines.beam_running import run_pipeline
        from pipelines.graphs import build_graph

        run_pipeline(build_graph, job)


if __name__ == "__main__":
    sys.exit(main())
