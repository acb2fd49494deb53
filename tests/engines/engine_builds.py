"""Builds on an engine, each in a process of its own with a time limit, and what their datasets must have in common.

The standard library only: an engine's environment may lack all that makes images (engine_images.py).
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

ROOT = Path(__file__).resolve().parents[2]
LOCAL = ("--runner=FnApiRunner",)
OPTIONS = (
    "--name",
    "engine",
    "--records-per-shard",
    "9",
    "--split",
    "train=0.7,test=0.3",
    "--seed",
    "5",
)  # small shards, and many
_SHOWN_LOG = 8000


@dataclass(frozen=True)
class Ended:
    """How a build ended.

    Attributes:
        code: Its exit code; a negative one is the signal that killed it.
        log: All that it and its children wrote.
        seconds: From start to end, imports included.
    """

    code: int
    log: str
    seconds: float


@dataclass
class EngineBuild:
    """A running build: the leader of a process group of its own."""

    process: subprocess.Popen[bytes]
    output: BinaryIO
    started: float

    @property
    def log(self) -> str:
        return os.pread(self.output.fileno(), os.fstat(self.output.fileno()).st_size, 0).decode(
            errors="replace"
        )

    def wait(self, timeout: float) -> Ended:
        """Wait for its end; whatever is left of its process group is killed then, or when `timeout` seconds are over.

        Raises:
            AssertionError: It took too long; the message ends with its log, which ends with the stacks of its threads.
        """
        try:
            code = self.process.wait(timeout)
            return Ended(code, self.log, time.monotonic() - self.started)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # Python's fault handler writes the stacks
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
            raise AssertionError(
                f"the build does not end within {timeout:g} s; its log:\n{self.log[-_SHOWN_LOG:]}"
            ) from None
        finally:
            self.kill()

    def kill(self) -> None:
        """End the whole group, at once; a group that has ended is left alone."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.output.flush()


def start(
    runner_args: Sequence[str],
    source: str | Path,
    output: str | Path,
    *options: str | Path,
    env: Mapping[str, str] | None = None,
) -> EngineBuild:
    """Start `python -m pipelines.build_dataset`; call `wait` or `kill` on what this gives.

    Args:
        env: More environment variables.
    """
    command = [
        sys.executable,
        "-m",
        "pipelines.build_dataset",
        *map(str, (source, output, *options)),
        *runner_args,
    ]
    log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the build; no pipe, which a child that outlives the build would keep open
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1", **(env or {})}
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    return EngineBuild(process, log, time.monotonic())


def build(
    runner_args: Sequence[str],
    source: str | Path,
    output: str | Path,
    *options: str | Path,
    timeout: float = 240,
    code: int = 0,
    env: Mapping[str, str] | None = None,
) -> Ended:
    """Build on an engine and wait for it.

    Args:
        runner_args: What names the engine, such as `LOCAL`.
        source: INPUT.
        output: OUTPUT.
        options: More options of `shardwright build`.
        timeout: Seconds; then the build and its children are killed.
        code: The exit code it must end with.
        env: More environment variables.

    Raises:
        AssertionError: It ended with another exit code, or took too long; the message ends with its log.
    """
    ended = start(runner_args, source, output, *options, env=env).wait(timeout)
    assert ended.code == code, (
        f"exit code {ended.code}, not {code}; its log:\n{ended.log[-_SHOWN_LOG:]}"
    )
    return ended


def shard_digests(dataset: Path, *, index: bool = True) -> dict[str, str]:
    """The sha256 of every shard, by its name below the dataset's folder.

    Args:
        index: The sidecars (`index/*.parquet`) too. They are equal where INPUT is the same files at the same paths: they hold
            each image's address and etag.
    """
    paths = [
        path
        for path in dataset.iterdir()
        if ".tfrecord-" in path.name and not path.name.startswith(".")
    ]
    paths += (dataset / "index").glob("*.parquet") if index else []
    return {
        str(path.relative_to(dataset)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(paths)
    }
