"""Builds on an engine, each in a process with a time limit, and the digests of their shards.

The standard library only: an engine's environment may lack what makes images (engine_images.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tests import ROOT

LOCAL = ("--runner=FnApiRunner",)
# Small shards, and many.
OPTIONS = (
    *("--name", "engine", "--records-per-shard", "9"),
    *("--split", "train=0.7,test=0.3", "--seed", "5"),
)
_SHOWN_LOG = 8000
_SECONDS_TO_LEAVE = 3.0


@dataclass(frozen=True)
class Ended:
    """The end of a build.

    Attributes:
        code: Its exit code; a negative one is the signal that killed it.
        log: Output of it and its children.
        seconds: From start to end, imports included.
        left: Whether processes that it started ran on after it.
    """

    code: int
    log: str
    seconds: float
    left: bool


@dataclass
class EngineBuild:
    """A running build: the leader of a process group of its own."""

    process: subprocess.Popen[bytes]
    output: BinaryIO
    started: float
    temporary: tempfile.TemporaryDirectory[str]

    @property
    def log(self) -> str:
        size = os.fstat(self.output.fileno()).st_size
        return os.pread(self.output.fileno(), size, 0).decode(errors="replace")

    def wait(self, timeout: float) -> Ended:
        """Wait for its end, then kill the rest of its process group.

        Raises:
            AssertionError: It took too long; its log ends with the stacks of its threads.
        """
        try:
            code = self.process.wait(timeout)
            seconds = time.monotonic() - self.started
            return Ended(code, self.log, seconds, self._has_children_left())
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # Python's fault handler writes the stacks
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
            told = f"the build does not end within {timeout:g} s; its log:"
            raise AssertionError(f"{told}\n{self.log[-_SHOWN_LOG:]}") from None
        finally:
            self.kill()

    def _has_children_left(self) -> bool:
        deadline = time.monotonic() + _SECONDS_TO_LEAVE
        while time.monotonic() < deadline:
            try:
                os.killpg(self.process.pid, 0)
            except ProcessLookupError:
                return False
            time.sleep(0.02)
        return True

    def kill(self) -> None:
        """End the whole group, at once; a group that has ended is left alone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.output.flush()
        self.temporary.cleanup()


def start(
    runner_args: Sequence[str],
    *words: str | Path,
    env: Mapping[str, str] | None = None,
    command: str = "build",
) -> EngineBuild:
    """Start `shardwright build`, or another command; call `wait` or `kill` on the result.

    Args:
        runner_args: Options of the engine, such as `LOCAL`.
        words: INPUT, OUTPUT and options.
        env: More environment variables.
        command: Its name.
    """
    program = [sys.executable, "-m", "shardwright.inspect.cli", command]
    # No pipe, which a child that outlives the build would keep open; closed with the build.
    log = tempfile.TemporaryFile()  # noqa: SIM115
    # A killed build does not clean up.
    temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    settings = {"PYTHONFAULTHANDLER": "1", "TMPDIR": temporary.name, **(env or {})}
    process = subprocess.Popen(
        [*program, *map(str, words), *runner_args],
        cwd=ROOT,
        env=os.environ | settings,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    return EngineBuild(process, log, time.monotonic(), temporary)


def build(
    runner_args: Sequence[str],
    *words: str | Path,
    timeout: float = 240,
    code: int = 0,
    env: Mapping[str, str] | None = None,
    command: str = "build",
) -> Ended:
    """Build as `start` does, and wait for the end.

    Args:
        timeout: Seconds; then the build and its children are killed.
        code: The exit code it must end with.

    Raises:
        AssertionError: It ended with another exit code, took too long or left processes running;
            the message has its log.
    """
    ended = start(runner_args, *words, env=env, command=command).wait(timeout)
    told = f"exit code {ended.code}, not {code}; its log:\n{ended.log[-_SHOWN_LOG:]}"
    assert ended.code == code, told
    assert not ended.left, f"processes stayed behind; the log:\n{ended.log[-_SHOWN_LOG:]}"
    assert "Exception ignored" not in ended.log, ended.log[-_SHOWN_LOG:]
    return ended


def shard_digests(dataset: Path, *, index: bool = True) -> dict[str, str]:
    """Return the sha256 of every shard, by its name below the dataset's folder.

    Args:
        index: The sidecars too. They are equal where INPUT is the same files at the same paths.
    """
    paths = [path for path in dataset.glob("*.tfrecord-*") if not path.name.startswith(".")]
    paths += dataset.glob("index/*.parquet") if index else []
    return {
        str(path.relative_to(dataset)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(paths)
    }
