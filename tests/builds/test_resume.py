"""A build that was stopped resumes, and ends with the bytes of an undisturbed one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from shardwright.errors import NotADatasetError
from shardwright.format.manifest import read_manifest
from shardwright.storage.folder import Folder
from tests.support import build_helpers as builds
from tests.support.build_helpers import (
    COMMAND,
    RunningBuild,
    build,
    hashes_of,
    leftovers_of,
    stamps_of,
)

NUM_SHARDS = 12
OPTIONS = ("--name", "stopped", "--shard-count", NUM_SHARDS, "--encode", "png", "--threads", "1")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return builds.make_images(tmp_path_factory.mktemp("images") / "in", 96)


@pytest.fixture(scope="module")
def undisturbed(images: Path) -> dict[str, str]:
    assert build(images, images.parent / "undisturbed", *OPTIONS) == 0
    return hashes_of(images.parent / "undisturbed")


def sidecars_of(root: Path) -> list[Path]:
    return [path for path in (root / "index").glob("*.parquet") if path.name[0] != "."]


def stop_after(number: int, with_signal: int, images: Path, root: Path) -> RunningBuild:
    """Start a build, and stop it when it has finished `number` shards: it waits there."""
    waits = builds.before_shard(number)
    running = builds.start_build(root.with_suffix(".stderr"), images, root, *OPTIONS, waits=waits)
    builds.wait_for(lambda: len(sidecars_of(root)) >= number, running)
    running.signal(with_signal)
    running.wait()
    return running


def finished_files(root: Path) -> dict[str, tuple[int, int]]:
    """Return the stamps of every shard that has its sidecar, and of the sidecar."""
    positions = [path.stem.partition("-")[2] for path in sidecars_of(root)]
    return {
        name: stamp
        for name, stamp in stamps_of(root).items()
        if any(position in name for position in positions) and "tmp" not in name
    }


def _blank(path: Path) -> None:
    """Replace a file's bytes, and keep its length and its times."""
    status = path.stat()
    path.write_bytes(bytes(status.st_size))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.long
@pytest.mark.parametrize("number", [1, 8])
def test_a_killed_build_resumes_and_reads_no_finished_shard_again(
    images: Path,
    undisturbed: dict[str, str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    number: int,
) -> None:
    copied, root = Path(shutil.copytree(images, tmp_path / "in")), tmp_path / "out"
    assert stop_after(number, signal.SIGKILL, copied, root).wait() == -signal.SIGKILL
    message = r"unfinished build .* run the same `shardwright build` command again"
    with pytest.raises(NotADatasetError, match=message):
        read_manifest(Folder(str(root)))
    finished = finished_files(root)
    assert len(finished) == 2 * number
    done = builds.record_ids(root)
    assert len(done) == number * 96 // NUM_SHARDS
    first = next(root / name for name in finished if "tfrecord" in name)
    whole = first.read_bytes()
    for path in (first, *(copied / image_id for image_id in done)):
        _blank(path)
    before = finished_files(root)

    assert build(copied, root, *OPTIONS) == 0
    after = stamps_of(root)
    assert {name: after[name] for name in before} == before
    assert first.read_bytes() == bytes(len(whole))
    first.write_bytes(whole)
    assert hashes_of(root) == undisturbed
    assert leftovers_of(root) == []
    assert f"96 records in {NUM_SHARDS} shards" in capfd.readouterr().err


@pytest.mark.long_but_first
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_leaves_whole_files_and_reports_how_to_resume(
    images: Path, undisturbed: dict[str, str], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    root = tmp_path / "out"
    stopped = stop_after(3, number, images, root)
    assert stopped.wait() == code
    message = f"shardwright: stopped by {number.name}; run the same command again to resume"
    assert stopped.said.splitlines()[-1] == message
    assert "Traceback" not in stopped.said
    assert leftovers_of(root) == []
    assert not (root / "manifest.json").exists()
    assert hashes_of(root).items() <= undisturbed.items()


HANGS = """
import itertools, os, time
_images = itertools.count()
def hang(record):
    while next(_images) >= 40 and "HANGS" in os.environ:
        time.sleep(1)
    return record
"""


@pytest.mark.long
def test_the_command_resumes(
    images: Path,
    undisturbed: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is killed in its sixth shard, which it cannot end."""
    (tmp_path / "hanging.py").write_text(HANGS)
    monkeypatch.syspath_prepend(tmp_path)
    argv = (images, tmp_path / "out", *OPTIONS, "--transform", "hanging:hang")
    # A killed build leaves its folder in TMPDIR.
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(tmp_path), "HANGS": "1"}
    command = [str(COMMAND), "build", *map(str, argv)]
    with subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL) as process:
        builds.wait_for(lambda: len(sidecars_of(tmp_path / "out")) >= 2)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert build(*argv) == 0
    assert hashes_of(tmp_path / "out") == undisturbed


@dataclass(frozen=True)
class Table:
    """A table of ten images, whose build asks for no image before it writes the shards."""

    path: Path
    missing: Path
    away: Path
    options: tuple[str, ...] = ("--size-column", "bytes", "--records-per-shard", "2", "--name", "t")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table of which one image is missing, and a dataset `whole` from before."""
    images = [tmp_path / f"{number}.png" for number in range(10)]
    for number, path in enumerate(images):
        path.write_bytes(builds.png_of(number))
    rows = [{"path": path.name, "bytes": path.stat().st_size} for path in images]
    table = Table(builds.write_table(tmp_path / "t.jsonl", rows), images[3], tmp_path / "away")
    assert build(table.path, tmp_path / "whole", *table.options) == 0
    table.missing.rename(table.away)
    return table


@pytest.mark.long
def test_a_shard_whose_image_was_missing_is_written_again(table: Table, tmp_path: Path) -> None:
    root = tmp_path / "out"
    assert build(table.path, root, *table.options, "--max-rejects", "0") == 1
    assert not (root / "manifest.json").exists()
    before = stamps_of(root)
    table.away.rename(table.missing)
    assert build(table.path, root, *table.options) == 0
    assert hashes_of(root) == hashes_of(tmp_path / "whole")
    assert builds.reasons_of(root) == {}
    shards = {name: stamp for name, stamp in stamps_of(root).items() if "tfrecord" in name}
    assert sum(before.get(name) != stamp for name, stamp in shards.items()) == 1


@pytest.mark.long
def test_a_finished_dataset_keeps_its_rejects_until_it_is_overwritten(
    table: Table, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "out"
    assert build(table.path, root, *table.options) == 0
    table.away.rename(table.missing)
    assert build(table.path, root, *table.options) == 0
    assert builds.reasons_of(root) == {"3.png": "missing_file"}
    advice = "rejected files are tried again by the same command with --if-exists overwrite"
    assert capfd.readouterr().err.count(advice) == 2, "whoever builds is told each time"
    assert build(table.path, root, *table.options, "--if-exists", "overwrite") == 0
    assert hashes_of(root) == hashes_of(tmp_path / "whole")
    assert advice not in capfd.readouterr().err
