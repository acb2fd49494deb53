"""Choose a sample of a dataset's images: pictures to look at, and their signals.

The sample is a function of the dataset alone. A split has its part of it in proportion to its
records, at least a share of its own; in a split, each class has at least one record if there are
enough, and the rest in proportion. Inside a class, records are chosen by a hash of their id.

The sidecars of a few shards are read, spread evenly over the splits: shards hold records in the
order of a hash, so any shard is a sample by itself.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.format.index import CHECKED, read_live_rows
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.splits import ShardInfo
from shardwright.storage.folder import Folder
from shardwright.storage.reads import map_reads

MAX_RECORDS = 2000
_MAX_SHARDS = 16
# A photograph takes 3 ms of CPU: at one in 1,000 about 3% of the time of a build.
_MIN_RECORDS, _ONE_IN = 64, 1000
# Records of a split are chosen among its first rows: enough that rare classes are there.
_LEAST_CANDIDATES, _CANDIDATES_A_RECORD = 2048, 4
TASK_RECORDS, _READERS = 16, 16
_COLUMNS = ["id", "label", *CHECKED, "image_length", "format", "width", "height"]


class SamplePlace(NamedTuple):
    """A record to read.

    Attributes:
        shard: Its shard.
        row: Its index row: the columns id, label, offset, length, image_length, format, width and
            height.
    """

    shard: ShardName
    row: Mapping[str, Any]


def sample_size(num_records: int) -> int:
    """Return the size of a build's sample: one record in 1,000, at least 64, at most 2,000."""
    return min(num_records, MAX_RECORDS, max(_MIN_RECORDS, num_records // _ONE_IN))


def sampled_shards(number: int, num_records: int, num_shards: int) -> int:
    """Return how many shards a sample is read from: few, but with twice its records.

    Args:
        number: The size of the sample.
        num_records: Records of the dataset.
        num_shards: Its shards.
    """
    twice = -(-2 * number * num_shards // max(num_records, 1))
    return min(_MAX_SHARDS, max(-(-number // TASK_RECORDS), twice))


def choose_sample(root: Folder, manifest: Manifest, number: int) -> list[SamplePlace]:
    """Return about `number` records with images, ordered by split, shard and row.

    Args:
        root: The dataset's folder.
        manifest: Its manifest, perhaps not yet written.
        number: Size of the sample.

    Raises:
        StorageError: A sidecar cannot be read.
    """
    places: list[SamplePlace] = []
    numbers = _numbers(manifest, number)
    num_shards = sampled_shards(number, manifest.num_records, len(manifest.named_shards()))
    for split, wanted in numbers.items():
        share = num_shards * wanted // sum(numbers.values())
        whole = manifest.named_shards(split)
        count = min(max(1, share), len(whole))
        shards = [whole[place * len(whole) // count] for place in range(count)]
        among = max(_LEAST_CANDIDATES, _CANDIDATES_A_RECORD * wanted)
        places += _chosen(_candidates(root, shards, among), wanted)
    return places


def _numbers(manifest: Manifest, number: int) -> dict[str, int]:
    """Return the size of each split's sample; the largest split yields to small ones."""
    sizes = {name: split.num_records for name, split in manifest.splits.items()}
    total, share = sum(sizes.values()), number // (4 * max(len(sizes), 1))
    wanted = {
        name: min(size, max(share, round(number * size / total)))
        for name, size in sizes.items()
        if size
    }
    if wanted:
        largest = max(wanted, key=lambda name: wanted[name])
        wanted[largest] -= max(0, sum(wanted.values()) - number)
    return wanted


def _candidates(
    root: Folder, shards: Sequence[tuple[ShardName, ShardInfo]], number: int
) -> list[SamplePlace]:
    """Return `number` records of all shards together, among which some are chosen."""
    most = -(-number // len(shards))

    def first_rows(shard: tuple[ShardName, ShardInfo]) -> pa.Table:
        rows = read_live_rows(root, *shard, _COLUMNS).slice(0, most)
        ends = pc.add(rows["offset"], rows["length"])
        inside = pc.less_equal(ends, shard[1].num_bytes)
        inside = pc.and_(pc.greater_equal(rows["offset"], 0), inside)
        filled = pc.and_(pc.greater(rows["image_length"], 0), pc.greater(rows["length"], 0))
        return rows.filter(pc.and_(inside, filled))

    read = zip(shards, map_reads(first_rows, shards, _READERS), strict=True)
    return [SamplePlace(name, row) for (name, _), rows in read for row in rows.to_pylist()]


def _chosen(candidates: Sequence[SamplePlace], number: int) -> list[SamplePlace]:
    """Return the first record of each class by hash, and then of each class in proportion."""
    classes: defaultdict[int | None, list[tuple[bytes, int]]] = defaultdict(list)
    for index, (_, row) in enumerate(candidates):
        name = row["id"].encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(name, digest_size=8).digest()
        classes[row["label"]].append((digest, index))
    ranked = [
        (rank and (rank + 0.5) / len(found), digest, index)
        for found in classes.values()
        for rank, (digest, index) in enumerate(sorted(found))
    ]
    first = heapq.nsmallest(number, ranked)
    return [candidates[place] for place in sorted(index for _, _, index in first)]
