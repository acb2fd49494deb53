"""Make the records of a shard one image at a time in a child process.

A shard is written like this after an attempt at it died: the image that kills or stops its child is
rejected, and the others get the same bytes as ever. The children are new processes that run this
file, because a fork of a process with threads may hang, and `multiprocessing` would import the main
module of a script again.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

from shardwright.errors import BuildError
from transforms.rejects import Reject, RejectReason
from transforms.write.examples import FramedRecords
from transforms.write.image_chunks import Chunk
from transforms.write.shard_chunks import make_chunks
from transforms.write.write_job import WriteJob

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_OOM_SCORE = Path("/proc/self/oom_score_adj")


def make_alone(references: pa.RecordBatch, job: WriteJob) -> Iterator[Chunk]:
    """Yield a chunk per row, in order. A row whose child dies is rejected as `crashed`."""
    child = None
    try:
        for row in range(references.num_rows):
            child = child or _Child(references, job)
            try:
                chunk = child.make(row)
            except (EOFError, ConnectionError):
                detail, child = child.death(job.image_seconds), None
                image_id, uri = (references.column(name)[row].as_py() for name in ("id", "uri"))
                chunk = _rejected(Reject(image_id, uri, RejectReason.CRASHED, detail))
            yield chunk
    finally:
        if child is not None:
            child.close()


def _rejected(reject: Reject) -> Chunk:
    return Chunk(FramedRecords([], [], [], [], 0), [], [], [], [], [], [reject], Counter())


class _Child:
    """A child process that makes records of a shard."""

    def __init__(self, references: pa.RecordBatch, job: WriteJob) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        try:
            self._connection.send((references, job))
            self._connection.recv()
        except (EOFError, ConnectionError) as error:
            raise BuildError(
                f"a process to try images alone does not start: {self.death(job.image_seconds)}"
            ) from error

    def make(self, row: int) -> Chunk:
        """Return the chunk of one row.

        Raises:
            EOFError, ConnectionError: The child died.
            ShardwrightError: As `make_chunk`.
        """
        self._connection.send(row)
        made = self._connection.recv()
        if isinstance(made, BaseException):
            raise made
        chunk: Chunk = made
        return replace(chunk, rows=[row] * len(chunk.rows))

    def death(self, seconds: float) -> str:
        """Return how the child died."""
        self._connection.close()
        code = self._process.wait()
        if code == -signal.SIGALRM:
            return f"decoding or transforming it takes more than {seconds:g} seconds (SIGALRM)"
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        why = " (perhaps by a lack of memory)" if code == -signal.SIGKILL else ""
        return f"decoding or transforming it ends its process: {how}{why}"

    def close(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()


def _serve(connection: Connection) -> None:
    """Make the chunks of the rows that the parent asks for, until it closes the connection."""
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the parent, which then ends this
        signal.signal(number, signal.SIG_IGN)
    _limit_memory()
    references, job = connection.recv()
    connection.send("ready")
    while True:
        row = connection.recv()
        # Without a handler, so that it also ends a loop in native code that holds the GIL.
        signal.setitimer(signal.ITIMER_REAL, job.image_seconds)
        made: Chunk | Exception
        try:
            made = next(make_chunks(references.slice(row, 1), job))
        except Exception as error:  # of a store: it ends the build
            made = error
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.send(made)


def _limit_memory() -> None:
    """Limit this process to half of the memory, and let the kernel end it before its parent."""
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no cgroup, or no limit in it
        available = min(available, int(_CGROUP_LIMIT.read_text()))
    resource.setrlimit(resource.RLIMIT_DATA, (available // 2, available // 2))
    with suppress(OSError):  # not Linux
        _OOM_SCORE.write_text("1000")


if __name__ == "__main__":
    with suppress(EOFError, ConnectionError):
        _serve(Connection(int(sys.argv[1])))
