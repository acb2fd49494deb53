"""Every byte of every file counts: `verify` places each change, and a reader never believes one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardwright as sw
from shardwright.errors import NotADatasetError, ShardwrightError
from shardwright.format import naming
from shardwright.inspect.verify import verify
from tests.support.damage import build, write_images

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
def test_a_mutation_of_any_byte_is_placed_and_never_believed(
    small: Path, rng: np.random.Generator
) -> None:
    files = sorted(str(path.relative_to(small)) for path in small.rglob("*.*"))
    assert {name.rpartition("/")[0] for name in files} == {"", "index", "rejects"}
    sound = rows_of(small)
    assert len(sound) == 15
    for number in range(NUM_MUTATIONS):
        name = files[number % len(files)]
        with mutated(small / name, rng) as change:
            assert place(small) == {name}, change
            if name.endswith((".parquet", naming.MANIFEST)) or ".tfrecord-" in name:
                check_reader(small, sound, change)


@contextmanager
def mutated(path: Path, rng: np.random.Generator) -> Iterator[str]:
    """Change one byte of a file, or cut or extend the file there; restore it afterwards."""
    whole = path.read_bytes()
    offset, kind = int(rng.integers(len(whole))), int(rng.integers(10))
    change = bytes([whole[offset] ^ int(rng.integers(1, 256))])
    data = {0: whole[:offset], 1: whole[:offset] + change + whole[offset:]}
    path.write_bytes(data.get(kind, whole[:offset] + change + whole[offset + 1 :]))
    yield f"{path.name}, byte {offset}: {kind} {change!r}"
    path.write_bytes(whole)


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


@pytest.mark.long
def test_a_missing_file_is_placed(small: Path, tmp_path: Path) -> None:
    paths = [path for path in small.rglob("*.*") if path.name != naming.MANIFEST]
    for number, path in enumerate(paths):
        dataset = tmp_path / f"{number}"
        shutil.copytree(small, dataset)
        name = str(path.relative_to(small))
        (dataset / name).unlink()
        assert place(dataset) - {naming.REJECTS_DIR} == {name}
