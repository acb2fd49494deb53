"""The shards of a split, as a manifest lists them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardwright.format.contents import FileContent
from shardwright.format.json_files import Count, Crc32c


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """One shard in the manifest.

    Attributes:
        index: Shard number in its split, from 0; of its folder, if it has one.
        num_records: Number of records in the file.
        num_bytes: Length of the file.
        crc32c: Unmasked CRC32C of the whole file.
        digest: Digest of the shard's plan.
        sidecar_bytes: Length of its sidecar.
        sidecar_crc32c: Unmasked CRC32C of its sidecar.
        etag: The store's etag when the shard was written, if it changes only with the content.
        folder: The folder below the dataset's that holds it; "" for the dataset's own.
        count: Number of the split's shards in that folder; 0 for all of the split.
        removed: Rows of the file that are no longer in the dataset: uint32 in little-endian bytes,
            ascending.
    """

    index: Count
    num_records: Count
    num_bytes: Count
    crc32c: Crc32c
    digest: str
    sidecar_bytes: Count
    sidecar_crc32c: Crc32c
    etag: str | None = None
    folder: str = ""
    count: Count = 0
    removed: bytes = b""

    @property
    def content(self) -> FileContent:
        """The content of the shard's file."""
        return FileContent(self.num_bytes, self.crc32c)

    @property
    def sidecar(self) -> FileContent:
        """The content of its sidecar."""
        return FileContent(self.sidecar_bytes, self.sidecar_crc32c)

    @property
    def num_live(self) -> int:
        """Number of the records that are in the dataset."""
        return self.num_records - len(self.removed) // 4

    @property
    def removed_rows(self) -> NDArray[np.uint32]:
        """Rows of the file that are no longer in the dataset, uint32 [rows], ascending."""
        return np.frombuffer(self.removed, "<u4").astype(np.uint32, copy=False)

    @property
    def live_rows(self) -> NDArray[np.uint32] | None:
        """Rows of the file that are in the dataset, uint32 [num_live], ascending; None for all."""
        if not self.removed:
            return None
        kept = np.ones(self.num_records, np.bool_)
        kept[self.removed_rows] = False
        return np.flatnonzero(kept).astype(np.uint32)

    def to_json(self) -> dict[str, Any]:
        record = {key: value for key, value in asdict(self).items() if value not in (None, b"")}
        for key in ("folder", "count"):
            if not record[key]:
                del record[key]
        if self.removed:
            record["removed"] = b64encode(self.removed).decode()
        return record


@dataclass(frozen=True, slots=True)
class SplitInfo:
    """One split: its shards in order, and statistics of its records."""

    name: str
    shards: tuple[ShardInfo, ...]
    stats: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_records(self) -> int:
        return sum(shard.num_live for shard in self.shards)

    @property
    def num_bytes(self) -> int:
        """Number of bytes of the shards' files."""
        return sum(shard.num_bytes for shard in self.shards)

    def to_json(self) -> dict[str, Any]:
        return {
            "num_records": self.num_records,
            "num_bytes": self.num_bytes,
            "shards": [shard.to_json() for shard in self.shards],
            "stats": dict(self.stats),
        }
