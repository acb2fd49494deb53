"""Datasets with a damaged record, made with nothing but a trainer's packages."""

from __future__ import annotations

import shutil
from pathlib import Path

import shardwright as sw
from shardwright.format.index import read_index


def copy_with_bad_record(dataset: str | Path, folder: Path, row: int = 4) -> tuple[str, str]:
    """Copy a dataset and flip a bit in the image of a row of its first shard.

    Returns:
        The path of the copy, and the id of the damaged record.
    """
    copy = Path(shutil.copytree(dataset, folder / "damaged"))
    opened = sw.open(str(copy))
    name = opened.shard_names(next(iter(opened.splits)))[0]
    bad = read_index(opened.root, name).to_pylist()[row]
    shard = copy / name.shard
    data = bytearray(shard.read_bytes())
    data[bad["image_offset"] + 30] ^= 0x10
    shard.write_bytes(data)
    return str(copy), bad["id"]
