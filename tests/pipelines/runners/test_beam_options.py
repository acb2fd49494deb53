"""The runner of a build."""

from __future__ import annotations

import pytest

from shardwright.pipelines.runners.beam_options import (
    LOCAL_RUNNER,
    beam_arguments,
    describe_runner,
    is_local,
    runner_of,
)

DOTTED = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"


@pytest.mark.parametrize(
    ("args", "runner", "local"),
    [
        ([], LOCAL_RUNNER, True),
        (["--runner=DirectRunner"], "DirectRunner", True),
        (["--runner", "FnApiRunner"], "FnApiRunner", True),
        ([f"--runner={DOTTED}"], DOTTED, True),
        (["--runner=directrunner"], "directrunner", True),
        (["--runner=PrismRunner"], "PrismRunner", True),
        (["--runner=DataflowRunner", "--region=r"], "DataflowRunner", False),
        (["--runner=DirectRunner", "--runner", "PortableRunner"], "PortableRunner", False),
        (["--runner=FlinkRunner", "--flink_master=host:8081"], "FlinkRunner", False),
        (["--runner=FlinkRunner", "--job_endpoint=host:8099"], "FlinkRunner", False),
        (["--runner=FlinkRunner"], "FlinkRunner", True),  # a cluster that Beam starts here
        (["--runner=FlinkRunner", "--flink_master", "[local]"], "FlinkRunner", True),
        (["--job_name", "x", "--runner"], LOCAL_RUNNER, True),
        (["--runner_class=Mine"], LOCAL_RUNNER, True),
    ],
)
def test_the_last_runner_counts(args: list[str], runner: str, local: bool) -> None:
    assert runner_of(args) == runner
    assert is_local(args) == local


@pytest.mark.parametrize(
    ("args", "added"),
    [
        (["--direct_num_workers=2"], ["--runner=FnApiRunner"]),  # named, so none is downloaded
        (["--runner=DirectRunner"], []),
        (["--x", "--runner", "FlinkRunner"], []),
    ],
)
def test_beam_is_given_a_runner(args: list[str], added: list[str]) -> None:
    assert beam_arguments(args, dataset="d", output="o") == [*args, *added]


def test_a_runner_without_a_limit_of_workers_has_a_warning() -> None:
    dataflow = "--runner=DataflowRunner"
    assert describe_runner([]) == "runner: FnApiRunner"
    assert "without --max_num_workers" in describe_runner([dataflow])
    assert describe_runner([dataflow, "--max_num_workers=9"]) == "runner: DataflowRunner"
