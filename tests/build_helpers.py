"""Whole builds for tests: small folders of images, builds in this or another process, and what a dataset holds."""

from __future__ import annotations

import hashlib
import io
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

CLASSES = ("bird", "cat", "Löwe")
COMMAND = Path(sys.executable).with_name("shardwright")


def png_of(index: int, *, side: int = 8) -> bytes:
    """A PNG of noise of its own for each index."""
    pixels = np.random.default_rng(index).integers(
        0, 256, (side, side + index % 5, 3), dtype=np.uint8
    )
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=0)
    return file.getvalue()


def make_images(root: Path, number: int, *, side: int = 8, names: Sequence[str] = CLASSES) -> Path:
    """`number` PNGs of noise in class folders; each has pixels of its own, which the number in its name decides."""
    for index in range(number):
        path = root / names[index % len(names)] / f"{index:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png_of(index, side=side))
    return root


def write_table(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def ids_below(root: Path) -> set[str]:
    """The ids that the files of a folder get."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def build(*argv: str | Path) -> int:
    """Build in this process; the exit code."""
    from pipelines import (
        build_dataset,
    )  # here: the fork server's children need it, the server's clients may not

    return build_dataset.main([str(arg) for arg in argv])


def shards_of(root: Path) -> list[Path]:
    return sorted(
        path
        for path in root.iterdir()
        if ".tfrecord-" in path.name and not path.name.startswith(".")
    )


def hashes_of(root: Path) -> dict[str, str]:
    """The sha256 of every shard, by file name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in shards_of(root)}


def index_of(root: Path) -> dict[str, pa.Table]:
    """Every shard's index rows, by file name."""
    return {path.name: pq.read_table(path) for path in sorted((root / "index").glob("*.parquet"))}


def bare_index_of(root: Path) -> dict[str, pa.Table]:
    """The same without what may differ between copies of INPUT: where an image was, and when it was changed."""
    return {
        name: table.drop_columns(["uri", "etag"]).replace_schema_metadata()
        for name, table in index_of(root).items()
    }


def record_ids(root: Path) -> list[str]:
    """The id of every record, in order, as the index has it."""
    return [image_id for table in index_of(root).values() for image_id in table["id"].to_pylist()]


def rejects_of(root: Path) -> list[dict[str, str]]:
    """Every reject row."""
    return [
        row
        for path in sorted((root / "rejects").glob("*.parquet"))
        for row in pq.read_table(path).to_pylist()
    ]


def reasons_of(root: Path) -> dict[str, str]:
    """id -> reason of every reject."""
    return {row["id"]: row["reason"] for row in rejects_of(root)}


def manifest_of(root: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((root / "manifest.json").read_text())
    return content


def records_per_shard(root: Path, split: str = "train") -> list[int]:
    return [shard["num_records"] for shard in manifest_of(root)["splits"][split]["shards"]]


def stamps_of(root: Path) -> dict[str, tuple[int, int]]:
    """(inode, time of change in ns) of every file below `root`: both stay only where a file was not written again."""
    found = {
        str(path.relative_to(root)): path.stat()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
    return {name: (status.st_ino, status.st_mtime_ns) for name, status in found.items()}


def leftovers_of(root: Path) -> list[str]:
    """Temporary files."""
    return sorted(str(path.relative_to(root)) for path in root.rglob(".*"))


@dataclass
class RunningBuild:
    """A build in a process of its own."""

    process: BaseProcess
    stderr: Path

    def wait(self) -> int:
        """Its exit code; a negative one is the signal that killed it."""
        self.process.join(60)
        assert self.process.exitcode is not None, "the build does not end"
        return self.process.exitcode

    def signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    @property
    def said(self) -> str:
        return self.stderr.read_text()


def start_build(stderr: Path, *argv: str | Path) -> RunningBuild:
    """Start a build in a new process, forked from a server that has imported Beam once: seconds less than a new Python."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pipelines.build_dataset"])
    process = context.Process(target=_run_build, args=(str(stderr), [str(arg) for arg in argv]))
    process.start()
    return RunningBuild(process, stderr)


def _run_build(stderr: str, argv: list[str]) -> None:
    from pipelines import build_dataset

    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), sys.stderr.fileno())
    sys.exit(build_dataset.main(argv))


def wait_for(condition: Callable[[], bool], running: RunningBuild | None = None) -> None:
    """Look every few milliseconds until the condition holds."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "this never came"
        assert running is None or running.process.is_alive(), running and running.said
        time.sleep(0.003)
