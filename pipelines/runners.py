"""Which runner a build runs on, and what it is told. The local one is named outright: nothing is ever downloaded for it."""

from __future__ import annotations

from collections.abc import Sequence

LOCAL_RUNNER = "FnApiRunner"
_LOCAL_RUNNERS = frozenset({LOCAL_RUNNER.lower(), "directrunner", "bundlebaseddirectrunner", "prismrunner"})


def runner_of(beam_args: Sequence[str]) -> str:
    """The runner the arguments name, the last one if several do, or the local default."""
    runner = LOCAL_RUNNER
    for position, arg in enumerate(beam_args):
        if arg.startswith("--runner="):
            runner = arg.partition("=")[2]
        elif arg == "--runner" and position + 1 < len(beam_args):
            runner = beam_args[position + 1]
    return runner


def is_local(beam_args: Sequence[str]) -> bool:
    return runner_of(beam_args).rpartition(".")[2].lower() in _LOCAL_RUNNERS


def beam_arguments(beam_args: Sequence[str]) -> list[str]:
    """What Beam is given: the user's arguments, with the local runner named where none is."""
    named = any(arg == "--runner" or arg.startswith("--runner=") for arg in beam_args)
    return list(beam_args) if named else [*beam_args, f"--runner={LOCAL_RUNNER}"]
