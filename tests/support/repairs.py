"""Datasets to repair: built without Beam, damaged, and compared file by file."""

from __future__ import annotations

import hashlib
import itertools
import os
from pathlib import Path

from shardwright.format.index import read_index
from shardwright.format.manifest import read_manifest
from shardwright.pipelines.commands import repair as repair_command
from shardwright.pipelines.job.build import prepare_job
from shardwright.pipelines.local.build import build_here
from shardwright.pipelines.options.build import parse_options
from shardwright.storage.folder import Folder
from tests.support.build_helpers import files_below, make_images

NUM_IMAGES = 24
OPTIONS = (
    "--split", "train=0.7,test=0.3", "--shard-count", "2", "--signals",
    "--max-reject-fraction", "0.5",
)  # fmt: skip


def build_photos(source: Path, output: Path, *options: str) -> None:
    """Build without Beam, whose import takes longest: the bytes are the same."""
    build_plainly(source, output, *OPTIONS, *options)


def build_plainly(source: Path, output: Path, *options: str) -> None:
    build_here(prepare_job(parse_options([str(source), str(output), *options])))


def state_of(root: Path) -> dict[str, tuple[str, int]]:
    """Return the hash and the modification time of every file."""
    return {
        name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for name, path in files_below(root).items()
    }


def hashes_of(root: Path) -> dict[str, str]:
    return {name: found for name, (found, _) in state_of(root).items()}


def repair(dataset: Path, *options: str) -> int:
    return repair_command.main([str(dataset), *options])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def names_of(place: Path, pattern: str) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.glob(pattern))


def damage_record(place: Path, shard: str, number: int) -> str:
    """Flip a byte in the middle of a record's image; return its id."""
    name = next(
        name for name, _ in read_manifest(Folder(str(place))).named_shards() if name.shard == shard
    )
    row = read_index(Folder(str(place)), name).to_pylist()[number]
    with open(place / shard, "r+b") as file:
        file.seek(row["image_offset"] + row["image_length"] // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    return str(row["id"])


def make_photos(root: Path) -> Path:
    """Write images in class folders; two of them are rejected, as is a file of text."""
    make_images(root, NUM_IMAGES)
    for name in ("cat/bad.png", "bird/bad.png"):
        (root / name).write_bytes(b"\x89PNG\r\n\x1a\n and nothing else")
    (root / "notes.txt").write_text("not an image")
    return root


def code_of(options: tuple[str, ...]) -> list[str]:
    """Return the options that run code, which a repair does not take from the manifest."""
    pairs = itertools.pairwise(options)
    return [word for pair in pairs if pair[0] == "--transform" for word in pair]
