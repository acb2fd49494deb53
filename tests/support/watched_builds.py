"""The files of builds in OUTPUT, written by hand for tests of what watches them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from shardwright.format import naming
from shardwright.format.index import INDEX_SCHEMA, ShardSummary, write_sidecar
from shardwright.format.manifest import json_bytes
from shardwright.format.naming import ShardName
from shardwright.storage.folder import Folder
from shardwright.transforms.reject_files import write_rejects
from shardwright.transforms.rejects import Reject, RejectReason

START = 1_700_000_000.0
NO_ROWS = INDEX_SCHEMA.empty_table()


def put_plan(root: Folder, **splits: tuple[int, int, int]) -> None:
    """Write a plan of (shards, records, bytes) by split."""
    names = ("num_shards", "num_records", "num_bytes")
    content = {split: dict(zip(names, numbers, strict=True)) for split, numbers in splits.items()}
    root.write_bytes(
        naming.PLAN, json_bytes({"fingerprint": "f", "settings": {}, "splits": content})
    )


def put_shard(
    root: Folder, index: int, count: int, *, records: int = 9, rejects: Mapping[str, int] = {}
) -> str:
    """Write a sidecar and the shard's rejects; return the sidecar's name."""
    name = ShardName("pets", "train", index, count)
    if rejects:
        write_rejects(root, name.rejects, rejects_of(rejects))
    summary = ShardSummary(name, records, 100 * records, 0, "d", rejects=rejects)
    write_sidecar(root, summary, NO_ROWS)
    return name.sidecar


def rejects_of(counts: Mapping[str, int]) -> list[Reject]:
    return [
        Reject(f"{reason}{n}", f"/in/{n}", RejectReason(reason), "detail")
        for reason, number in counts.items()
        for n in range(number)
    ]


def at(root: Folder, name: str, seconds: float) -> None:
    os.utime(root.path(name), (START + seconds, START + seconds))
