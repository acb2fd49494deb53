"""Choose the runner of a build and complete its arguments.

The local default is FnApiRunner, because Beam's DirectRunner would try to download Prism.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from shardwright.errors import UsageError
from shardwright.pipelines.runners.dataflow import dataflow_arguments
from shardwright.storage.addresses import is_remote

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
# Beam rejects all other names.
_REMOTE_RUNNERS = frozenset({"dataflowrunner", "flinkrunner", "portablerunner", "sparkrunner"})
# With these values of --flink_master, Beam's FlinkRunner starts a cluster in this process.
_FLINK_HERE = ("", "[local]", "[auto]")
_MODE, _WORKERS = "direct_running_mode", "direct_num_workers"
_PROCESSES = "multi_processing"
# Threads hand the interpreter's lock on for each file that they read, decode and encode, so that
# those of a process re-encode with about four cores, of 16 too.
_CORES_OF_PROCESS, _MOST_CORES_OF_ONE = 4, 8


def option_of(beam_args: Sequence[str], name: str) -> str:
    """Return the last value given for Beam's option `--name`, or "" if there is none."""
    value = ""
    for arg, following in zip(beam_args, [*beam_args[1:], ""], strict=False):
        if arg.startswith(f"--{name}="):
            # No `break`: the last one counts, as for argparse, by which Beam reads the same words.
            value = arg.partition("=")[2]
        elif arg == f"--{name}":
            value = following
    return value


def runner_of(beam_args: Sequence[str]) -> str:
    """Return the last runner given in the arguments, or the local default."""
    return option_of(beam_args, "runner") or LOCAL_RUNNER


def num_processes(beam_args: Sequence[str]) -> int:
    """Return the number of processes that share this machine's cores."""
    if not is_local(beam_args) or option_of(beam_args, _MODE) != _PROCESSES:
        return 1
    number = int(option_of(beam_args, _WORKERS) or 1)
    return max(1, number or os.cpu_count() or 1)  # for Beam, 0 is one for each core


def process_arguments(beam_args: Sequence[str], cores: int) -> list[str]:
    """Return the options for the processes that keep these cores busy; [] if one process does.

    What the user chose stays: also a runner, or `--direct_num_workers=1`.
    """
    chosen = any(option_of(beam_args, name) for name in ("runner", _MODE, _WORKERS))
    if chosen or cores <= _MOST_CORES_OF_ONE:
        return []
    return [f"--{_MODE}={_PROCESSES}", f"--{_WORKERS}={-(-cores // _CORES_OF_PROCESS)}"]


def describe_runner(beam_args: Sequence[str]) -> str:
    """Return the runner for the log, with a warning if Dataflow's workers have no limit."""
    unbounded = is_dataflow(beam_args) and not option_of(beam_args, "max_num_workers")
    advice = (
        "; without --max_num_workers it may start more workers than a store can serve "
        "(docs/runners.md)"
        if unbounded
        else ""
    )
    count = num_processes(beam_args)
    processes = f", {count} processes (--{_WORKERS}=1 for one)" if count > 1 else ""
    return f"runner: {runner_of(beam_args)}{processes}{advice}"


def is_local(beam_args: Sequence[str]) -> bool:
    """Return whether the runner's workers are on this machine."""
    runner = kind_of(beam_args)
    elsewhere = (
        option_of(beam_args, "job_endpoint")
        or option_of(beam_args, "flink_master") not in _FLINK_HERE
    )
    # An unknown name is not local, and Beam rejects it before anything runs.
    return runner in _LOCAL_RUNNERS or (runner == "flinkrunner" and not elsewhere)


def is_dataflow(beam_args: Sequence[str]) -> bool:
    return kind_of(beam_args) == "dataflowrunner"


def kind_of(beam_args: Sequence[str]) -> str:
    """Return the runner's class in lower case and without its module, as Beam compares it."""
    return runner_of(beam_args).rpartition(".")[2].lower()


def check_runner(
    beam_args: Sequence[str], places: Mapping[str, str | None], *, shared_filesystem: bool
) -> None:
    """Reject paths that the workers cannot reach, before anything is listed.

    Args:
        beam_args: Options for Beam.
        places: Name on the command line -> path or address that workers read or write, or None.
        shared_filesystem: Workers see local paths under the same names.

    Raises:
        UsageError: Workers cannot reach a path, or the runner has no job server.
    """
    if not _is_remote(beam_args):
        return
    runner = runner_of(beam_args)
    if kind_of(beam_args) == "portablerunner" and not option_of(beam_args, "job_endpoint"):
        raise UsageError(
            f"--runner {runner} needs a job server: give its address with --job_endpoint, such as "
            "localhost:8099"
        )
    if shared_filesystem and is_dataflow(beam_args):
        raise UsageError(
            "--shared-filesystem: workers of Dataflow have no shared file system; give gs:// or "
            "s3:// addresses"
        )
    for name, place in places.items():
        if place is not None and not is_remote(place) and not shared_filesystem:
            other = (
                ""
                if is_dataflow(beam_args)
                else ", or --shared-filesystem if all workers see this path under the same name"
            )
            raise UsageError(
                f"{name} {place} is on this machine, and the workers of {runner} may be on others: "
                f"give gs:// or s3://{other}"
            )


def check_code(beam_args: Sequence[str], path: str, *, shared_filesystem: bool) -> None:
    """Reject a file of the user's code that the workers do not have.

    Raises:
        UsageError: Workers may be on other machines.
    """
    if _is_remote(beam_args) and not shared_filesystem:
        raise UsageError(
            f"--transform {path} is a file on this machine, and the workers of "
            f"{runner_of(beam_args)} may be on others: put it into a package, stage that with "
            "--setup_file, and give package.module:function"
        )


def _is_remote(beam_args: Sequence[str]) -> bool:
    """Return whether workers may be on other machines."""
    return not is_local(beam_args) and kind_of(beam_args) in _REMOTE_RUNNERS


def beam_arguments(beam_args: Sequence[str], *, dataset: str, output: str) -> list[str]:
    """Return the arguments for Beam: the user's, completed for the runner.

    Args:
        beam_args: Options for Beam, as given.
        dataset: Name of the dataset.
        output: Path or address of OUTPUT.

    Raises:
        UsageError: A Dataflow job needs more options.
    """
    if is_dataflow(beam_args):
        return dataflow_arguments(beam_args, dataset=dataset, output=output)
    return (
        list(beam_args)
        if option_of(beam_args, "runner")
        else [*beam_args, f"--runner={LOCAL_RUNNER}"]
    )
