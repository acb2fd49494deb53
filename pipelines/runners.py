"""Which runner a build runs on, and what it is told. The local one is named outright: nothing is ever downloaded for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipelines.dataflow import dataflow_arguments
from shardwright.errors import UsageError
from shardwright.storage import is_remote

LOCAL_RUNNER = "FnApiRunner"
_LOCAL_RUNNERS = frozenset(
    {
        LOCAL_RUNNER.lower(),
        "directrunner",
        "switchingdirectrunner",
        "bundlebaseddirectrunner",
        "prismrunner",
    }
)
_REMOTE_RUNNERS = frozenset(
    {"dataflowrunner", "flinkrunner", "portablerunner", "sparkrunner"}
)  # others are for Beam to refuse
# Beam's FlinkRunner starts a cluster of its own in this process where it is told of none.
_FLINK_HERE = ("", "[local]", "[auto]")


def option_of(beam_args: Sequence[str], name: str) -> str:
    """The value of Beam's option `--name`, the last one if it is given several times, "" if it is not."""
    value = ""
    for arg, following in zip(beam_args, [*beam_args[1:], ""], strict=False):
        if arg.startswith(f"--{name}="):
            value = arg.partition("=")[2]
        elif arg == f"--{name}":
            value = following
    return value


def runner_of(beam_args: Sequence[str]) -> str:
    """The runner the arguments name, the last one if several do, or the local default."""
    return option_of(beam_args, "runner") or LOCAL_RUNNER


def describe_runner(beam_args: Sequence[str]) -> str:
    """The runner, for the log, and what is easily forgotten about it."""
    unbounded = is_dataflow(beam_args) and not option_of(beam_args, "max_num_workers")
    advice = (
        "; without --max_num_workers it may start more workers than a store can serve (docs/runners.md)"
        if unbounded
        else ""
    )
    return f"runner: {runner_of(beam_args)}{advice}"


def is_local(beam_args: Sequence[str]) -> bool:
    """Whether the runner's workers are on this machine, whatever it is told."""
    runner = kind_of(beam_args)
    elsewhere = (
        option_of(beam_args, "job_endpoint")
        or option_of(beam_args, "flink_master") not in _FLINK_HERE
    )
    return runner in _LOCAL_RUNNERS or (runner == "flinkrunner" and not elsewhere)


def is_dataflow(beam_args: Sequence[str]) -> bool:
    return kind_of(beam_args) == "dataflowrunner"


def kind_of(beam_args: Sequence[str]) -> str:
    """The runner's class, in lower case and without its module, as Beam compares it."""
    return runner_of(beam_args).rpartition(".")[2].lower()


def check_runner(
    beam_args: Sequence[str], places: Mapping[str, str | None], *, shared_filesystem: bool
) -> None:
    """Refuse places that the workers cannot reach, before anything is listed.

    Args:
        beam_args: Options for Beam.
        places: What workers read and write, by what the command line calls it.
        shared_filesystem: Workers see local paths under the same names.

    Raises:
        UsageError: The first such place, and the ways on; or a runner that nobody could reach.
    """
    if is_local(beam_args) or kind_of(beam_args) not in _REMOTE_RUNNERS:
        return
    runner = runner_of(beam_args)
    if kind_of(beam_args) == "portablerunner" and not option_of(beam_args, "job_endpoint"):
        raise UsageError(
            f"--runner {runner} submits to a job server: give its address by --job_endpoint, such as localhost:8099"
        )
    if shared_filesystem and is_dataflow(beam_args):
        raise UsageError(
            "--shared-filesystem: workers of Dataflow share no file system with anybody; give gs:// or s3:// places"
        )
    for name, place in places.items():
        if place is not None and not is_remote(place) and not shared_filesystem:
            other = (
                ""
                if is_dataflow(beam_args)
                else ", or --shared-filesystem where all workers see this path under the same name"
            )
            raise UsageError(
                f"{name} {place} is on this machine, and the workers of {runner} may be on others: give gs:// or s3://{other}"
            )


def beam_arguments(beam_args: Sequence[str], *, dataset: str, output: str) -> list[str]:
    """What Beam is given: the user's arguments, and what they leave open.

    Args:
        beam_args: As given.
        dataset: The dataset's name.
        output: Where it is built.

    Raises:
        UsageError: A Dataflow job would lack something.
    """
    if is_dataflow(beam_args):
        return dataflow_arguments(beam_args, dataset=dataset, output=output)
    return (
        list(beam_args)
        if option_of(beam_args, "runner")
        else [*beam_args, f"--runner={LOCAL_RUNNER}"]
    )
