"""The same input and options give the same bytes, whatever runs the build, wherever it is."""

from __future__ import annotations

import os
import random
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import build_helpers as builds
from tests.support.build_helpers import (
    bare_index_of,
    build,
    hashes_of,
    index_of,
    make_images,
    manifest_of,
)

SPLITS = ("--split", "train=0.7,test=0.3")
OPTIONS = ("--name", "same", "--records-per-shard", "7", *SPLITS, "--seed", "5")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("same") / "in", 60)


@pytest.fixture(scope="module")
def reference(images: Path) -> Path:
    """The dataset that every other build must be equal to."""
    assert build(images, images.parent / "reference", *OPTIONS) == 0
    return images.parent / "reference"


def assert_equal(root: Path, reference: Path) -> None:
    """Compare shards byte for byte, and indexes except for the images' places and times."""
    assert hashes_of(root) == hashes_of(reference)
    assert bare_index_of(root) == bare_index_of(reference)


def assert_equal_sidecars(root: Path, reference: Path) -> None:
    for path in sorted((reference / "index").iterdir()):
        assert (root / "index" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        ("--threads", "1"),
        ("--threads", "8"),
        ("--runner=FnApiRunner", "--direct_running_mode=multi_threading", "--direct_num_workers=2"),
    ],
    ids=" ".join,
)
def test_threads(images: Path, reference: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    assert build(images, tmp_path / "out", *OPTIONS, *options) == 0
    assert_equal(tmp_path / "out", reference)
    assert_equal_sidecars(tmp_path / "out", reference)


@pytest.mark.long
def test_processes_and_environment(images: Path, reference: Path, tmp_path: Path) -> None:
    """Build in another process, which has workers in yet others."""
    places = (str(images), str(tmp_path / "out"))
    runner = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
    command = [sys.executable, "-m", "shardwright.pipelines.commands.build", *places, *OPTIONS]
    changes = {"PYTHONHASHSEED": "4242", "TZ": "Asia/Tokyo", "LANG": "C", "LC_ALL": "C"}
    environment = {**os.environ, **changes}
    command += ["--runner=FnApiRunner", *runner]
    subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL)
    assert_equal(tmp_path / "out", reference)
    assert_equal_sidecars(tmp_path / "out", reference)


def test_place_times_and_listing_order(images: Path, reference: Path, tmp_path: Path) -> None:
    copy, output = tmp_path / "a copy, ü", tmp_path / "another output"
    files = [path.relative_to(images) for path in images.rglob("*.png")]
    random.Random(1).shuffle(files)
    for number, relative in enumerate(files):
        (copy / relative).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(images / relative, copy / relative)
        os.utime(copy / relative, (10**9 + number, 10**9 + number))
    assert build(copy, output, *OPTIONS) == 0
    assert_equal(output, reference)
    for name, table in index_of(output).items():
        there = index_of(reference)[name]
        assert not set(table["uri"].to_pylist()) & set(there["uri"].to_pylist())


@pytest.mark.long
def test_the_order_of_a_tables_rows_changes_no_byte(tmp_path: Path) -> None:
    rows = [
        {"path": f"{n}.png", "label": "abc"[n % 3], "age": n, "tags": ["x"] * (n % 3)}
        for n in range(40)
    ]
    for number in range(40):
        (tmp_path / f"{number}.png").write_bytes(builds.png_of(number))
    for name in ("a", "b"):
        table = builds.write_table(tmp_path / f"{name}.jsonl", rows)
        assert build(table, tmp_path / name, "--name", "t", "--records-per-shard", "9") == 0
        random.Random(2).shuffle(rows)
    assert_equal(tmp_path / "b", tmp_path / "a")


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    "options", [("--encode", "jpeg", "--resize", "6x6"), ("--feature-names", "model-garden")]
)
def test_threads_of_re_encoding(images: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    for threads in ("1", "8"):
        assert build(images, tmp_path / threads, *OPTIONS, *options, "--threads", threads) == 0
    assert_equal(tmp_path / "1", tmp_path / "8")


def test_another_seed_is_another_order(images: Path, reference: Path, tmp_path: Path) -> None:
    def ids_of(root: Path, split: str) -> set[str]:
        tables = [table for name, table in index_of(root).items() if name.startswith(split)]
        return {image_id for table in tables for image_id in table["id"].to_pylist()}

    assert build(images, tmp_path / "out", *OPTIONS, "--seed", "6") == 0
    assert set(hashes_of(tmp_path / "out").values()).isdisjoint(hashes_of(reference).values())
    for split in ("train", "test"):
        assert ids_of(tmp_path / "out", split) == ids_of(reference, split)


def test_no_shard_contains_its_place_time_or_author(images: Path, reference: Path) -> None:
    created = manifest_of(reference)["provenance"]["created"]
    traces = {str(images), str(images.parent), f"{images.name}/", socket.gethostname(), created}
    traces |= {created[:10], "reference", "shardwright", sys.prefix, os.getcwd()}
    data = b"".join(path.read_bytes() for path in builds.shards_of(reference))
    rest = data
    for path in images.rglob("*.png"):  # noise may hold any short word
        rest = rest.replace(path.read_bytes(), b"")
    assert len(rest) < len(data) / 2
    assert [trace for trace in traces if trace.encode() in rest] == []
    assert not re.search(rb"/tmp|20[0-9]{2}-[0-9]{2}", rest)
