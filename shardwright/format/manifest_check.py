"""State what a manifest holds as JSON: types, ranges and names.

A dataset may come from a stranger. Its names become paths, and its numbers sizes of arrays.
"""

from __future__ import annotations

from itertools import chain
from typing import Annotated

import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType

from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.json_files import Count, Crc32c
from shardwright.format.records import FRAME_BYTES
from shardwright.format.schema import ExampleSchema
from shardwright.format.splits import ShardInfo
from shardwright.format.stats_keys import SplitStats

MAX_SHARDS = 500_000  # of all splits, so that a manifest can be read in a few seconds
_STOP = 2**63  # of counts, which are added as int64


class SplitFile(Struct):
    """A split."""

    shards: tuple[ShardInfo, ...]
    stats: SplitStats

    def __post_init__(self) -> None:
        for shard in self.shards:
            if shard.num_records * FRAME_BYTES > shard.num_bytes:
                records = f"{shard.num_records} records"
                raise ValueError(f"{records} do not fit in {shard.num_bytes} bytes")
            if shard.folder and not naming.is_generation_folder(shard.folder):
                raise ValueError(f"folder is {shard.folder!r:.80}, not that of a generation")
            if shard.count and shard.index >= shard.count:
                raise ValueError(f"shard {shard.index} of {shard.count}")
            if shard.removed:
                rows = shard.removed_rows.astype(np.int64)
                if not (np.diff(rows, prepend=-1, append=shard.num_records) > 0).all():
                    raise ValueError(f"removed rows do not ascend below {shard.num_records}")


class ContentFile(Struct):
    """The content of a file."""

    num_bytes: Count
    crc32c: Crc32c

    @property
    def content(self) -> FileContent:
        return FileContent(self.num_bytes, self.crc32c)


class History(Struct):
    """The change that made a version of a dataset that has several."""

    version: Annotated[int, Meta(ge=1, le=naming.MAX_VERSION)]
    operation: str
    generations: list[str]
    added: Count
    removed: Count
    replaced: Count = 0
    created: str = ""
    collected: bool = False


class Provenance(Struct):
    """The origin of a dataset, as far as it is used."""

    command: str = ""
    input: str = ""
    created: str = ""
    packages: dict[str, str | None] = {}


class Settings(Struct):
    """The options that determine the shards' bytes, as far as more than equality is used."""

    seed: int = 0
    shards: dict[str, Count] = {}


class ManifestFile(Struct):
    """A manifest, but for the sums in it."""

    name: str
    version: str
    schema: ExampleSchema
    splits: dict[str, SplitFile]
    rejects: dict[str, Count]
    num_inputs: Count
    settings: Settings
    fingerprint: str
    provenance: Provenance
    files: dict[str, ContentFile] = {}
    folder: str = ""
    history: History | UnsetType = UNSET

    def __post_init__(self) -> None:
        if not naming.is_dataset_name(self.name):
            raise ValueError(f"{self.name!r:.80} is not a dataset's name")
        if self.folder not in ("", naming.NEXT_DIR) and not naming.is_generation_folder(
            self.folder
        ):
            raise ValueError(f"folder is {self.folder!r:.80}, expected {naming.NEXT_DIR!r}")
        for name in self.splits:
            if not naming.is_split_name(name):
                raise ValueError(f"{name!r:.80} is not a split's name")
        for name in self.files:
            if not naming.is_companion(name):
                raise ValueError(f"{name!r:.80} is not the name of a file beside the shards")
        shards = list(chain.from_iterable(split.shards for split in self.splits.values()))
        if len(shards) > MAX_SHARDS:
            raise ValueError(f"it has {len(shards):,} shards, more than the {MAX_SHARDS:,} allowed")
        if sum(shard.num_bytes for shard in shards) >= _STOP:
            raise ValueError("its shards have more bytes together than can be counted")
