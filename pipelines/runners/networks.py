"""Keep Beam from waiting forever for processes of this machine via a proxy."""

from __future__ import annotations

import os

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
