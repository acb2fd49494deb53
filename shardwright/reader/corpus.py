"""The shards to read, from one dataset or several mixed ones."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shardwright.cache.settings import CacheSettings
from shardwright.cache.shards import ShardCache
from shardwright.errors import UsageError
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.schema import ExampleSchema
from shardwright.format.splits import ShardInfo
from shardwright.format.versions import LATEST, VersionKey, read_version
from shardwright.reader.subsets import parse_split
from shardwright.storage.folder import Folder

_REMOTE_WINDOW = 16  # the cache must hold all of these shards at once


@dataclass(frozen=True)
class DatasetSource:
    """A dataset to read.

    Attributes:
        root: The folder of its files.
        manifest: Its contents.
        cache: Local copies of its shards if it is remote; None for a local folder.
    """

    root: Folder
    manifest: Manifest
    cache: ShardCache | None

    @classmethod
    def open(
        cls, root: Folder, settings: CacheSettings | None, version: VersionKey = LATEST
    ) -> DatasetSource:
        """Open a version of a dataset; raise as `ShardCache` and `read_version`."""
        if not root.is_remote:
            manifest = read_version(root, version)
            return cls(root.below(manifest.folder), manifest, None)
        cache = ShardCache(root, settings, version)
        return cls(cache.root, cache.manifest, cache)


@dataclass(frozen=True)
class ShardRef:
    """A shard and the rows to read of it: [first_row, stop_row) of those in the dataset."""

    source: DatasetSource
    name: ShardName
    info: ShardInfo
    first_row: int
    stop_row: int

    @property
    def uri(self) -> str:
        """The shard's path or address, for messages."""
        return self.source.root.path(self.name.shard)

    @property
    def num_rows(self) -> int:
        return self.stop_row - self.first_row

    @cached_property
    def rows(self) -> NDArray[np.uint32] | None:
        """The rows of the file to read, uint32 [num_rows]; None if they follow one another."""
        live = self.info.live_rows
        return None if live is None else live[self.first_row : self.stop_row]


class Corpus:
    """The shards to read: those of a split, or of a part of one, of each source.

    Attributes:
        shards: In stored order, source by source; each has at least one record to read.
        source_starts: Number of each source's first shard, and the number of shards.
        schema: Features of the records, the same in every source.

    Args:
        sources: The datasets.
        split: The split, or a part of one.
        features: Names of the features to read, None for all; others may differ.

    Raises:
        UsageError: The split is unknown or empty, or sources differ in classes, or in the features
            to read or their vocabularies.
    """

    def __init__(
        self,
        sources: Sequence[DatasetSource],
        split: str,
        features: Collection[str] | None = None,
    ) -> None:
        self.schema: ExampleSchema = sources[0].manifest.schema
        self.shards: list[ShardRef] = []
        self.source_starts = [0]
        for source in sources:
            _check_same_schema(sources[0], source, features)
            found = _find_shards(source, split)
            if not found:
                raise UsageError(f"split={split!r} of {source.root} has no records")
            self.shards += found
            self.source_starts.append(len(self.shards))

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """The number of records to read of each shard, int64 [shards]."""
        return np.array([shard.num_rows for shard in self.shards], np.int64)

    @property
    def num_records(self) -> int:
        return int(self.sizes.sum())

    @cached_property
    def has_removed(self) -> bool:
        """True if rows inside of shards are left out, because they are no longer in the dataset."""
        return any(shard.info.removed for shard in self.shards)

    @property
    def is_remote(self) -> bool:
        return any(shard.source.cache is not None for shard in self.shards)

    def window(self, wanted: int | None) -> int:
        """Return the number of shards shuffled together; by default all, or 16 if remote."""
        num_shards = len(self.shards)
        return min(wanted or (_REMOTE_WINDOW if self.is_remote else num_shards), num_shards)

    def fingerprint(self, settings: Iterable[bytes] = ()) -> str:
        """Return a hash of the records to read and of `settings` that select or weigh them."""
        digest = hashlib.blake2b(digest_size=16)
        for shard in self.shards:
            # Without the address: a copy of the dataset resumes the same state.
            part = (
                shard.name.split,
                shard.info.index,
                shard.info.num_bytes,
                shard.info.crc32c,
                shard.first_row,
                shard.stop_row,
            )
            digest.update(repr(part).encode())
            if shard.info.removed:
                digest.update(b"\0removed" + shard.info.removed)
        for setting in settings:
            digest.update(b"\0" + setting)
        return digest.hexdigest()


def _find_shards(source: DatasetSource, split: str) -> list[ShardRef]:
    manifest = source.manifest
    spans = parse_split(
        split, {name: found.num_records for name, found in manifest.splits.items()}, manifest.name
    )
    shards = []
    for span in spans:
        start = 0
        for name, info in manifest.named_shards(span.split):
            # Spans count the records that are in the dataset, not the rows of files.
            first, stop = max(span.start - start, 0), min(span.stop - start, info.num_live)
            if first < stop:
                shards.append(ShardRef(source, name, info, first, stop))
            start += info.num_live
    return shards


def _check_same_schema(
    first: DatasetSource, other: DatasetSource, names: Collection[str] | None
) -> None:
    mine, its = first.manifest.schema, other.manifest.schema
    wanted, found = (
        {
            feature.name: feature
            for feature in schema.features
            if names is None or feature.name in names
        }
        for schema in (mine, its)
    )
    if wanted != found:
        differing = [name for name in {**wanted, **found} if wanted.get(name) != found.get(name)]
        raise UsageError(
            f"{other.root} has other features than {first.root} and cannot be mixed with it "
            f"({', '.join(differing)}): leave them out of features="
        )
    if mine.class_names != its.class_names:
        differing = sorted(set(mine.class_names) ^ set(its.class_names))[:3] or ["their order"]
        raise UsageError(
            f"{other.root} has other classes than {first.root} ({', '.join(differing)}), "
            "so their labels do not match: build both with the same --class-names"
        )
    for name in sorted({*mine.vocabularies, *its.vocabularies} & wanted.keys()):
        if mine.vocabularies.get(name) != its.vocabularies.get(name):
            raise UsageError(
                f"{other.root} has another vocabulary of {name!r} than {first.root}, so their "
                "indices do not match: build both with the schema in the manifest of one of them"
            )
