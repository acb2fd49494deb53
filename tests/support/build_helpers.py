"""Whole builds for tests: folders of images, builds in this or another process, their outputs."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tests.support.folder_patches import wrap_method

CLASSES = ("bird", "cat", "Löwe")
COMMAND = Path(sys.executable).with_name("shardwright")
_HANGS_SECONDS = 240  # no claim of speed: what takes longer does not end


def png_of(index: int, *, side: int = 8) -> bytes:
    """Return a PNG of noise, another for each index."""
    shape = (side, side + index % 5, 3)
    pixels = np.random.default_rng(index).integers(0, 256, shape, dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=0)
    return file.getvalue()


def make_images(root: Path, number: int, *, side: int = 8, names: Sequence[str] = CLASSES) -> Path:
    """Write `number` PNGs in class folders; the number in a file's name decides its pixels."""
    for index in range(number):
        path = root / names[index % len(names)] / f"{index:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png_of(index, side=side))
    return root


def write_table(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def files_below(root: Path) -> dict[str, Path]:
    """Return every file by its path from `root`."""
    paths = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path for path in paths}


def is_report(name: str) -> bool:
    """Return whether a file is a page for people, which no manifest names and `verify` skips."""
    return name.rpartition("/")[2] == "report.html"


def ids_below(root: Path) -> set[str]:
    """Return the ids that the files of a folder get."""
    return set(files_below(root))


def build(*argv: str | Path) -> int:
    """Build in this process; return the exit code."""
    # Not at the top: the fork server's children need it, the server's clients may not.
    from shardwright.pipelines.commands import build as build_command

    return build_command.main([str(arg) for arg in argv])


def build_without_beam(*argv: str | Path) -> int:
    """Build as `build` does, but without a graph, which takes ten times as long as a small build.

    For tests of what is read and written: the functions are the same.
    """
    from shardwright.pipelines.commands.append import append_version
    from shardwright.pipelines.commands.build import prepare_build
    from shardwright.pipelines.commands.results import run_build
    from shardwright.pipelines.job.build import BuildJob
    from shardwright.pipelines.local.build import build_here
    from shardwright.pipelines.options.build import parse_options

    def run(job: BuildJob) -> None:
        if job.known is None:
            build_here(job)
        else:
            append_version(job, here=True)

    return run_build(run, lambda: prepare_build(parse_options([str(arg) for arg in argv])))


def shards_of(root: Path) -> list[Path]:
    return sorted(path for path in root.glob("[!.]*") if ".tfrecord-" in path.name)


def hashes_of(root: Path) -> dict[str, str]:
    """Return the SHA-256 of every shard, by file name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in shards_of(root)}


def index_of(root: Path) -> dict[str, pa.Table]:
    """Return every shard's index rows, by file name."""
    return {path.name: pq.read_table(path) for path in sorted((root / "index").glob("*.parquet"))}


def bare_index_of(root: Path) -> dict[str, pa.Table]:
    """Return the index without the columns that depend on the place and the time of INPUT."""
    return {
        name: table.drop_columns(["uri", "etag"]).replace_schema_metadata()
        for name, table in index_of(root).items()
    }


def record_ids(root: Path) -> list[str]:
    """Return the id of every record, in the order of the index."""
    return [image_id for table in index_of(root).values() for image_id in table["id"].to_pylist()]


def rejects_of(root: Path) -> list[dict[str, str]]:
    """Return every reject row."""
    paths = sorted((root / "rejects").glob("*.parquet"))
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def reasons_of(root: Path) -> dict[str, str]:
    """Return id -> reason of every reject."""
    return {row["id"]: row["reason"] for row in rejects_of(root)}


def manifest_of(root: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((root / "manifest.json").read_text())
    return content


def records_per_shard(root: Path, split: str = "train") -> list[int]:
    return [shard["num_records"] for shard in manifest_of(root)["splits"][split]["shards"]]


def stamps_of(root: Path) -> dict[str, tuple[int, int]]:
    """Return (inode, change time in ns) of every file: writing a file again changes one."""
    found = {name: path.stat() for name, path in files_below(root).items()}
    return {name: (status.st_ino, status.st_mtime_ns) for name, status in found.items()}


def leftovers_of(root: Path) -> list[str]:
    """Return the temporary files."""
    return sorted(str(path.relative_to(root)) for path in root.rglob(".*"))


@dataclass
class RunningBuild:
    """A build in its own process."""

    process: BaseProcess
    stderr: Path

    def wait(self) -> int:
        """Return its exit code; a negative one is the signal that killed it."""
        self.process.join(_HANGS_SECONDS)
        assert self.process.exitcode is not None, "the build does not end"
        return self.process.exitcode

    def signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def go_on(self) -> None:
        """Let a build go on that waits before a file."""
        _permit(self.stderr).touch()

    @property
    def said(self) -> str:
        return self.stderr.read_text()


@dataclass(frozen=True)
class Before:
    """A moment of a build at which it waits: before it begins a file of OUTPUT.

    Files with this text in their names are counted. Before a shard those before it are finished,
    but for the last one, which a thread may be finishing.

    Attributes:
        name: Part of the file's name, such as "manifest.json".
        number: Number of such files that are begun before it.
    """

    name: str
    number: int = 0

    def wait(self, permit: Path) -> None:
        """Let this process wait there for a permit, or for a signal that stops it."""
        begun = itertools.count()

        def after_wait(write: Callable[..., Any]) -> Callable[..., Any]:
            def run(root: Any, name: str, *args: Any, **options: Any) -> Any:
                if self.name in name and next(begun) >= self.number:
                    while not (permit.exists() or _is_stopped()):
                        time.sleep(0.003)
                return write(root, name, *args, **options)

            return run

        for name in ("open_sink", "write_bytes", "create_bytes"):
            wrap_method(name, after_wait)


def before_shard(number: int) -> Before:
    """Return the moment before a shard, after `number` others."""
    return Before(".tfrecord-", number)


def _is_stopped() -> bool:
    """Return whether a first signal has come: after it the second one kills."""
    stops = (signal.SIGINT, signal.SIGTERM)
    return any(signal.getsignal(number) is signal.SIG_DFL for number in stops)


def _permit(stderr: Path) -> Path:
    return stderr.with_name(f"{stderr.name}.goes-on")


def forks() -> multiprocessing.context.ForkServerContext:
    """Return processes forked from a server that has imported Beam: saves 2 s each."""
    context = multiprocessing.get_context("forkserver")
    pipelines = [f"shardwright.pipelines.{name}" for name in ("commands.build", "job.graph")]
    support = ["planned_builds", "cruel_service", "quick_beam"]
    context.set_forkserver_preload([*pipelines, *(f"tests.support.{name}" for name in support)])
    return context


def start_build(
    stderr: Path, *argv: str | Path, waits: Before | None = None, command: str = "build"
) -> RunningBuild:
    """Start a build in a new process.

    Args:
        stderr: The file of its output.
        waits: Where it waits, until it is killed, stopped or let go on.
        command: Another command that writes to a dataset, such as "erase".
    """
    words = [str(arg) for arg in argv]
    process = forks().Process(target=_run_command, args=(command, str(stderr), words, waits))
    process.start()
    return RunningBuild(process, stderr)


def _run_command(command: str, stderr: str, argv: list[str], waits: Before | None) -> None:
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), sys.stderr.fileno())
    if waits:
        waits.wait(_permit(Path(stderr)))
    # A build that is killed leaves its temporary folder.
    tempfile.tempdir = os.environ["TMPDIR"] = str(Path(stderr).parent)
    sys.exit(import_module(f"shardwright.pipelines.commands.{command}").main(argv))


def wait_for(condition: Callable[[], bool], running: RunningBuild | None = None) -> None:
    """Poll every few milliseconds until the condition holds."""
    deadline = time.monotonic() + _HANGS_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "timed out waiting"
        assert running is None or running.process.is_alive(), running and running.said
        time.sleep(0.003)
