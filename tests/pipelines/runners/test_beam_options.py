"""The runner of a build."""

from __future__ import annotations

import os

import pytest

from shardwright.pipelines.runners.beam_options import (
    LOCAL_RUNNER,
    beam_arguments,
    describe_runner,
    is_local,
    num_processes,
    process_arguments,
    runner_of,
)

PROCESSES = "--direct_running_mode=multi_processing"
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


@pytest.mark.parametrize(
    ("args", "number"),
    [
        ([], 1),
        (["--direct_num_workers=4"], 1),  # Beam's mode is `in_memory`
        (["--direct_running_mode=multi_threading", "--direct_num_workers=4"], 1),
        ([PROCESSES], 1),
        ([PROCESSES, "--direct_num_workers", "4"], 4),
        ([PROCESSES, "--direct_num_workers=-1"], 1),
        ([PROCESSES, "--direct_num_workers=0"], os.cpu_count()),
        (["--runner=DataflowRunner", PROCESSES, "--direct_num_workers=4"], 1),
    ],
)
def test_processes_of_this_machine(args: list[str], number: int) -> None:
    assert num_processes(args) == number
    assert (f", {number} processes" in describe_runner(args)) == (number > 1)


@pytest.mark.parametrize(("args", "cores", "number"), [
    ([], 8, 1),
    ([], 9, 3),
    ([], 16, 4),
    ([], 64, 16),
    (["--save_main_session"], 16, 4),
    (["--direct_num_workers=1"], 16, 1),
    (["--direct_running_mode=in_memory"], 16, 1),
    (["--runner=FnApiRunner"], 16, 1),
])  # fmt: skip
def test_processes_for_many_cores(args: list[str], cores: int, number: int) -> None:
    assert num_processes([*args, *process_arguments(args, cores)]) == number
