#!/usr/bin/env python
"""Build 1,000,000 tiny images on this machine, and open a manifest of 50,000 shards.

Prints seconds, peak memory, open files and threads of the build's processes, and the seconds and
the memory of `sw.open`. The images are hard links to 1,000 different ones, so they need names, not
space. Exit code 1 if a limit is exceeded.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from measure import Usage, measure
from page import scratch_folder
from PIL import Image
from systems import shardwright_command

from shardwright.format import naming
from shardwright.format.manifest import Manifest
from shardwright.format.splits import ShardInfo, SplitInfo
from shardwright.schemas.ready import image_classification
from shardwright.storage.folder import Folder

MAX_BUILD_BYTES, MAX_FILES, MAX_THREADS = 2 * 10**9, 256, 64
MAX_OPEN_S, MAX_OPEN_BYTES = 5, 500 * 10**6
_DIFFERENT, _CLASSES = 1000, 100
_OPEN = "import sys, shardwright as sw; print(len(sw.open(sys.argv[1]).splits['train'].shards))"


@dataclass
class Handles:
    """The largest numbers of open files and threads of one process of a command."""

    files: int = 0
    threads: int = 0

    def look(self, _: int) -> None:
        for pid in _descendants(os.getpid()):
            try:
                self.files = max(self.files, len(os.listdir(f"/proc/{pid}/fd")))
                self.threads = max(self.threads, len(os.listdir(f"/proc/{pid}/task")))
            except FileNotFoundError:  # it has ended
                continue


def _descendants(pid: int) -> Iterator[int]:
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found = [int(child) for child in children.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in found:
            yield child
            yield from _descendants(child)


def make_images(root: Path, number: int) -> Path:
    """Make `number` PNGs of 2 x 2 pixels in class folders below `root`."""
    made = []
    (root / "different").mkdir(parents=True)
    for index in range(min(number, _DIFFERENT)):
        file = io.BytesIO()
        pixels = np.array([index % 256, index // 256, *range(10)], np.uint8)
        Image.fromarray(pixels.reshape(2, 2, 3)).save(file, "PNG")
        made.append(root / "different" / f"{index}.png")
        made[-1].write_bytes(file.getvalue())
    for index in range(number):
        folder = root / "images" / f"class_{index % _CLASSES:02d}"
        if index < _CLASSES:
            folder.mkdir(parents=True)
        os.link(made[index % len(made)], folder / f"{index}.png")
    return root / "images"


def build(root: Path, number: int) -> tuple[Usage, Handles]:
    """Build the images, and check that no one is lost."""
    images, out, handles = make_images(root, number), root / "out", Handles()
    command = shardwright_command("build", str(images), str(out), "--records-per-shard", "10000")
    usage = measure(command, log=root / "log", each_look=handles.look)
    written = json.loads((out / naming.MANIFEST).read_text())["num_records"]
    assert written == number, f"{written} of {number} images are in the dataset"
    return usage, handles


def open_manifest(root: Path, num_shards: int) -> Usage:
    """Write a manifest of so many shards, and open it in another process."""
    shards = tuple(
        ShardInfo(index, 1000, 150_000_000, index, f"{index:032x}", 100_000, index)
        for index in range(num_shards)
    )
    manifest = Manifest(
        name="large",
        version="1.0.0",
        schema=image_classification(),
        splits={"train": SplitInfo("train", shards)},
        rejects={},
        num_inputs=1000 * num_shards,
        settings={},
        fingerprint="0" * 32,
        provenance={},
    )
    root.mkdir()
    Folder(str(root)).write_bytes(naming.MANIFEST, manifest.to_bytes())
    usage = measure([sys.executable, "-c", _OPEN, str(root)], log=root / "log")
    assert int(usage.stdout.read_text()) == num_shards
    return usage


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=50_000)
    parser.add_argument("--dir", help="work here (default: the temp folder)")
    args = parser.parse_args()
    with scratch_folder("million-", args.dir) as root:
        built, handles = build(root, args.images)
        opened = open_manifest(root / "large", args.shards)
    print(
        f"{args.images:,} images: {built.wall_s:.1f} s, CPU {built.cpu_s:.1f} s, "
        f"RSS {built.peak_rss_bytes / 1e9:.2f} GB, {handles.files} files, {handles.threads} threads"
    )
    print(
        f"manifest of {args.shards:,} shards: opened in {opened.wall_s:.2f} s, CPU "
        f"{opened.cpu_s:.2f} s, RSS {opened.peak_rss_bytes / 1e6:.0f} MB, with the start of Python"
    )
    bounded = (
        built.peak_rss_bytes <= MAX_BUILD_BYTES
        and handles.files <= MAX_FILES
        and handles.threads <= MAX_THREADS
        and opened.wall_s <= MAX_OPEN_S
        and opened.peak_rss_bytes <= MAX_OPEN_BYTES
    )
    return 0 if bounded else 1


if __name__ == "__main__":
    sys.exit(main())
