"""Lay out shards: decide how many each split has, and where each one begins.

Cuts by records follow from the number of records alone. Cuts by bytes take a second look at the
record sizes: prefix sums of the buckets' bytes give the byte at which every record begins, and the
shard of a record is the one in whose range of bytes the middle of the record lies. So a shard
differs from the target by at most half a record at each end, whatever the number of buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.sizes import counted, show_bytes
from shardwright.transforms.plan.packing import (
    KNOWN_BYTES,
    Layout,
    ShardCuts,
    ShardPolicy,
    known_sizes,
)
from shardwright.transforms.plan.size_estimate import SizeEstimate

# The order is a hash, so its first records are a random sample, the same for any buckets.
_SAMPLED = 1001
_FEWEST_MEDIANS = 10  # records of median size in a shard, below which one record shows in its size


@dataclass(frozen=True, slots=True)
class BucketSizes:
    """The known sizes of the records of a sorted bucket.

    Attributes:
        bucket: Number of the bucket.
        by_split: Split -> bytes of its records in order, int64 [records].
        first: The first sizes of the bucket, of all splits.
    """

    bucket: int
    by_split: Mapping[str, np.ndarray]
    first: np.ndarray


@dataclass(frozen=True, slots=True)
class BucketCounts:
    """The (records, bytes) of each split in one bucket, and its first record sizes."""

    bucket: int
    by_split: Mapping[str, tuple[int, int]]
    first: Sequence[int] | np.ndarray = ()


@dataclass(frozen=True, slots=True)
class Draft:
    """A layout cut by records, and what cuts by bytes take.

    Attributes:
        layout: The layout, final if there are no targets.
        policy: The rule for the number of shards.
        targets: Known bytes of a shard by split; empty if shards are cut by records.
        first_bytes: Known bytes before each bucket, by (bucket, split).
        median: Median bytes of a record.
    """

    layout: Layout
    policy: ShardPolicy
    targets: Mapping[str, int]
    first_bytes: Mapping[tuple[int, str], int]
    median: int


# Split -> (numbers of shards, in order, and the records that a bucket has in each).
Placed = Mapping[str, tuple[np.ndarray, np.ndarray]]


def size_bucket(bucket: int, batch: pa.RecordBatch) -> BucketSizes:
    """Return the record sizes of a sorted bucket."""
    # A plan without shards' contents drops the columns that the sizes follow from, and keeps the
    # result.
    known = batch.column(KNOWN_BYTES) if KNOWN_BYTES in batch.schema.names else known_sizes(batch)
    sizes, splits = known.to_numpy(zero_copy_only=False), batch.column("split")
    by_split = {
        split: sizes[pc.equal(splits, split).to_numpy(zero_copy_only=False)]
        for split in pc.unique(splits).to_pylist()
    }
    return BucketSizes(bucket, by_split, sizes[:_SAMPLED])


def count_bucket(sizes: BucketSizes) -> BucketCounts:
    """Count the records and bytes of each split in a bucket."""
    counts = {split: (len(found), int(found.sum())) for split, found in sizes.by_split.items()}
    return BucketCounts(sizes.bucket, counts, sizes.first)


def draft_layout(
    counts: Iterable[BucketCounts], policy: ShardPolicy, estimate: SizeEstimate | None = None
) -> Draft:
    """Return prefix sums of the bucket counts, and the cuts or target of every split."""
    records: dict[str, int] = {}
    known: dict[str, int] = {}
    first_positions, first_bytes = {}, {}
    # In bucket order, so that what was counted so far is where the next bucket starts.
    ordered = sorted(counts, key=lambda count: count.bucket)
    for count in ordered:
        for split, (bucket_records, bucket_bytes) in count.by_split.items():
            first_positions[count.bucket, split] = records.get(split, 0)
            first_bytes[count.bucket, split] = known.get(split, 0)
            records[split] = records.get(split, 0) + bucket_records
            known[split] = known.get(split, 0) + bucket_bytes
    splits = sorted(records)
    num_bytes = known
    if estimate:
        num_bytes = {split: estimate.total(records[split], known[split]) for split in splits}
    cuts = {split: policy.cut(records[split], num_bytes[split]) for split in splits}
    layout = Layout(cuts, {split: num_bytes[split] for split in splits}, first_positions, estimate)
    targets = {}
    # An estimate without a ratio predicts one size for all: cuts by records are cuts by bytes.
    if policy.num_bytes and not (estimate and estimate.ratio is None):
        for split in splits:
            shards = policy.shards_for(num_bytes[split])
            # In bytes that the plan knows, also if records are re-encoded: the ratio of the two is
            # the same for all.
            targets[split] = max(-(-known[split] // shards), 1)
    first = np.concatenate([np.empty(0), *(count.first for count in ordered)])[:_SAMPLED]
    median = int(np.median(first)) if len(first) else 0
    median = estimate.total(1, median) if estimate else median
    return Draft(layout, policy, targets, first_bytes, median)


def place_bucket(sizes: BucketSizes, draft: Draft) -> Placed:
    """Return the shards of a bucket's records, by the draft's targets."""
    placed = {}
    for split, found in sizes.by_split.items():
        if split in draft.targets:
            ends = draft.first_bytes[sizes.bucket, split] + np.cumsum(found)
            # Twice the middle of a record, by twice the target: whole numbers are exact.
            shards = (2 * ends - found) // (2 * draft.targets[split])
            # A few numbers for each bucket, instead of one for each record.
            placed[split] = np.unique(shards, return_counts=True)
    return placed


def lay_out(draft: Draft, placed: Sequence[Placed]) -> Layout:
    """Return the final layout, from the shards of all buckets' records in any order."""
    layout = draft.layout
    cuts = dict(layout.cuts)
    for split in draft.targets:
        numbers, counts = zip(*(bucket[split] for bucket in placed if split in bucket), strict=True)
        # A shard inside a record that is larger than the target gets none, and is left out.
        _, shards = np.unique(np.concatenate(numbers), return_inverse=True)
        records = np.bincount(shards, weights=np.concatenate(counts)).astype(np.int64)
        cuts[split] = _cut_at(records, draft.policy, layout.cuts[split])
    layout = replace(layout, cuts=cuts)
    size, least = draft.policy.num_bytes, _FEWEST_MEDIANS * draft.median
    if size is None or size >= least or layout.num_shards == len(layout.cuts):
        return layout
    warning = (
        f"--shard-size {size} is less than {_FEWEST_MEDIANS} records of the median size, "
        f"{show_bytes(draft.median)}, so {counted(layout.num_records, 'record')} are in "
        f"{counted(layout.num_shards, 'shard')}: use --shard-size {least} ({show_bytes(least)}) "
        "or more"
    )
    return replace(layout, warning=warning)


def _cut_at(records: np.ndarray, policy: ShardPolicy, by_records: ShardCuts) -> ShardCuts:
    """Return the cuts of a split with these records per shard, rounded up to a multiple."""
    num_records = by_records.num_records
    wanted = policy.multiple_above(len(records))
    if wanted > policy.most_shards(num_records):
        return by_records
    starts = [0, *np.cumsum(records).tolist()]
    while len(starts) <= wanted:
        sizes = np.diff(starts)
        largest = int(sizes.argmax())
        # The largest is halved, so that rounding up to a multiple makes no shard empty.
        starts.insert(largest + 1, starts[largest] + int(sizes[largest]) // 2)
    return ShardCuts(num_records, wanted, positions=tuple(starts[:-1]))


def shard_bytes(sizes: Iterable[BucketSizes], layout: Layout) -> dict[str, list[int]]:
    """Return the bytes of each shard by split, estimated as in the layout."""
    ordered = sorted(sizes, key=lambda bucket: bucket.bucket)
    found = {}
    for split, cuts in layout.cuts.items():
        known = np.concatenate([each.by_split[split] for each in ordered if split in each.by_split])
        found[split] = np.add.reduceat(known, cuts.starts[:-1]).tolist()
        if layout.estimate:
            pairs = zip(np.diff(cuts.starts).tolist(), found[split], strict=True)
            found[split] = [layout.estimate.total(*pair) for pair in pairs]
    return found
