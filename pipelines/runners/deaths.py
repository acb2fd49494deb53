"""Report that a process of a local build died, which a signal may end without a word."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from shardwright.errors import BuildError

_DIED = (
    "died, by a crash in native code, a lack of memory, or an image that takes too long: run the "
    "same command again to resume; images of the shards that were being written are then tried "
    "one by one, and those that crash are rejected"
)
_SHELL = "/bin/sh"
# Errors of Beam's launcher when a worker process is gone.
_LOST_WORKER = ("Channel closed prematurely", "Worker subprocess exited with return code")


@contextmanager
def reporting_death() -> Iterator[None]:
    """Let a shell, if there is one, report on stderr if this process dies in the block.

    `os._exit(0)` in the block, such as in a user's function, ends this process with 1.
    """
    with _exits_failed():
        if os.path.exists(_SHELL):
            with _shell_reports():
                yield
        else:
            yield


@contextmanager
def _exits_failed() -> Iterator[None]:
    end, pid = os._exit, os.getpid()

    def exit_failed(code: int) -> NoReturn:
        end(code or (os.getpid() == pid))  # a forked child may end well

    os._exit = exit_failed  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = end


@contextmanager
def _shell_reports() -> Iterator[None]:
    script = f"read -r ended || echo 'shardwright: error: the build {_DIED}' >&2"
    # A session of its own, so that Ctrl-C does not end it first.
    with subprocess.Popen(
        [_SHELL, "-c", script], stdin=subprocess.PIPE, start_new_session=True
    ) as shell:
        assert shell.stdin is not None, "it is a pipe"
        try:
            yield
        finally:
            with suppress(OSError):  # the shell was killed
                shell.stdin.write(b"ended\n")
                shell.stdin.flush()


def lost_worker(error: Exception) -> BuildError | None:
    """Return the error for a worker process that died, if that is what Beam reports."""
    if any(said in str(error) for said in _LOST_WORKER):
        return BuildError(f"a worker process {_DIED}")
    return None
