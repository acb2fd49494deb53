"""Which runner a build runs on."""

from __future__ import annotations

import pytest

from pipelines.runners import LOCAL_RUNNER, beam_arguments, describe_runner, is_local, runner_of

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
        (
            ["--runner=FlinkRunner"],
            "FlinkRunner",
            True,
        ),  # Beam then starts a cluster in this process
        (["--runner=FlinkRunner", "--flink_master", "[local]"], "FlinkRunner", True),
        (["--job_name", "x", "--runner"], LOCAL_RUNNER, True),
        (["--runner_class=Mine"], LOCAL_RUNNER, True),
    ],
)
def test_the_last_runner_named_counts(args: list[str], runner: str, local: bool) -> None:
    assert runner_of(args) == runner
    assert is_local(args) == local


def test_the_local_runner_is_named_outright_so_that_none_is_downloaded() -> None:
    assert beam_arguments(["--direct_num_workers=2"], dataset="d", output="o") == [
        "--direct_num_workers=2",
        "--runner=FnApiRunner",
    ]


@pytest.mark.parametrize("args", [["--runner=DirectRunner"], ["--x", "--runner", "FlinkRunner"]])
def test_a_runner_that_is_named_stays(args: list[str]) -> None:
    assert beam_arguments(args, dataset="d", output="o") == args


def test_workers_without_a_limit_are_told_of() -> None:
    assert describe_runner([]) == "runner: FnApiRunner"
    assert "without --max_num_workers" in describe_runner(["--runner=DataflowRunner"])
    assert (
        describe_runner(["--runner=DataflowRunner", "--max_num_workers=9"])
        == "runner: DataflowRunner"
    )
