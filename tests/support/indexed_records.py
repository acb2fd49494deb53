"""Datasets that are an index alone, for tests of what reads no more of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from shardwright.format.index import INDEX_SCHEMA, ShardSummary, write_sidecar
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo, SplitInfo
from shardwright.schemas.ready import image_classification
from shardwright.storage.folder import Folder


class Indexed(NamedTuple):
    """A record: its columns of the index."""

    id: str
    uri: str = "/in/a"
    etag: str | None = "e"
    label: int | None = 0
    features: int | None = None
    suffix: int | None = None


def write_index(
    root: Folder,
    shards: Mapping[str, Sequence[Sequence[Indexed]]],
    class_names: tuple[str, ...] = (),
    **manifest: Any,
) -> Manifest:
    """Write the index of each split's shards, and return a manifest of them."""
    splits = {
        split: SplitInfo(
            split,
            tuple(
                _write_shard(root, ShardName("zoo", split, number, len(parts)), records)
                for number, records in enumerate(parts)
            ),
        )
        for split, parts in shards.items()
    }
    values: dict[str, Any] = {
        "version": "1.0.0",
        "rejects": {},
        "num_inputs": 0,
        "settings": {},
        "fingerprint": "",
        "provenance": {},
    }
    schema = image_classification().with_class_names(class_names)
    return Manifest(name="zoo", schema=schema, splits=splits, **(values | manifest))


def _write_shard(root: Folder, name: ShardName, records: Sequence[Indexed]) -> ShardInfo:
    rows = {
        field.name: [
            getattr(record, field.name, None if field.nullable else 1) for record in records
        ]
        for field in INDEX_SCHEMA
    }
    summary = ShardSummary(name, len(records), 10, 20, "digest")
    written = write_sidecar(root, summary, pa.table(rows, schema=INDEX_SCHEMA))
    assert written.sidecar is not None
    return ShardInfo(name.index, len(records), 10, 20, "digest", *written.sidecar)
