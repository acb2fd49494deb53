"""The shards of one reading, of one dataset or of several that are mixed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shardwright.cache import CacheSettings, ShardCache
from shardwright.errors import UsageError
from shardwright.manifest import Manifest, ShardInfo, read_manifest
from shardwright.naming import ShardName
from shardwright.reader.subsets import parse_split
from shardwright.schema import ExampleSchema
from shardwright.storage import Folder

_REMOTE_WINDOW = 16  # all of these shards must be in the cache at a time


@dataclass(frozen=True)
class Source:
    """A dataset that is read.

    Attributes:
        root: Where it is.
        manifest: What it holds.
        cache: Its shards as local files, where it is in a store; None for a local folder.
    """

    root: Folder
    manifest: Manifest
    cache: ShardCache | None

    @classmethod
    def open(cls, root: Folder, settings: CacheSettings | None) -> Source:
        """Raises what `ShardCache.open` and `read_manifest` do."""
        if not root.is_remote:
            return cls(root, read_manifest(root), None)
        cache = ShardCache.open(root, settings)
        return cls(root, cache.manifest, cache)


@dataclass(frozen=True)
class ShardRef:
    """A shard, and which of its records are read: those of [first_row, stop_row)."""

    source: Source
    name: ShardName
    info: ShardInfo
    first_row: int
    stop_row: int

    @property
    def uri(self) -> str:
        """Its path or address, for messages."""
        return self.source.root.path(self.name.shard)

    @property
    def num_rows(self) -> int:
        return self.stop_row - self.first_row


@dataclass(frozen=True)
class Corpus:
    """What is read.

    Attributes:
        shards: In the order they are stored in, source by source; none of them without a record.
        source_starts: The number of the first shard of each source, and of all shards.
        schema: The features of every record: the same in every source.
    """

    shards: tuple[ShardRef, ...]
    source_starts: tuple[int, ...]
    schema: ExampleSchema

    @classmethod
    def of(cls, sources: Sequence[Source], split: str) -> Corpus:
        """The shards of a split, or of a part of one, of each source.

        Raises:
            UsageError: No such split, no records in it, or sources with other features or classes than the first.
        """
        shards: list[ShardRef] = []
        starts = [0]
        for source in sources:
            _check_same_schema(sources[0], source)
            shards.extend(_find_shards(source, split))
            starts.append(len(shards))
            if starts[-1] == starts[-2]:
                raise UsageError(f"split={split!r} of {source.root} has no records")
        return cls(tuple(shards), tuple(starts), sources[0].manifest.schema)

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Records of each shard that are read, [shards]."""
        return np.array([shard.num_rows for shard in self.shards], np.int64)

    @property
    def num_records(self) -> int:
        return int(self.sizes.sum())

    @property
    def is_remote(self) -> bool:
        return any(shard.source.cache is not None for shard in self.shards)

    def window(self, wanted: int | None) -> int:
        """How many shards are shuffled with each other: as many as wanted, else all of local folders, and 16 of stores."""
        num_shards = len(self.shards)
        return min(wanted or (_REMOTE_WINDOW if self.is_remote else num_shards), num_shards)

    def fingerprint(self, settings: Iterable[bytes] = ()) -> str:
        """Equal where the same records are read; `settings` are what else decides which those are."""
        digest = hashlib.blake2b(digest_size=16)
        for shard in self.shards:
            part = (
                shard.name.split,
                shard.info.index,
                shard.info.num_bytes,
                shard.info.crc32c,
                shard.first_row,
                shard.stop_row,
            )
            digest.update(repr(part).encode())
        for setting in settings:
            digest.update(b"\0" + setting)
        return digest.hexdigest()


def _find_shards(source: Source, split: str) -> list[ShardRef]:
    manifest = source.manifest
    spans = parse_split(
        split, {name: found.num_records for name, found in manifest.splits.items()}, manifest.name
    )
    shards = []
    for span in spans:
        start = 0
        for name, info in zip(
            manifest.shard_names(span.split), manifest.splits[span.split].shards, strict=True
        ):
            first, stop = max(span.start - start, 0), min(span.stop - start, info.num_records)
            if first < stop:
                shards.append(ShardRef(source, name, info, first, stop))
            start += info.num_records
    return shards


def _check_same_schema(first: Source, other: Source) -> None:
    mine, its = first.manifest.schema, other.manifest.schema
    if mine.features != its.features:
        raise UsageError(
            f"{other.root} has other features than {first.root}, and cannot be mixed with it: "
            f"{', '.join(feature.name for feature in its.features)}, not {', '.join(feature.name for feature in mine.features)}"
        )
    if mine.class_names != its.class_names:
        differing = sorted(set(mine.class_names) ^ set(its.class_names))[:3] or ["their order"]
        raise UsageError(
            f"{other.root} has other classes than {first.root} ({', '.join(differing)}), so their labels mean other things: "
            "build both with the same --class-names"
        )
    for name in sorted({*mine.vocabularies, *its.vocabularies}):
        if mine.vocabularies.get(name) != its.vocabularies.get(name):
            raise UsageError(
                f"{other.root} has another vocabulary of {name!r} than {first.root}, so its indices mean other things: "
                "build both with the schema that one of them has in its manifest"
            )
