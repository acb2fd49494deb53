"""A build that was stopped in the middle goes on, and ends with the bytes of an undisturbed one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from shardwright.errors import NotADatasetError
from shardwright.manifest import read_manifest
from shardwright.storage import Folder
from tests.build_helpers import (
    COMMAND,
    build,
    hashes_of,
    leftovers_of,
    make_images,
    png_of,
    reasons_of,
    record_ids,
    shards_of,
    stamps_of,
    start_build,
    wait_for,
    write_table,
)

NUM_SHARDS = 12
SLOW = ("--name", "slow", "--shard-count", NUM_SHARDS, "--encode", "png", "--threads", "1")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images whose encoding takes a second or two."""
    return make_images(tmp_path_factory.mktemp("large") / "in", 96, side=160)


@pytest.fixture(scope="module")
def undisturbed(large: Path) -> dict[str, str]:
    assert build(large, large.parent / "undisturbed", *SLOW) == 0
    return hashes_of(large.parent / "undisturbed")


def sidecars_of(root: Path) -> list[Path]:
    return sorted(
        path for path in (root / "index").glob("*.parquet") if not path.name.startswith(".")
    )


def stop_after(
    number: int, with_signal: int, large: Path, root: Path, *options: str
) -> tuple[int, str]:
    """Start a build, stop it as soon as it has finished `number` shards; its exit code and what it said."""
    running = start_build(root.with_suffix(".stderr"), large, root, *SLOW, *options)
    wait_for(lambda: len(sidecars_of(root)) >= number, running)
    running.signal(with_signal)
    return running.wait(), running.said


def finished_files(root: Path) -> dict[str, tuple[int, int]]:
    """The stamps of every shard that has its sidecar, and of the sidecar."""
    stamps = stamps_of(root)
    positions = {path.stem.partition("-")[2] for path in sidecars_of(root)}
    return {
        name: stamp
        for name, stamp in stamps.items()
        if any(position in name for position in positions) and "tmp" not in name
    }


@pytest.mark.parametrize("number", [1, 8])
def test_a_killed_build_goes_on_where_it_stopped(
    large: Path,
    undisturbed: dict[str, str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    number: int,
) -> None:
    root = tmp_path / "out"
    code, _ = stop_after(number, signal.SIGKILL, large, root)
    assert code == -signal.SIGKILL
    assert not (root / "manifest.json").exists()
    with pytest.raises(
        NotADatasetError,
        match=r"unfinished build .* run the same `shardwright build` command again",
    ):
        read_manifest(Folder(str(root)))
    before = finished_files(root)
    assert 2 * number <= len(before) < 2 * NUM_SHARDS, "it was stopped in mid-build"

    assert build(large, root, *SLOW) == 0
    after = stamps_of(root)
    assert {name: after[name] for name in before} == before, "finished shards are not written again"
    assert hashes_of(root) == undisturbed
    assert leftovers_of(root) == []
    assert f"96 records in {NUM_SHARDS} shards" in capfd.readouterr().err


def _blank(path: Path) -> None:
    """Other bytes, as long and as old."""
    status = path.stat()
    path.write_bytes(bytes(status.st_size))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_finished_shards_and_their_images_are_not_read_again(
    large: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    images, root = Path(shutil.copytree(large, tmp_path / "in")), tmp_path / "out"
    stop_after(5, signal.SIGKILL, images, root)
    done = [images / image_id for image_id in record_ids(root)]
    assert len(done) >= 5 * 96 // NUM_SHARDS
    for path in done:
        _blank(path)
    first = next(root / name for name in finished_files(root) if "tfrecord" in name)
    whole = first.read_bytes()
    _blank(first)
    assert build(images, root, *SLOW) == 0
    assert first.read_bytes() == bytes(len(whole))
    first.write_bytes(whole)
    assert hashes_of(root) == undisturbed


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_leaves_whole_files_and_says_how_to_go_on(
    large: Path, undisturbed: dict[str, str], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    root = tmp_path / "out"
    found, said = stop_after(3, number, large, root)
    assert found == code
    assert (
        said.splitlines()[-1]
        == f"shardwright: stopped by {number.name}; run the same command again to go on"
    )
    assert "Traceback" not in said
    assert leftovers_of(root) == []
    assert not (root / "manifest.json").exists()
    for path in shards_of(root):
        assert hashes_of(root)[path.name] == undisturbed[path.name]


def test_the_command_itself_survives_a_kill(
    large: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    """The installed command, as a shell starts it."""
    argv = [COMMAND, "build", large, tmp_path / "out", *SLOW]
    with subprocess.Popen(list(map(str, argv)), stderr=subprocess.DEVNULL) as process:
        wait_for(lambda: len(sidecars_of(tmp_path / "out")) >= 2)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert build(large, tmp_path / "out", *SLOW) == 0
    assert hashes_of(tmp_path / "out") == undisturbed


def test_a_shard_that_lost_an_image_for_the_moment_is_written_again(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"{number}.png").write_bytes(png_of(number))
    rows = [
        {"path": f"{number}.png", "bytes": (tmp_path / f"{number}.png").stat().st_size}
        for number in range(10)
    ]
    table = write_table(tmp_path / "t.jsonl", rows)
    options = ("--size-column", "bytes", "--records-per-shard", "2", "--name", "t")
    assert build(table, tmp_path / "whole", *options) == 0
    (tmp_path / "3.png").rename(tmp_path / "away")
    assert build(table, tmp_path / "out", *options) == 1, (
        "one of ten is more than --max-reject-fraction"
    )
    assert not (tmp_path / "out/manifest.json").exists()
    before = stamps_of(tmp_path / "out")
    (tmp_path / "away").rename(tmp_path / "3.png")
    assert build(table, tmp_path / "out", *options) == 0
    assert hashes_of(tmp_path / "out") == hashes_of(tmp_path / "whole")
    assert reasons_of(tmp_path / "out") == {}
    rewritten = {
        name
        for name, stamp in stamps_of(tmp_path / "out").items()
        if before.get(name) != stamp and "tfrecord" in name
    }
    assert len(rewritten) == 1
