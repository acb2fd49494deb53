"""Every byte of every file counts: `verify` places each change, and a reader never believes one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardwright as sw
from shardwright.errors import NotADatasetError, ShardwrightError
from shardwright.format import naming
from shardwright.format.naming import notice_file
from shardwright.inspect.verify import verify
from tests.support.build_helpers import files_below, is_report
from tests.support.damage import build, write_images
from tests.transforms.versions.histories import append, write

NUM_MUTATIONS = 300


@pytest.fixture(scope="module", name="small")
def small_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two splits with rejects of the plan and of a shard."""
    root = tmp_path_factory.mktemp("mutations")
    images = write_images(root / "images", 5)
    (images / "ape" / "notes.doc").write_text("not an image")
    (images / "bee" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(30))
    options = ("--split", "train=0.6,test=0.4", "--records-per-shard", "4")
    return build(images, root / "small", *options, "--max-reject-fraction", "0.5")


@pytest.mark.long
@pytest.mark.weight(10)
def test_a_mutation_of_any_file_is_placed_and_never_believed(
    small: Path, rng: np.random.Generator
) -> None:
    files = sorted(name for name in files_below(small) if not is_report(name))
    assert {name.rpartition("/")[0] for name in files} == {"", "index", "rejects"}
    sound = rows_of(small)
    assert len(sound) == 15
    for number in range(NUM_MUTATIONS):
        with mutated(small, files[number % len(files)], files, rng) as (names, change):
            assert place(small) == (names & {naming.MANIFEST} or names), change
            if any(name.endswith((".parquet", naming.MANIFEST)) for name in names) or any(
                ".tfrecord-" in name for name in names
            ):
                check_reader(small, sound, change)


@pytest.mark.long
@pytest.mark.weight(10)
def test_a_mutation_of_a_grown_dataset_is_placed(tmp_path: Path, rng: np.random.Generator) -> None:
    root = tmp_path / "grown"
    write({f"r{number}": number for number in range(6)}, root)
    append(root, {"r3": 20, "r7": 7})
    append(root, {"r8": 8}, ["r1"])
    append(root, {"r9": 9})
    # Two files may be missing: what stops globs, and the newest version, which is then not there.
    free = {notice_file("grown", "train"), "versions/00004.json"}
    files = sorted(name for name in files_below(root).keys() - free if not is_report(name))
    assert {"versions/00002.json", "versions/00003.json", naming.MANIFEST} < {*files}
    for number in range(NUM_MUTATIONS):
        with mutated(root, files[number % len(files)], files, rng) as (names, change):
            manifests = {name for name in names if name.endswith(naming.MANIFEST)}
            found = place(root)
            if len(manifests) == 2:  # each is sound in the other's place: their files are blamed
                assert found, change
            else:
                assert found >= (manifests or names), change


@contextmanager
def mutated(
    root: Path, name: str, files: list[str], rng: np.random.Generator
) -> Iterator[tuple[set[str], str]]:
    """Damage a file, yield the names of the damaged files and the change, and restore them.

    Flips, inserts or appends a byte, cuts the file, removes it, or swaps it with another one.
    """
    other = files[int(rng.integers(len(files)))]
    before = {each: (root / each).read_bytes() for each in (name, other)}
    whole = before[name]
    offset, byte = int(rng.integers(len(whole))), int(rng.integers(1, 256))
    flipped = bytes([whole[offset] ^ byte])
    kind = str(rng.choice(["flip", "flip", "flip", "insert", "append", "cut", "remove", "swap"]))
    data = {
        "flip": whole[:offset] + flipped + whole[offset + 1 :],
        "insert": whole[:offset] + flipped + whole[offset:],
        "append": whole + flipped,
        "cut": whole[:offset],
        "swap": before[other],
    }
    names = {name}
    (root / name).unlink()
    if kind in data:
        (root / name).write_bytes(data[kind])
    if kind == "swap":
        (root / other).write_bytes(whole)
        names = {name, other} if before[other] != whole else set()
    yield names, f"{kind} {name} at byte {offset} by {flipped!r}, {other}"
    for each, content in before.items():
        (root / each).write_bytes(content)


def place(dataset: Path) -> set[str]:
    """Return the files that `verify` blames, without another view of the same fault."""
    try:
        return {fault.file for fault in verify(str(dataset)).faults}
    except NotADatasetError as error:
        said = str(error)
    return {naming.MANIFEST} if "manifest.json" in said or "format version" in said else {said}


def rows_of(dataset: Path) -> dict[str, tuple[bytes, int]]:
    """Return image and label of every record by id, as a reader delivers them."""
    found: dict[str, tuple[bytes, int]] = {}
    options: dict[str, Any] = {"split": "all", "global_batch_size": 4, "remainder": "keep"}
    with sw.Reader(str(dataset), **options, epochs=1, threads=1) as reader:
        for batch in reader:
            rows = zip(batch["id"], batch["image"], batch["label"], strict=True)
            found |= {str(name): (bytes(image), int(label)) for name, image, label in rows}
    return found


def check_reader(dataset: Path, sound: dict[str, tuple[bytes, int]], change: str) -> None:
    try:
        found = rows_of(dataset)
    except ShardwrightError:
        return
    assert found == sound, change
