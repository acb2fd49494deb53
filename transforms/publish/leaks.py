"""Find images that are in two splits of a finished dataset, which would distort test results.

Images with equal length and CRC32C in the index are read from the shards and compared, at most
`MAX_CHECKED` of them.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shardwright.format.index import read_index
from shardwright.format.naming import ShardName
from shardwright.format.stats_keys import Leak
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads
from shardwright.transforms.batch_file import BatchFile, Place
from shardwright.transforms.hashing import is_among

MAX_CHECKED = 1000  # images with equal checksums that are read and compared
_MAX_EXAMPLES = 5
_READERS = 16  # concurrent reads of sidecars or images
_NUM_RANGES = 256  # bounds the keys that are compared at once
_MAX_HELD = 1 << 20  # records whose keys are in memory, 16 bytes each
_KEY_COLUMNS = ["image_length", "crc32c"]


def find_leaks(
    root: Folder, splits: Mapping[str, Sequence[ShardName]]
) -> dict[str, dict[str, Leak]]:
    """Return the shared images by split and other split; pairs without any are omitted.

    Memory holds the keys of one in `_NUM_RANGES` records; all are in a temporary file meanwhile.

    Args:
        root: The dataset's folder.
        splits: The shards by split, smallest split first.

    Raises:
        StorageError: A sidecar or a shard cannot be read.
    """
    shared = _Shared(len(splits))
    if len(splits) > 1:
        for keys, numbers in _ranges_of(root, list(splits.values())):
            shared.add(keys, numbers)
    if not len(shared.keys):
        return {}
    firsts = [
        _first_images(root, names, shared.keys[shared.counts[:, number] > 0])
        for number, names in enumerate(splits.values())
    ]
    images = ([found.get(key) for found in firsts] for key in shared.keys.tolist())
    checked = list(map_reads(functools.partial(_compare, root), images, _READERS))
    leaks: dict[str, dict[str, Leak]] = {}
    for (here, split), (there, other) in itertools.permutations(enumerate(splits), 2):
        same = [
            row
            for row, contents in enumerate(checked)
            if contents[here] is not None and contents[here] == contents[there]
        ]
        unchecked = int(shared.unchecked[here, there])
        if same or unchecked:
            records = int(shared.counts[same, here].sum())
            examples = shared.keys[same[:_MAX_EXAMPLES]].tolist()
            pairs = tuple((firsts[here][key].id, firsts[there][key].id) for key in examples)
            leaks.setdefault(split, {})[other] = Leak(records, unchecked, pairs)
    return leaks


class _Shared:
    """The keys that are in several splits: the lowest `MAX_CHECKED`, and counts of the others.

    Attributes:
        keys: Ascending, uint64 [keys].
        counts: Records of each key by split, int64 [keys, splits].
        unchecked: Records of all other keys in a split that are in another one, int64
            [splits, splits].
    """

    def __init__(self, num_splits: int) -> None:
        self.keys = np.zeros(0, np.uint64)
        self.counts = np.zeros((0, num_splits), np.int64)
        self.unchecked = np.zeros((num_splits, num_splits), np.int64)

    def add(self, keys: np.ndarray, numbers: np.ndarray) -> None:
        """Add the keys of all records in a range, and the numbers of their splits."""
        num_splits = len(self.unchecked)
        distinct, places = np.unique(keys, return_inverse=True)
        found = np.bincount(places * num_splits + numbers, minlength=len(distinct) * num_splits)
        counts = found.reshape(-1, num_splits)
        shared = np.count_nonzero(counts, axis=1) > 1
        keys = np.concatenate([self.keys, distinct[shared]])
        counts = np.concatenate([self.counts, counts[shared]])
        # The lowest keys are kept, whatever the order of the ranges, so that every run compares the
        # same images.
        order = np.argsort(keys)
        lowest, others = order[:MAX_CHECKED], counts[order[MAX_CHECKED:]]
        self.keys, self.counts = keys[lowest], counts[lowest]
        # For each pair of splits: the records of one whose key is in the other, too.
        self.unchecked += others.T @ (others > 0)


def _ranges_of(
    root: Folder, splits: Sequence[Sequence[ShardName]]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the keys of all records, range by range, and the numbers of their splits.

    Those of many records are in a temporary file meanwhile, so that memory holds a range.
    """
    file, pieces = BatchFile(), defaultdict[int, list[Place]](list)
    held, num_held = [np.zeros((2, 0), np.uint64)], 0
    for number, names in enumerate(splits):
        for rows in _indices(root, names, _KEY_COLUMNS):
            keys = _keys_of(rows)
            keys = keys[keys > 0]  # 0: a record without an image
            held.append(np.stack([keys, np.full_like(keys, number)]))
            num_held += len(keys)
            # Small datasets never get here, and need no temporary file.
            if num_held >= _MAX_HELD:
                _write_ranges(np.concatenate(held, axis=1), file, pieces)
                held, num_held = held[:1], 0
    if not pieces:
        yield _keys_and_numbers(held)
        return
    if num_held:
        _write_ranges(np.concatenate(held, axis=1), file, pieces)
    for places in pieces.values():
        batches = map(file.read, places)
        yield _keys_and_numbers([np.stack([column.to_numpy() for column in b]) for b in batches])


def _keys_and_numbers(held: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    keys, numbers = np.concatenate(held, axis=1)
    return keys, numbers.astype(np.int64)


def _write_ranges(records: np.ndarray, file: BatchFile, pieces: dict[int, list[Place]]) -> None:
    """Write keys and numbers of splits, uint64 [2, records], by the range of the key."""
    ranges = records[0] % np.uint64(_NUM_RANGES)  # of the CRC32C, because lengths are alike
    order = np.argsort(ranges, kind="stable")
    found, starts = np.unique(ranges[order], return_index=True)
    for number, part in zip(
        found.tolist(), np.split(records[:, order], starts[1:], axis=1), strict=True
    ):
        batch = pa.RecordBatch.from_arrays([pa.array(row) for row in part], ["key", "split"])
        pieces[number].append(file.add(batch))


def _indices(root: Folder, names: Sequence[ShardName], columns: list[str]) -> Iterator[pa.Table]:
    return map_reads(lambda name: read_index(root, name, columns), names, _READERS)


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


def _first_images(root: Folder, names: Sequence[ShardName], keys: np.ndarray) -> dict[int, _Image]:
    """Return the first record by position of each key, which are ascending."""
    firsts: dict[int, _Image] = {}
    columns = ["id", "image_offset", *_KEY_COLUMNS]
    for name, rows in zip(names, _indices(root, names, columns), strict=False):
        all_keys = _keys_of(rows)
        hits = np.flatnonzero(is_among(all_keys, keys))
        for key, first in zip(*np.unique(all_keys[hits], return_index=True), strict=True):
            if int(key) not in firsts:
                row = rows.slice(int(hits[first]), 1).to_pylist()[0]
                firsts[int(key)] = _Image(row["id"], name, row["image_offset"], row["image_length"])
        if len(firsts) == len(keys):
            break
    return firsts


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
        # By the bytes themselves: equal length and CRC32C may be chance among many images.
        result.append(None if data is None else contents.setdefault(data, len(contents)))
    return result
