"""Prism, the process that runs Beam's DirectRunner: its download and its end."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shardwright.errors import BuildError, UsageError
from shardwright.pipelines.runners.beam_options import kind_of, option_of

_FETCH_SECONDS = 20.0
_RUNNER = "apache_beam.runners.portability.prism_runner"


@contextmanager
def fetching_prism(beam_args: Sequence[str]) -> Iterator[None]:
    """Give Beam's download of Prism a timeout in the block.

    Beam sets none, so behind a firewall that drops packets the download hangs. If DirectRunner
    cannot get Prism, Beam falls back to its in-process runner.

    Args:
        beam_args: Options for Beam.

    Raises:
        UsageError: The file of `--prism_location` does not exist.
        BuildError: The runner is PrismRunner, and Prism cannot be downloaded.
    """
    runner = kind_of(beam_args)
    if runner not in ("prismrunner", "directrunner", "switchingdirectrunner"):
        yield
        return
    location = option_of(beam_args, "prism_location")
    if location and "://" not in location and not os.path.exists(location):
        raise UsageError(f"--prism_location {location} does not exist")
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_FETCH_SECONDS)
    try:
        yield
    except (RuntimeError, TimeoutError) as error:
        if runner != "prismrunner" or not (
            isinstance(error, TimeoutError) or "fetch remote prism binary" in str(error)
        ):
            raise
        way_on = "give the path of its binary with --prism_location, or leave --runner out"
        raise BuildError(f"could not download Prism ({error}): {way_on}") from error
    finally:
        socket.setdefaulttimeout(before)


@contextmanager
def ending_prism() -> Iterator[None]:
    """Stop Prism after the block if Beam started it.

    Beam would stop it when this process exits. By then the run's temporary folder is gone, so Beam
    fails to remove its own in there, and leaves Prism running.
    """
    try:
        yield
    finally:
        if _RUNNER in sys.modules:
            _stop_prism()


def _stop_prism() -> None:
    from apache_beam.runners.portability.prism_runner import PrismRunner

    server = PrismRunner.shared_handle.acquire(lambda: None)  # None if there is none
    if server is not None:
        server.stop()
