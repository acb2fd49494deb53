"""A build that one process would leave cores idle for runs in several."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from shardwright.pipelines.commands import build as command
from shardwright.pipelines.commands.build import in_processes, prepare_build
from shardwright.pipelines.options.build import parse_options
from shardwright.pipelines.runners.beam_options import num_processes
from tests.support.build_helpers import (
    build,
    hashes_of,
    leftovers_of,
    make_images,
    manifest_of,
    start_build,
    wait_for,
    write_table,
)

NUM_IMAGES = 24
OPTIONS = ("--name", "many", "--encode", "jpeg", "--records-per-shard", "5")


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Images that are many, on a machine of 12 cores."""
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    monkeypatch.setattr(command, "_MANY", NUM_IMAGES)
    return make_images(tmp_path / "in", NUM_IMAGES)


def processes_of(*words: str | Path) -> tuple[int, int]:
    """Return the number of processes of a build, and the threads that compute in each."""
    job = in_processes(prepare_build(parse_options([*map(str, words)])))
    return num_processes(job.options.beam_args), job.write_job.computing_threads


@pytest.mark.long
def test_the_same_bytes_as_in_one(
    images: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert build(images, tmp_path / "one", *OPTIONS, "--direct_num_workers=1") == 0
    assert "processes" not in capfd.readouterr().err
    assert build(images, tmp_path / "several", *OPTIONS) == 0
    assert "runner: FnApiRunner, 3 processes (--direct_num_workers=1 " in capfd.readouterr().err
    assert hashes_of(tmp_path / "several") == hashes_of(tmp_path / "one")
    settings = [manifest_of(tmp_path / name)["settings"] for name in ("one", "several")]
    assert settings[0] == settings[1]


def test_where_one_process_does(images: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert processes_of(images, out, *OPTIONS) == (3, 4)
    assert processes_of(images, out, "--check", "decode") == (3, 4)
    assert processes_of(images, out) == (1, 1)  # images are copied
    for option in ("--threads=12", "--runner=FnApiRunner", "--direct_num_workers=1"):
        assert processes_of(images, out, *OPTIONS, option) == (1, 12)
    assert processes_of(images / "cat", out, *OPTIONS) == (1, 12)  # a part of them
    rows = [{"path": str(path), "label": "x"} for path in images.rglob("*.png")]
    table = write_table(tmp_path / "t.jsonl", rows)
    assert processes_of(table, out, *OPTIONS) == (3, 4)


def test_an_append_adds_few_images_as_a_rule(images: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert build(images, out, *OPTIONS, "--direct_num_workers=1") == 0
    assert processes_of(images, out, *OPTIONS, "--if-exists", "append") == (1, 12)


@pytest.mark.long
def test_a_stop_does_not_wait_for_their_work(tmp_path: Path) -> None:
    """SIGTERM reaches the first process alone; an image of each of the others takes for ever."""
    images, out = make_images(tmp_path / "in", 12), tmp_path / "out"
    processes = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
    hanging = ("--transform", "tests.support.user_transforms:hang", "--records-per-shard", "6")
    running = start_build(tmp_path / "stderr", images, out, *hanging, *processes)
    wait_for(lambda: any(".attempt" in path for path in leftovers_of(out)), running)
    running.signal(signal.SIGTERM)
    assert running.wait() == 143
    assert "Traceback" not in running.said
    assert running.said.splitlines()[-1].startswith("shardwright: stopped by SIGTERM; run")
