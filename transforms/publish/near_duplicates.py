"""Write `near_duplicates.parquet`, and find groups of near-duplicates that are in two splits.

The splits of the listed images are looked up in the index by a 64-bit hash of their ids. Memory
holds 10 bytes for each listed image, the rows of one part, and the finished file.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shardwright.format import naming
from shardwright.format.contents import FileContent
from shardwright.format.index import read_live_rows
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.parquet import read_rows
from shardwright.format.splits import ShardInfo
from shardwright.format.stats_keys import NEAR_KEYS, NEAR_LEAKS, NEAR_RECORDS, Leak
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads
from shardwright.transforms.hashing import distinct, hash64, is_among, joined
from shardwright.transforms.publish.publication import Companion, DatasetDraft
from shardwright.transforms.versions.additions import Append

_MAX_EXAMPLES = 5
_MAX_COMPARED = 100  # images of a group and split among which an example is chosen
_READERS = 16
_SALT = "shardwright/near-duplicate"
_SCHEMA = pa.schema(
    [
        pa.field("group", pa.int64(), nullable=False),
        pa.field("id", pa.string(), nullable=False),
        pa.field("split", pa.string()),  # null if the image is not in the dataset
        pa.field("keeper", pa.string(), nullable=False),
        pa.field("distance", pa.uint8(), nullable=False),
    ]
)


Version: TypeAlias = tuple[Folder, Manifest]
"""A version of a dataset: its folder and its manifest."""


class NearDuplicateList(Companion):
    """The companion that writes the list.

    Args:
        append: The append of which the dataset holds the additions, if it does.
    """

    def __init__(self, append: Append | None = None) -> None:
        self._append = append

    def state(self, draft: DatasetDraft) -> Manifest:
        append = self._append
        grown = None if append is None else (append.root, append.read_base())
        parts = draft.near_duplicates
        return with_near_duplicates(draft.root, draft.manifest, parts, grown)


def with_near_duplicates(
    root: Folder, manifest: Manifest, parts: Sequence[str], grown: Version | None = None
) -> Manifest:
    """Write the list of near-duplicates unless it is there, and return the manifest with it.

    Args:
        root: The folder that holds the index and the parts.
        manifest: The manifest with all shards.
        parts: The files of the parts, in the order of their groups.
        grown: The version that these shards are added to; None for a dataset of their own.

    Raises:
        StorageError: A part or a sidecar cannot be read.
    """
    stated = manifest.files.get(naming.NEAR_DUPLICATES)
    if stated is not None and stated.num_bytes == root.num_bytes_of(naming.NEAR_DUPLICATES):
        return manifest
    data, stats = list_near_duplicates(root, manifest, parts, grown)
    root.write_if_new(naming.NEAR_DUPLICATES, data)
    splits = {}
    for name, split in manifest.splits.items():
        others = {key: value for key, value in split.stats.items() if key not in NEAR_KEYS}
        splits[name] = replace(split, stats={**others, **stats[name]})
    files = {**manifest.files, naming.NEAR_DUPLICATES: FileContent.of(data)}
    return replace(manifest, splits=splits, files=files)


def list_near_duplicates(
    root: Folder, manifest: Manifest, parts: Sequence[str], grown: Version | None = None
) -> tuple[bytes, dict[str, dict[str, Any]]]:
    """Return the bytes of `near_duplicates.parquet`, and the keys for the statistics of each split.

    Args:
        root: The folder that holds the parts of the list, and the index.
        manifest: The manifest with all shards.
        parts: The names of the parts, in the order of their groups.
        grown: As in `with_near_duplicates`. Its images are in the list, and the statistics count
            those of the manifest that are nearly equal to them.

    Raises:
        StorageError: A part or a sidecar cannot be read.
    """
    versions = [(root, manifest), *([] if grown is None else [grown])]
    names = sorted({name for _, each in versions for name in each.splits})
    shared = _SharedGroups(names)
    ids = (_keys_of(read_rows(root, part, ["id"])) for part in parts)
    keys = distinct(joined(ids, np.uint64))
    own, *others = (_splits_of(*version, names, keys) for version in versions)
    every = np.where(own < 0, others[0], own) if others else own
    buffer, num_groups = pa.BufferOutputStream(), 0
    with pq.ParquetWriter(buffer, _SCHEMA, compression="zstd") as writer:
        for part in parts:
            rows = read_rows(root, part)
            places = np.searchsorted(keys, _keys_of(rows))
            groups = _groups_of(rows)
            shared.add(rows, groups, own[places], every[places])
            columns = {
                "group": pa.array(num_groups + groups),
                "split": shared.names_of(every[places]),
                **{name: rows[name] for name in ("id", "keeper", "distance")},
            }
            listed = [columns[name] for name in _SCHEMA.names]
            writer.write_table(pa.table(listed, _SCHEMA))
            num_groups += 0 if not len(groups) else int(groups[-1]) + 1
    return buffer.getvalue().to_pybytes(), shared.stats


def _splits_of(
    root: Folder, manifest: Manifest, names: Sequence[str], keys: np.ndarray
) -> np.ndarray:
    """Return the number of the split of each key among `names`, int16 [keys]; -1 if in none."""

    def read(shard: tuple[ShardName, ShardInfo]) -> np.ndarray:
        return _keys_of(read_live_rows(root, *shard, ["id"]))

    splits = np.full(len(keys), -1, np.int16)
    if len(keys):
        for split in manifest.splits:
            for found in map_reads(read, manifest.named_shards(split), _READERS):
                splits[np.searchsorted(keys, found[is_among(found, keys)])] = names.index(split)
    return splits


class _SharedGroups:
    """The groups with images in several splits.

    Args:
        names: The names of the splits.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._records = np.zeros(len(names), np.int64)
        self._shared = np.zeros((len(names), len(names)), np.int64)
        pairs = itertools.combinations(range(len(names)), 2)
        self._examples: dict[tuple[int, int], list[tuple[str, str]]] = {each: [] for each in pairs}

    def names_of(self, numbers: np.ndarray) -> pa.Array:
        """Return the names of splits, null for -1."""
        return pa.array(self._names, pa.string()).take(pa.array(numbers, mask=numbers < 0))

    def add(self, rows: pa.Table, groups: np.ndarray, own: np.ndarray, every: np.ndarray) -> None:
        """Add whole groups: rows in their order, and their groups from 0.

        Args:
            rows: Rows of a part.
            groups: Their groups.
            own: Their splits; -1 for images that are not counted.
            every: Their splits, also of the images of a dataset that grows.
        """
        counts, there_too = self._count(groups, own), self._count(groups, every) > 0
        self._records += counts.sum(axis=0)
        # As in `leaks`: records of a group in one split, if the group is in the other, too.
        self._shared += counts.T @ there_too
        for (here, there), examples in self._examples.items():
            ours = (counts[:, here] > 0) & there_too[:, there]
            both = np.flatnonzero(ours | (there_too[:, here] & (counts[:, there] > 0)))
            # The first groups in their order, so that a repeated build lists the same examples.
            for group in both[: _MAX_EXAMPLES - len(examples)]:
                chosen = slice(*np.searchsorted(groups, [group, group + 1]))
                sides = (own, every) if ours[group] else (every, own)
                pair = [
                    np.flatnonzero(side[chosen] == one)
                    for side, one in zip(sides, (here, there), strict=True)
                ]
                examples.append(
                    _nearest(rows.slice(chosen.start, chosen.stop - chosen.start), pair)
                )

    def _count(self, groups: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Return the images of each group and split, int64 [groups, splits]."""
        stored, num_splits = numbers >= 0, len(self._names)
        places = groups[stored] * num_splits + numbers[stored]
        num_groups = int(groups[-1]) + 1 if len(groups) else 0
        return np.bincount(places, minlength=num_groups * num_splits).reshape(-1, num_splits)

    @property
    def stats(self) -> dict[str, dict[str, Any]]:
        """The keys for the statistics of each split."""
        return {name: self._stats_of(here) for here, name in enumerate(self._names)}

    def _stats_of(self, here: int) -> dict[str, Any]:
        leaks = {
            name: Leak(int(self._shared[here, there]), 0, self._pairs(here, there)).to_json()
            for there, name in enumerate(self._names)
            if there != here and self._shared[here, there]
        }
        stats: dict[str, Any] = {NEAR_RECORDS: int(self._records[here])}
        return {**stats, NEAR_LEAKS: leaks} if leaks else stats

    def _pairs(self, here: int, there: int) -> tuple[tuple[str, str], ...]:
        if here < there:
            return tuple(self._examples[here, there])
        return tuple((mine, other) for other, mine in self._examples[there, here])


def _nearest(members: pa.Table, sides: Sequence[np.ndarray]) -> tuple[str, str]:
    """Return the ids of the two most similar images of a group, given the rows of each side."""
    sides = [side[:_MAX_COMPARED] for side in sides]
    hashes = members["phash"].to_numpy()
    apart = np.bitwise_count(hashes[sides[0]][:, None] ^ hashes[sides[1]])
    chosen = np.unravel_index(int(np.argmin(apart)), apart.shape)
    ids = members["id"]
    return ids[int(sides[0][chosen[0]])].as_py(), ids[int(sides[1][chosen[1]])].as_py()


def _groups_of(rows: pa.Table) -> np.ndarray:
    """Return the number of each row's group, from 0."""
    roots = rows["root"].to_numpy()
    return np.cumsum(np.append(False, roots[1:] != roots[:-1])[: len(roots)])


def _keys_of(rows: pa.Table) -> np.ndarray:
    return hash64(rows["id"], _SALT)
