"""What keeps Beam from waiting for ever: for a download nobody asked for, and for its own processes through a proxy."""

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
    """Let gRPC reach the processes of this machine directly: under `https_proxy` it would ask the proxy for them, and wait for ever.

    Only gRPC reads `no_grpc_proxy`, before `no_proxy`, whose hosts are therefore taken over.
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
    """Give Beam's download of Prism, in the block, the time limit that it has not: behind a firewall that drops packets it would hang.

    Where DirectRunner gets no Prism, Beam goes on with its in-process runner, in this block.

    Args:
        beam_args: As given.

    Raises:
        UsageError: `--prism_location` names no file.
        BuildError: Prism was asked for by name, and cannot be fetched.
    """
    runner = kind_of(beam_args)
    if runner not in ("prismrunner", "directrunner", "switchingdirectrunner"):
        yield
        return
    location = option_of(beam_args, "prism_location")
    if location and "://" not in location and not os.path.exists(location):
        raise UsageError(f"--prism_location {location}: there is no such file")
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_FETCH_SECONDS)
    try:
        yield
    except (RuntimeError, TimeoutError) as error:
        if runner != "prismrunner" or not (
            isinstance(error, TimeoutError) or "fetch remote prism binary" in str(error)
        ):
            raise
        way_on = "give the program's path by --prism_location, or leave --runner out"
        raise BuildError(f"Prism could not be fetched ({error}): {way_on}") from error
    finally:
        socket.setdefaulttimeout(before)
