"""State what `plan.json` holds, and what it has in common with a manifest."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from shardwright.format import naming
from shardwright.format.json_files import Count
from shardwright.format.manifest_check import MAX_SHARDS


class OutputFile(Struct):
    """The plan or the manifest of a build, as far as it says whose OUTPUT is.

    Attributes:
        settings: The options that determine the shards' bytes.
        fingerprint: Hash of the plan.
        provenance: Origin of a dataset.
        folder: The folder of a dataset's files, as in its manifest.
    """

    settings: dict[str, Any] = {}
    fingerprint: str | None = None
    provenance: dict[str, Any] = {}
    folder: str = ""


class PlannedSplit(Struct):
    """A planned split: its shards and records, and its estimated bytes."""

    num_shards: Count
    num_records: Count
    num_bytes: Count


class PlanFile(OutputFile, kw_only=True):
    """A plan.

    Attributes:
        splits: The splits by name.
    """

    splits: dict[str, PlannedSplit]

    def __post_init__(self) -> None:
        for name in self.splits:
            if not naming.is_split_name(name):
                raise ValueError(f"{name!r:.80} is not a split's name")
        if sum(split.num_shards for split in self.splits.values()) > MAX_SHARDS:
            raise ValueError(f"more than {MAX_SHARDS:,} shards")
