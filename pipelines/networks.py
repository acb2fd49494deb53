"""Keep Beam from waiting forever: for its download of Prism, or for local processes via a proxy."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pipelines.runners import kind_of, option_of
from shardwright.errors import BuildError, UsageError

_FETCH_SECONDS = 20.0
_NO_PROXY = "no_grpc_proxy"
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


def keep_proxies_out() -> None:
    """Make gRPC connect directly to the processes of this machine.

    Under `https_proxy` it would connect through the proxy and wait forever. Only gRPC reads
    `no_grpc_proxy`. It takes precedence over `no_proxy`, so the hosts of the latter are copied.
    """
    given = next(
        (os.environ[name] for name in (_NO_PROXY, "no_proxy", "NO_PROXY") if os.environ.get(name)),
        "",
    )
    hosts = [host for host in given.split(",") if host]
    os.environ[_NO_PROXY] = ",".join(
        [*hosts, *(host for host in _THIS_MACHINE if host not in hosts)]
    )


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
