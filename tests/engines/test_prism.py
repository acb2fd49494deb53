"""Prism, the runner of Beam's DirectRunner: the local runner's bytes, and errors in bounded time.

Prism is a process; the Python of a build runs in the build's process (a LOOPBACK environment).
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

from shardwright.inspect.cli import main
from tests.engines.engine_builds import (
    OPTIONS,
    ROOT,
    Ended,
    EngineBuild,
    build,
    shard_digests,
    start,
)
from tests.engines.engine_images import add_bad_images, make_engine_images
from tests.engines.growing import check_growing
from tests.support.build_helpers import build as build_here
from tests.support.build_helpers import (
    make_images,
    png_of,
    reasons_of,
    record_ids,
    rejects_of,
    stamps_of,
    wait_for,
    write_table,
)
from tests.support.schema_tables import OWN_PYTHON

PRISM = ROOT / ".engines/prism/prism"
RUNNER = ("--runner=PrismRunner", f"--prism_location={PRISM}", "--environment_type=LOOPBACK")
SECONDS = 150  # of the slowest build here on a busy machine; a whole one takes 10
NO_PROXY = {"no_proxy": "", "no_grpc_proxy": ""}
NO_NETWORK = dict.fromkeys(("https_proxy", "http_proxy"), "http://127.0.0.1:9") | NO_PROXY
ENCODED = ("--encode", "jpeg", "--resize", "32x32", "--check", "decode")
HALF = ("--max-reject-fraction", "0.5")
pytestmark = pytest.mark.skipif(not PRISM.exists(), reason="Prism is not built: make test-prism")

Input = tuple[Path, tuple[str | Path, ...]]


def encoded(folder: Path) -> Input:
    """Shards of a size that is known from a sample only."""
    return make_engine_images(folder / "in"), ENCODED


def with_rejects(folder: Path) -> Input:
    add_bad_images(make_engine_images(folder / "in"))
    return folder / "in", ("--check", "decode", *HALF)


def flat_with_copies(folder: Path) -> Path:
    """30 pictures, the first four of them under two names."""
    make_images(folder, 30, names=("",))
    for number in range(4):
        shutil.copyfile(folder / f"{number:04d}.png", folder / f"copy-{number}.png")
    return folder


def labels_of(images: Path, note: str) -> Path:
    """Write a table for all but one of the images, with `note` in every row."""
    names = sorted(path.name for path in images.iterdir())[:-1]
    rows = "".join(f"{name},{'abc'[number % 3]},{note}\n" for number, name in enumerate(names))
    (images.parent / "labels.csv").write_text("image,label,note\n" + rows)
    return images.parent / "labels.csv"


def joined(folder: Path) -> Input:
    images = flat_with_copies(folder / "in")
    labels = ("--labels", labels_of(images, "short"))
    return images, (*labels, "--duplicates", "drop", "--stratify", *HALF)


def joined_by_key(folder: Path) -> Input:
    """Return a table that is too large for each worker to hold."""
    images = flat_with_copies(folder / "in")
    return images, ("--labels", labels_of(images, "x" * 600_000), *HALF)


def with_near_duplicates(folder: Path) -> Input:
    images = flat_with_copies(folder / "in")
    (images / "copy-0.png").write_bytes(png_of(0) + b" another length")
    return images, ("--near-duplicates", "drop", "--schema", "unlabeled", *HALF)


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
    return make_engine_images(folder / "in", 30), (
        "--transform",
        "tests.support.user_transforms:tiles",
    )


@pytest.mark.parametrize(
    "make",
    [
        *(encoded, with_rejects, joined, joined_by_key),
        *(with_near_duplicates, with_vocabularies, transformed),
    ],
)
def test_the_same_bytes(tmp_path: Path, make: Callable[[Path], Input]) -> None:
    source, options = make(tmp_path / "made")
    assert build_here(source, tmp_path / "local", *OPTIONS, *options) == 0
    build(RUNNER, source, tmp_path / "prism", *OPTIONS, *options, timeout=SECONDS)
    assert shard_digests(tmp_path / "prism") == shard_digests(tmp_path / "local")
    assert rejects_of(tmp_path / "prism") == rejects_of(tmp_path / "local")


def build_on_prism(source: Path, output: Path, *options: str, code: int = 0) -> Ended:
    return build(RUNNER, source, output, *options, timeout=SECONDS, code=code)


def test_images_as_they_are_and_then_nothing_to_do(
    engine_images: Path, local_dataset: Path, tmp_path: Path
) -> None:
    build_on_prism(engine_images, tmp_path / "out", *OPTIONS)
    assert shard_digests(tmp_path / "out") == shard_digests(local_dataset)
    assert len(record_ids(tmp_path / "out")) == 60
    before = stamps_of(tmp_path / "out")
    again = build_on_prism(engine_images, tmp_path / "out", *OPTIONS)
    assert "up to date: all 8 shards were already written" in again.log
    assert stamps_of(tmp_path / "out") == before


def test_a_dataset_grows_and_is_compacted(tmp_path: Path) -> None:
    check_growing(RUNNER, tmp_path, SECONDS)


def test_beams_own_writer(engine_images: Path, local_dataset: Path, tmp_path: Path) -> None:
    """Two jobs of one command: the plan, and the writing, whose order is Beam's."""
    options = ("--name", "engine", "--writer", "beam", "--shard-count", "2")
    build_on_prism(engine_images, tmp_path / "out", *options)
    assert sorted(record_ids(tmp_path / "out")) == sorted(record_ids(local_dataset))
    assert main(["verify", str(tmp_path / "out")]) == 0


def test_a_bad_image_is_one_row(tmp_path: Path) -> None:
    wanted = add_bad_images(make_engine_images(tmp_path / "in", 30))
    build_on_prism(tmp_path / "in", tmp_path / "out", *HALF)
    assert reasons_of(tmp_path / "out") == wanted
    assert len(record_ids(tmp_path / "out")) == 30


def test_too_many_rejects_end_the_build_with_the_reason(tmp_path: Path) -> None:
    add_bad_images(make_engine_images(tmp_path / "in", 30))
    strict = ("--max-reject-fraction", "0.01")
    log = build_on_prism(tmp_path / "in", tmp_path / "out", *strict, code=1).log
    assert log.count("shardwright: error: ") == 1
    told = "of 32 inputs (3.12%) are rejects, more than --max-reject-fraction 0.01 allows"
    assert f"{told} (1 empty_file)" in log
    assert f"; {tmp_path}/out/rejects/ lists them" in log.splitlines()[-1]
    # Beam's worker prints the error's trace: its cause and itself. Nobody else repeats it.
    assert log.count("shardwright.errors.TooManyRejectsError: ") == 2, log


def prisms_of(running: EngineBuild) -> list[int]:
    """Return the processes of a build that are Prism and have not ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        # It may have just ended, or be a zombie, or somebody else's.
        with contextlib.suppress(OSError):
            group, program = os.getpgid(int(folder.name)), (folder / "exe").readlink()
            if group == running.process.pid and program == PRISM:
                found.append(int(folder.name))
    return found


def test_a_stopped_build_leaves_no_prism_and_goes_on(tmp_path: Path) -> None:
    make_engine_images(tmp_path / "in")
    size = ("--name", "engine", "--records-per-shard", "2", "--threads", "1")
    options = (*size, "--encode", "jpeg", "--resize", "3000x3000")
    assert build_here(tmp_path / "in", tmp_path / "local", *options) == 0
    running = start(RUNNER, tmp_path / "in", tmp_path / "out", *options)
    try:
        wait_for(lambda: len(list((tmp_path / "out").glob("index/*.parquet"))) >= 1)
        assert len(prisms_of(running)) == 1
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(SECONDS)
        ended = running.wait(0)
        wait_for(lambda: not prisms_of(running))  # killed, and soon gone from the process table
    finally:
        running.kill()
    assert ended.code == 128 + signal.SIGTERM, ended.log
    assert "stopped by SIGTERM" in ended.log
    again = build_on_prism(tmp_path / "in", tmp_path / "out", *options)
    assert "up to date" not in again.log
    assert shard_digests(tmp_path / "out") == shard_digests(tmp_path / "local")


def cached_prism(home: Path) -> dict[str, str]:
    """Return the environment of a user whose Beam has a cached Prism and no network."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    version = metadata.version("apache-beam")
    name = f"apache_beam-v{version}-prism-{platform.system().lower()}-{machine}"
    cache = home / ".apache_beam/cache/prism/bin"
    cache.mkdir(parents=True)
    with zipfile.ZipFile(cache / f"{name}.zip", "w") as archive:
        archive.write(PRISM, name)
    return {"HOME": str(home), **NO_NETWORK}


@pytest.mark.parametrize("is_cached", [True, False])
def test_direct_runner_is_prism_where_beam_has_it(
    engine_images: Path, local_dataset: Path, tmp_path: Path, is_cached: bool
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    env = cached_prism(home) if is_cached else {"HOME": str(home), **NO_NETWORK}
    direct, output = ("--runner=DirectRunner",), tmp_path / "out"
    ended = build(direct, engine_images, output, *OPTIONS, timeout=SECONDS, env=env)
    assert ("PrismRunner:pipeline done!" in ended.log) == is_cached, ended.log
    assert ("Prism" in ended.log) == is_cached
    assert shard_digests(output) == shard_digests(local_dataset)


def test_worker_processes_are_reached_beside_a_proxy(
    engine_images: Path, local_dataset: Path, tmp_path: Path
) -> None:
    modes = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
    runner, output = ("--runner=FnApiRunner", *modes), tmp_path / "out"
    build(runner, engine_images, output, *OPTIONS, timeout=SECONDS, env=NO_NETWORK)
    assert shard_digests(output) == shard_digests(local_dataset)
