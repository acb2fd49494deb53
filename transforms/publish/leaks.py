"""Find images that are in two splits of a finished dataset, which would distort test results.

Images with equal length and CRC32C in the index are read from the shards and compared, at most
`MAX_CHECKED` of them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from shardwright.format.index import read_index
from shardwright.format.naming import ShardName
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads
from transforms.duplicates.contents import is_among

LEAKS = "duplicates"  # key in a split's statistics
MAX_CHECKED = 1000  # images with equal checksums that are read and compared
_MAX_EXAMPLES = 5
_READERS = 16  # concurrent reads of sidecars or images
_KEY_COLUMNS = ["image_length", "crc32c"]


@dataclass(frozen=True, slots=True)
class Leak:
    """The images that a split shares with another one.

    Attributes:
        records: Records of this split whose image is byte for byte in the other split.
        unchecked: Further records with equal length and CRC32C there that were not read.
        examples: Some of them: (id here, id there).
    """

    records: int
    unchecked: int
    examples: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "unchecked": self.unchecked,
            "examples": [list(pair) for pair in self.examples],
        }


def find_leaks(
    root: Folder, splits: Mapping[str, Sequence[ShardName]]
) -> dict[str, dict[str, Leak]]:
    """Return the shared images by split and other split; pairs without any are omitted.

    Memory: 8 bytes per record of all splits but the largest one, and twice that for sorting.

    Args:
        root: The dataset's folder.
        splits: The shards by split, smallest split first.

    Raises:
        StorageError: A sidecar or a shard cannot be read.
    """
    keys = _shared_keys(root, list(splits.values())) if len(splits) > 1 else np.zeros(0, np.uint64)
    if not len(keys):
        return {}
    found = {split: _Found.look(root, names, keys) for split, names in splits.items()}
    leaks: dict[str, dict[str, Leak]] = {}
    images = (
        [found[split].firsts.get(number) for split in splits]
        for number in range(min(len(keys), MAX_CHECKED))
    )
    checked = list(map_reads(functools.partial(_compare, root), images, _READERS))
    for (here, split), (there, other) in itertools.permutations(enumerate(splits), 2):
        same = [
            number
            for number, contents in enumerate(checked)
            if contents[here] is not None and contents[here] == contents[there]
        ]
        leak = found[split].shared_with(found[other], same)
        if same or leak.unchecked:
            leaks.setdefault(split, {})[other] = leak
    return leaks


def _shared_keys(root: Folder, splits: Sequence[Sequence[ShardName]]) -> np.ndarray:
    """Return the keys that are in several splits, sorted; compares each split with smaller ones."""
    smaller = np.zeros(0, np.uint64)
    shared = [smaller]
    for number, names in enumerate(splits):
        own = [smaller]
        for rows in _indices(root, names, _KEY_COLUMNS):
            keys = _keys_of(rows)
            keys = keys[keys > 0]  # 0: a record without an image
            shared.append(np.unique(keys[is_among(keys, smaller)]))
            if number < len(splits) - 1:
                own.append(keys)
        smaller = np.unique(np.concatenate(own))
    return np.unique(np.concatenate(shared))


def _indices(root: Folder, names: Sequence[ShardName], columns: list[str]) -> Iterator[pa.Table]:
    return map_reads(functools.partial(_read_columns, root, columns), names, _READERS)


def _read_columns(root: Folder, columns: list[str], name: ShardName) -> pa.Table:
    return read_index(root, name, columns)


def _keys_of(rows: pa.Table) -> np.ndarray:
    """Return a uint64 key per image: its CRC32C and the low half of its length."""
    lengths = rows["image_length"].to_numpy().astype(np.uint64)
    return (lengths << np.uint64(32)) | rows["crc32c"].to_numpy().astype(np.uint64)


@dataclass(frozen=True, slots=True)
class _Image:
    id: str
    shard: ShardName
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class _Found:
    """The shared keys in a split.

    Attributes:
        counts: Number of records with each key, int64 [keys].
        firsts: The first record by position of the key, for keys to be checked.
    """

    counts: np.ndarray
    firsts: Mapping[int, _Image]

    @classmethod
    def look(cls, root: Folder, names: Sequence[ShardName], keys: np.ndarray) -> _Found:
        counts = np.zeros(len(keys), np.int64)
        firsts: dict[int, _Image] = {}
        columns = ["id", "image_offset", *_KEY_COLUMNS]
        for name, rows in zip(names, _indices(root, names, columns), strict=True):
            all_keys = _keys_of(rows)
            hits = np.flatnonzero(is_among(all_keys, keys))
            numbers = np.searchsorted(keys, all_keys[hits])
            counts += np.bincount(numbers, minlength=len(keys))
            for number, first in zip(*np.unique(numbers, return_index=True), strict=True):
                if number < MAX_CHECKED and int(number) not in firsts:
                    row = rows.slice(int(hits[first]), 1).to_pylist()[0]
                    firsts[int(number)] = _Image(
                        row["id"], name, row["image_offset"], row["image_length"]
                    )
        return cls(counts, firsts)

    def shared_with(self, other: _Found, same: Sequence[int]) -> Leak:
        """Return what this split shares with another, where the images of `same` keys are equal."""
        # Keys beyond MAX_CHECKED are not compared: equal checksums are all that is known.
        rest = self.counts[MAX_CHECKED:][other.counts[MAX_CHECKED:] > 0].sum()
        examples = tuple(
            (self.firsts[number].id, other.firsts[number].id) for number in same[:_MAX_EXAMPLES]
        )
        return Leak(int(self.counts[same].sum()), int(rest), examples)


def _compare(root: Folder, images: Sequence[_Image | None]) -> list[int | None]:
    """Return a number per image, equal for equal bytes; None for a missing image."""
    contents: dict[bytes, int] = {}
    result: list[int | None] = []
    for image in images:
        data = (
            None
            if image is None
            else root.read_range(image.shard.shard, image.offset, image.length)
        )
        result.append(None if data is None else contents.setdefault(data, len(contents)))
    return result
