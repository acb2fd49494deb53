"""Find images that are in two splits of a finished dataset, which would distort test results.

Images with equal length and CRC32C in the index are read from the shards and compared, at most
`MAX_CHECKED` of them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from shardwright.format.index import read_index
from shardwright.format.naming import ShardName
from shardwright.format.stats_keys import Leak
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads
from shardwright.transforms.hashing import distinct, is_among, joined

MAX_CHECKED = 1000  # images with equal checksums that are read and compared
_MAX_EXAMPLES = 5
_READERS = 16  # concurrent reads of sidecars or images
_KEY_COLUMNS = ["image_length", "crc32c"]

_Place = tuple[ShardName, dict[str, Any]]  # of an image: its shard and its index row


def find_leaks(
    root: Folder, splits: Mapping[str, Sequence[ShardName]]
) -> dict[str, dict[str, Leak]]:
    """Return the shared images by split and other split; pairs without any are omitted.

    Memory holds 24 bytes for each record of all splits but the last.

    Args:
        root: The dataset's folder.
        splits: The shards by split, smallest split first.

    Raises:
        StorageError: A sidecar or a shard cannot be read.
    """
    if len(splits) < 2:
        return {}
    keys, counts = _shared_keys(root, [*splits.values()])
    if not len(keys):
        return {}
    # The lowest keys, so that every run compares the same images.
    keys, others = keys[:MAX_CHECKED], counts[MAX_CHECKED:]
    # For each pair of splits: the records of one whose key is in the other, too.
    unchecked = others.T @ (others > 0)
    firsts = [
        _first_images(root, names, keys[counts[: len(keys), number] > 0])
        for number, names in enumerate(splits.values())
    ]
    images = ([found.get(key) for found in firsts] for key in keys.tolist())
    checked = list(map_reads(functools.partial(_compare, root), images, _READERS))
    leaks: dict[str, dict[str, Leak]] = {}
    for (here, split), (there, other) in itertools.permutations(enumerate(splits), 2):
        same = [
            row
            for row, contents in enumerate(checked)
            if contents[here] is not None and contents[here] == contents[there]
        ]
        if same or unchecked[here, there]:
            pairs = tuple(
                (firsts[here][key][1]["id"], firsts[there][key][1]["id"])
                for key in keys[same[:_MAX_EXAMPLES]].tolist()
            )
            records = int(counts[same, here].sum())
            leaks.setdefault(split, {})[other] = Leak(records, int(unchecked[here, there]), pairs)
    return leaks


def _shared_keys(
    root: Folder, splits: Sequence[Sequence[ShardName]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys that are in several splits, ascending, and their records by split.

    They are uint64 [keys] and int64 [keys, splits].
    """
    parts = []
    for names in splits[:-1]:
        keys = joined(map(_keys_of, _indices(root, names, _KEY_COLUMNS)), np.uint64)
        parts.append(keys[keys > 0])  # 0: a record without an image
    # Of the largest split, which may have far more records, only those that are elsewhere.
    known = distinct(joined(parts, np.uint64))
    found = map(_keys_of, _indices(root, splits[-1], _KEY_COLUMNS))
    parts.append(joined((keys[is_among(keys, known)] for keys in found), np.uint64))
    ordered = np.sort(joined(map(distinct, parts), np.uint64))
    shared = distinct(ordered[1:][ordered[1:] == ordered[:-1]])
    places = (np.searchsorted(shared, part[is_among(part, shared)]) for part in parts)
    return shared, np.stack([np.bincount(each, minlength=len(shared)) for each in places], axis=1)


def _indices(root: Folder, names: Sequence[ShardName], columns: list[str]) -> Iterator[pa.Table]:
    return map_reads(lambda name: read_index(root, name, columns), names, _READERS)


def _keys_of(rows: pa.Table) -> np.ndarray:
    """Return a uint64 key per image: its CRC32C and the low half of its length."""
    lengths = rows["image_length"].to_numpy().astype(np.uint64)
    return (lengths << np.uint64(32)) | rows["crc32c"].to_numpy().astype(np.uint64)


def _first_images(root: Folder, names: Sequence[ShardName], keys: np.ndarray) -> dict[int, _Place]:
    """Return the first record by position of each key, which are ascending."""
    firsts: dict[int, _Place] = {}
    columns = ["id", "image_offset", *_KEY_COLUMNS]
    for name, rows in zip(names, _indices(root, names, columns), strict=False):
        all_keys = _keys_of(rows)
        hits = np.flatnonzero(is_among(all_keys, keys))
        for key, first in zip(*np.unique(all_keys[hits], return_index=True), strict=True):
            if int(key) not in firsts:
                firsts[int(key)] = name, rows.slice(int(hits[first]), 1).to_pylist()[0]
        if len(firsts) == len(keys):
            break
    return firsts


def _compare(root: Folder, images: Sequence[_Place | None]) -> list[int | None]:
    """Return a number per image, equal for equal bytes; None for a missing image."""
    contents: dict[bytes, int] = {}
    result: list[int | None] = []
    for image in images:
        if image is None:
            result.append(None)
            continue
        name, row = image
        data = root.read_range(name.shard, row["image_offset"], row["image_length"])
        # By the bytes themselves: equal length and CRC32C may be chance among many images.
        result.append(contents.setdefault(data, len(contents)))
    return result
