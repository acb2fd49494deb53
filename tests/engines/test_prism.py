"""Prism, the runner that Beam's DirectRunner picks: the same bytes as the local runner's, and errors that end a build in bounded time.

Prism is a process of its own; the Python of a build runs in the build's process (a LOOPBACK environment).
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from shardwright.cli import main
from tests.build_helpers import build as build_here
from tests.build_helpers import (
    index_of,
    make_images,
    png_of,
    reasons_of,
    record_ids,
    rejects_of,
    stamps_of,
    wait_for,
    write_table,
)
from tests.engines.engine_builds import OPTIONS, ROOT, EngineBuild, build, shard_digests, start
from tests.engines.engine_images import add_bad_images, make_engine_images
from tests.schema_tables import OWN_PYTHON

PRISM = ROOT / ".engines/prism/prism"
RUNNER = ("--runner=PrismRunner", f"--prism_location={PRISM}", "--environment_type=LOOPBACK")
SECONDS = 150  # of the slowest build here on a busy machine; a whole one takes 10
pytestmark = pytest.mark.skipif(not PRISM.exists(), reason="Prism is not built: make test-prism")

Input = tuple[Path, tuple[str | Path, ...]]


def encoded(folder: Path) -> Input:
    """Shards of a size that is known from a sample only."""
    return make_engine_images(folder / "in"), (
        "--encode",
        "jpeg",
        "--resize",
        "32x32",
        "--check",
        "decode",
    )


def with_rejects(folder: Path) -> Input:
    add_bad_images(make_engine_images(folder / "in"))
    return folder / "in", ("--check", "decode", "--max-reject-fraction", "0.5")


def flat_with_copies(folder: Path) -> Path:
    """30 pictures, the first four of them under two names."""
    make_images(folder, 30, names=("",))
    for number in range(4):
        shutil.copyfile(folder / f"{number:04d}.png", folder / f"copy-{number}.png")
    return folder


def labels_of(images: Path, note: str) -> Path:
    """A table for all but one of the images; `note` goes to every row."""
    names = sorted(path.name for path in images.iterdir())[:-1]
    rows = "".join(f"{name},{'abc'[number % 3]},{note}\n" for number, name in enumerate(names))
    (images.parent / "labels.csv").write_text("image,label,note\n" + rows)
    return images.parent / "labels.csv"


def joined(folder: Path) -> Input:
    images = flat_with_copies(folder / "in")
    options = ("--duplicates", "drop", "--stratify", "--max-reject-fraction", "0.5")
    return images, ("--labels", labels_of(images, "short"), *options)


def joined_by_key(folder: Path) -> Input:
    """A table that is too large for each worker to hold."""
    images = flat_with_copies(folder / "in")
    return images, ("--labels", labels_of(images, "x" * 600_000), "--max-reject-fraction", "0.5")


def with_vocabularies(folder: Path) -> Input:
    folder.mkdir()
    rows = [
        {"image": f"{n}.png", "label": "ab"[n % 2], "age": n, "note": f"word{n % 3} rare{n}"}
        for n in range(30)
    ]
    for number in range(30):
        (folder / f"{number}.png").write_bytes(png_of(number))
    (folder / "own.py").write_text(OWN_PYTHON)
    return write_table(folder / "t.jsonl", rows), ("--schema", folder / "own.py")


def transformed(folder: Path) -> Input:
    return make_engine_images(folder / "in", 30), ("--transform", "tests.user_transforms:tiles")


@pytest.mark.parametrize(
    "make", [encoded, with_rejects, joined, joined_by_key, with_vocabularies, transformed]
)
def test_the_same_bytes(tmp_path: Path, make: Callable[[Path], Input]) -> None:
    source, options = make(tmp_path / "made")
    assert build_here(source, tmp_path / "local", *OPTIONS, *options) == 0
    build(RUNNER, source, tmp_path / "prism", *OPTIONS, *options, timeout=SECONDS)
    assert shard_digests(tmp_path / "prism") == shard_digests(tmp_path / "local")
    assert rejects_of(tmp_path / "prism") == rejects_of(tmp_path / "local")


def test_images_as_they_are_and_then_nothing_to_do(
    engine_images: Path, local_dataset: Path, tmp_path: Path
) -> None:
    build(RUNNER, engine_images, tmp_path / "out", *OPTIONS, timeout=SECONDS)
    assert shard_digests(tmp_path / "out") == shard_digests(local_dataset)
    assert sum(table.num_rows for table in index_of(tmp_path / "out").values()) == 60
    before = stamps_of(tmp_path / "out")
    again = build(RUNNER, engine_images, tmp_path / "out", *OPTIONS, timeout=SECONDS)
    assert "up to date: all 8 shards were already written" in again.log
    assert stamps_of(tmp_path / "out") == before


def test_beams_own_writer(engine_images: Path, local_dataset: Path, tmp_path: Path) -> None:
    """Two jobs of one command: the plan, and the writing, whose order is Beam's."""
    options = ("--name", "engine", "--writer", "beam", "--shard-count", "2")
    build(RUNNER, engine_images, tmp_path / "out", *options, timeout=SECONDS)
    assert sorted(record_ids(tmp_path / "out")) == sorted(record_ids(local_dataset))
    assert main(["verify", str(tmp_path / "out")]) == 0


def test_a_bad_image_is_one_row(tmp_path: Path) -> None:
    wanted = add_bad_images(make_engine_images(tmp_path / "in", 30))
    build(
        RUNNER, tmp_path / "in", tmp_path / "out", "--max-reject-fraction", "0.5", timeout=SECONDS
    )
    assert reasons_of(tmp_path / "out") == wanted
    assert sum(table.num_rows for table in index_of(tmp_path / "out").values()) == 30


def test_too_many_rejects_end_the_build_with_the_reason(tmp_path: Path) -> None:
    add_bad_images(make_engine_images(tmp_path / "in", 30))
    ended = build(RUNNER, tmp_path / "in", tmp_path / "out", timeout=SECONDS, code=1)
    assert ended.log.count("shardwright: error: ") == 1
    assert (
        "of 32 inputs (3.12%) are rejects, more than --max-reject-fraction 0.01 allows (1 empty_file)"
        in ended.log
    )
    # Beam's worker prints the error's trace, its cause and itself; Prism, its log and Beam's client would each say it again.
    assert ended.log.count("shardwright.errors.TooManyRejectsError: ") == 2, ended.log


def prisms_of(running: EngineBuild) -> list[int]:
    """The processes of a build that are Prism and have not ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended, or is a zombie, or somebody else's
            if (
                os.getpgid(int(folder.name)) == running.process.pid
                and (folder / "exe").readlink() == PRISM
            ):
                found.append(int(folder.name))
    return found


def test_a_stopped_build_leaves_no_prism_and_goes_on(tmp_path: Path) -> None:
    make_engine_images(tmp_path / "in")
    options = (
        "--name",
        "engine",
        "--records-per-shard",
        "2",
        "--encode",
        "jpeg",
        "--resize",
        "1500x1500",
        "--threads",
        "1",
    )
    assert build_here(tmp_path / "in", tmp_path / "local", *options) == 0
    running = start(RUNNER, tmp_path / "in", tmp_path / "out", *options)
    try:
        wait_for(lambda: len(list((tmp_path / "out").glob("index/*.parquet"))) >= 3)
        assert len(prisms_of(running)) == 1
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(SECONDS)
        left = prisms_of(running)
        ended = running.wait(0)
    finally:
        running.kill()
    assert left == []
    assert (ended.code, "stopped by SIGTERM" in ended.log) == (128 + signal.SIGTERM, True), (
        ended.log
    )
    again = build(RUNNER, tmp_path / "in", tmp_path / "out", *options, timeout=SECONDS)
    assert "up to date" not in again.log
    assert shard_digests(tmp_path / "out") == shard_digests(tmp_path / "local")


def cached_prism(home: Path) -> dict[str, str]:
    """The environment of a user whose Beam has downloaded Prism before: the archive is in its cache, and nothing else can be fetched."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    name = f"apache_beam-v{metadata.version('apache-beam')}-prism-{platform.system().lower()}-{machine}"
    cache = home / ".apache_beam/cache/prism/bin"
    cache.mkdir(parents=True)
    with zipfile.ZipFile(cache / f"{name}.zip", "w") as archive:
        archive.write(PRISM, name)
    return {"HOME": str(home), **proxy_to_nowhere()}


def proxy_to_nowhere() -> dict[str, str]:
    return {
        "https_proxy": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
        "no_proxy": "",
        "no_grpc_proxy": "",
    }


def test_direct_runner_is_prism_where_beam_has_it(
    engine_images: Path, local_dataset: Path, tmp_path: Path
) -> None:
    direct = ("--runner=DirectRunner",)
    ended = build(
        direct,
        engine_images,
        tmp_path / "out",
        *OPTIONS,
        timeout=SECONDS,
        env=cached_prism(tmp_path / "home"),
    )
    assert "PrismRunner:pipeline done!" in ended.log, ended.log
    assert shard_digests(tmp_path / "out") == shard_digests(local_dataset)


def test_direct_runner_without_prism_goes_on(
    engine_images: Path, local_dataset: Path, tmp_path: Path
) -> None:
    offline = {"HOME": str(tmp_path), **proxy_to_nowhere()}
    ended = build(
        ("--runner=DirectRunner",),
        engine_images,
        tmp_path / "out",
        *OPTIONS,
        timeout=SECONDS,
        env=offline,
    )
    assert "Prism" not in ended.log
    assert shard_digests(tmp_path / "out") == shard_digests(local_dataset)


def test_worker_processes_are_reached_beside_a_proxy(
    engine_images: Path, local_dataset: Path, tmp_path: Path
) -> None:
    processes = (
        "--runner=FnApiRunner",
        "--direct_running_mode=multi_processing",
        "--direct_num_workers=2",
    )
    build(
        processes,
        engine_images,
        tmp_path / "out",
        *OPTIONS,
        timeout=SECONDS,
        env=proxy_to_nowhere(),
    )
    assert shard_digests(tmp_path / "out") == shard_digests(local_dataset)
