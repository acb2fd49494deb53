"""The same input and options give the same bytes: whatever runs the build, wherever it is, in whatever order files are listed."""

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

from tests.build_helpers import (
    bare_index_of,
    build,
    hashes_of,
    index_of,
    make_images,
    manifest_of,
    png_of,
    shards_of,
    write_table,
)

OPTIONS = (
    "--name",
    "same",
    "--records-per-shard",
    "7",
    "--split",
    "train=0.7,test=0.3",
    "--seed",
    "5",
)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("same") / "in", 60)


@pytest.fixture(scope="module")
def reference(images: Path) -> Path:
    """The dataset that every other build must be equal to."""
    assert build(images, images.parent / "reference", *OPTIONS) == 0
    return images.parent / "reference"


def assert_equal(root: Path, reference: Path) -> None:
    """Equal shards, byte for byte, and equal indexes but for where images were and when they changed."""
    assert hashes_of(root) == hashes_of(reference)
    assert bare_index_of(root) == bare_index_of(reference)


@pytest.mark.parametrize(
    "options",
    [
        ("--threads", "1"),
        ("--threads", "2"),
        ("--threads", "8"),
        ("--runner=FnApiRunner", "--direct_running_mode=multi_threading", "--direct_num_workers=2"),
        (
            "--runner=FnApiRunner",
            "--direct_running_mode=multi_processing",
            "--direct_num_workers=2",
        ),
    ],
    ids=" ".join,
)
def test_workers_decide_nothing(
    images: Path, reference: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    assert build(images, tmp_path / "out", *OPTIONS, *options) == 0
    assert_equal(tmp_path / "out", reference)
    assert index_of(tmp_path / "out") == index_of(reference)


def test_the_whole_sidecar_is_the_same_for_the_same_files(
    images: Path, reference: Path, tmp_path: Path
) -> None:
    assert build(images, tmp_path / "out", *OPTIONS, "--threads", "1") == 0
    for path in sorted((reference / "index").iterdir()):
        assert (tmp_path / "out/index" / path.name).read_bytes() == path.read_bytes()


def test_a_copy_elsewhere_of_another_time_and_another_listing_order(
    images: Path, reference: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "a copy, ü"
    files = [path.relative_to(images) for path in images.rglob("*.png")]
    random.Random(1).shuffle(files)
    for number, relative in enumerate(files):
        (copy / relative).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(images / relative, copy / relative)
        os.utime(copy / relative, (10**9 + number, 10**9 + number))
    listed = [str(path.relative_to(copy)) for path in copy.rglob("*.png")]
    assert build(copy, tmp_path / "another output", *OPTIONS) == 0
    assert_equal(tmp_path / "another output", reference)
    assert len(listed) == 60
    for name, table in index_of(tmp_path / "another output").items():
        there = index_of(reference)[name]
        assert not set(table["uri"].to_pylist()) & set(there["uri"].to_pylist())


def test_another_hash_seed_and_another_process(
    images: Path, reference: Path, tmp_path: Path
) -> None:
    command = [
        sys.executable,
        "-m",
        "pipelines.build_dataset",
        str(images),
        str(tmp_path / "out"),
        *OPTIONS,
    ]
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "4242",
        "TZ": "Asia/Tokyo",
        "LANG": "C",
        "LC_ALL": "C",
    }
    subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL)
    assert_equal(tmp_path / "out", reference)


def test_the_order_of_a_tables_rows_decides_nothing(tmp_path: Path) -> None:
    rows = [
        {
            "path": f"{number}.png",
            "label": "abc"[number % 3],
            "age": number,
            "tags": ["x"] * (number % 3),
        }
        for number in range(40)
    ]
    for number in range(40):
        (tmp_path / f"{number}.png").write_bytes(png_of(number))
    options = ("--name", "t", "--records-per-shard", "9")
    assert build(write_table(tmp_path / "a.jsonl", rows), tmp_path / "a", *options) == 0
    random.Random(2).shuffle(rows)
    assert build(write_table(tmp_path / "b.jsonl", rows), tmp_path / "b", *options) == 0
    assert_equal(tmp_path / "b", tmp_path / "a")


@pytest.mark.parametrize(
    "options", [("--encode", "jpeg", "--resize", "6x6"), ("--feature-names", "model-garden")]
)
def test_images_encoded_anew_are_the_same_too(
    images: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    for name, threads in (("a", "1"), ("b", "8")):
        assert build(images, tmp_path / name, *OPTIONS, *options, "--threads", threads) == 0
    assert_equal(tmp_path / "b", tmp_path / "a")


def test_another_seed_is_another_order_of_the_same_records(
    images: Path, reference: Path, tmp_path: Path
) -> None:
    assert build(images, tmp_path / "out", *OPTIONS, "--seed", "6") == 0
    assert set(hashes_of(tmp_path / "out").values()).isdisjoint(hashes_of(reference).values())
    for split in ("train", "test"):
        ids = [
            {
                image_id
                for name, table in index_of(root).items()
                if name.startswith(split)
                for image_id in table["id"].to_pylist()
            }
            for root in (tmp_path / "out", reference)
        ]
        assert ids[0] == ids[1], "splits do not depend on the seed of the shuffle"


def test_no_shard_knows_where_when_or_by_whom_it_was_written(images: Path, reference: Path) -> None:
    created = manifest_of(reference)["provenance"]["created"]
    traces = {
        str(images),
        str(images.parent),
        images.name + "/",
        socket.gethostname(),
        created,
        created[:10],
        "reference",
        "shardwright",
    }
    traces |= {sys.prefix, os.getcwd()}
    data = b"".join(path.read_bytes() for path in shards_of(reference))
    images_cut_out = data
    for path in images.rglob("*.png"):  # noise may hold any short word
        images_cut_out = images_cut_out.replace(path.read_bytes(), b"")
    assert len(images_cut_out) < len(data) / 2
    assert [trace for trace in traces if trace.encode() in images_cut_out] == []
    assert not re.search(rb"/tmp|20[0-9]{2}-[0-9]{2}", images_cut_out)
