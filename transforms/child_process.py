"""Call a function in a child process, which it may kill or stop, with one number at a time.

A child is a new process that runs this file: a fork of a process with threads may hang, and
`multiprocessing` would import the main module of a script again.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from shardwright.errors import BuildError

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_OOM_SCORE = Path("/proc/self/oom_score_adj")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Death:
    """The end of a child.

    Attributes:
        detail: How it died: "takes more than 600 seconds (SIGALRM)".
    """

    detail: str


def call_in_child(task: Callable[[int], T], count: int, seconds: float) -> Iterator[T | Death]:
    """Yield `task(number)` of each number below `count`, in order, or how the child died of it.

    Args:
        task: Picklable. An exception of it is raised here.
        count: As told.
        seconds: Longest time of a call.

    Raises:
        BuildError: A child does not start.
    """
    child: _Child[T] | None = None
    try:
        for number in range(count):
            child = child or _Child(task, seconds)
            made: T | Death
            try:
                made = child.call(number)
            except (EOFError, ConnectionError):
                made, child = Death(child.death()), None
            yield made
    finally:
        if child is not None:
            child.close()


class _Child(Generic[T]):
    def __init__(self, task: Callable[[int], T], seconds: float) -> None:
        self._seconds = seconds
        self._connection, theirs = multiprocessing.Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            # A new interpreter, not a fork: threads of this process may hold locks.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
        )
        # Or this process would hold the other end open, and never see the child's death as an end
        # of file.
        theirs.close()
        try:
            self._connection.send((task, seconds))
            self._connection.recv()
        except (EOFError, ConnectionError) as error:
            raise BuildError(
                f"a process to try images alone does not start: it {self.death()}"
            ) from error

    def call(self, number: int) -> T:
        """Raise EOFError or ConnectionError if the child dies, and else what the task raises."""
        self._connection.send(number)
        made = self._connection.recv()
        if isinstance(made, BaseException):
            raise made
        return cast("T", made)

    def death(self) -> str:
        """Return how the child died."""
        self._connection.close()
        code = self._process.wait()
        if code == -signal.SIGALRM:
            return f"takes more than {self._seconds:g} seconds (SIGALRM)"
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        why = " (perhaps by a lack of memory)" if code == -signal.SIGKILL else ""
        return f"ends its process: {how}{why}"

    def close(self) -> None:
        self._connection.close()
        # Killed, because a child inside native code does not look at its connection.
        self._process.kill()
        self._process.wait()


def _serve(connection: Connection) -> None:
    """Call the task with the numbers that the parent sends, until it closes the connection."""
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the parent, which then ends this
        signal.signal(number, signal.SIG_IGN)
    _limit_memory()
    task, seconds = connection.recv()
    connection.send("ready")
    while True:
        number = connection.recv()
        # Without a handler, so that it also ends a loop in native code that holds the GIL.
        signal.setitimer(signal.ITIMER_REAL, seconds)
        made: Any
        try:
            made = task(number)
        except Exception as error:  # of a store: it ends the build
            made = error
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.send(made)


def _limit_memory() -> None:
    """Limit this process to half of the memory, and let the kernel end it before its parent."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no cgroup, or no limit in it
        available = min(available, int(_CGROUP_LIMIT.read_text()))
    # An image that needs more then ends this process alone, before the machine swaps.
    resource.setrlimit(resource.RLIMIT_DATA, (available // 2, available // 2))
    with suppress(OSError):  # not Linux
        _OOM_SCORE.write_text("1000")


if __name__ == "__main__":
    with suppress(EOFError, ConnectionError):
        _serve(Connection(int(sys.argv[1])))
