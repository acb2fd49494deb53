"""Packing references into shards: the global order, and which position goes to which shard.

The order is by a 64-bit hash of (seed, id), ties by id: a shuffle that depends on nothing else. Records are first spread over
buckets by the hash's top bits; with the number of records in every bucket known, a bucket sorted on its own gives the exact
global position of each of its records, so shards come out exact without one place ever holding all references.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import UsageError
from transforms.hashing import hash64, spread_rows
from transforms.references import (
    PICTURE_TYPE,
    concat,
    extra_columns,
    keep_rows,
    record_bytes,
    reject_rows,
    set_column,
)
from transforms.rejects import Reject, RejectReason

if TYPE_CHECKING:
    from transforms.planning.sizing import SizeEstimate

ORDER_KEY = "order_key"
KNOWN_BYTES = (
    "known_bytes"  # what `known_sizes` gives, where the columns that it needs do not travel
)
DEFAULT_SHARD_BYTES = 150_000_000
# What a record adds to its image: frame 16, message tags and feature names about 60, on top of the id.
RECORD_OVERHEAD_BYTES = 80
_NUMBER_BYTES = 4  # a float; a whole number takes one for each seven bits


@dataclass(frozen=True, slots=True)
class ShardPolicy:
    """How many shards a split gets; exactly one of the first three rules is set.

    Attributes:
        num_bytes: Aim for shards of this many bytes: ceil(total / num_bytes) shards, equal to within one record; where sizes are
            an estimate, so many that none should be larger.
        num_records: Exactly this many records in every shard but the last.
        num_shards: This many shards a split, equal to within one record.
        multiple_of: Round the number of shards up to a multiple of this, for that many readers.
    """

    num_bytes: int | None = None
    num_records: int | None = None
    num_shards: int | None = None
    multiple_of: int = 1

    def __post_init__(self) -> None:
        rules = {
            "--shard-size": self.num_bytes,
            "--records-per-shard": self.num_records,
            "--shard-count": self.num_shards,
        }
        given = [name for name, value in rules.items() if value is not None]
        if len(given) != 1:
            raise UsageError(
                f"give one of --shard-size, --records-per-shard and --shard-count, not {len(given)} ({', '.join(given)})"
            )
        for name, value in (*rules.items(), ("--shard-count-multiple-of", self.multiple_of)):
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}; it must be 1 or more")
        if self.num_records and self.multiple_of > 1:
            raise UsageError(
                "--shard-count-multiple-of cannot be kept with --records-per-shard, which fixes every shard's size: "
                "use --shard-size or --shard-count with it"
            )

    def cut(
        self, num_records: int, num_bytes: int, estimate: SizeEstimate | None = None
    ) -> ShardCuts:
        """The shards of a split with that many records and bytes, which `estimate` gave if there is one.

        No shard is planned empty: with fewer records than shards, their number is the largest multiple that is not more,
        and with fewer records than one multiple, their own number.
        """
        if num_records == 0:
            return ShardCuts(0, 0)
        if self.num_records:
            return ShardCuts(num_records, -(-num_records // self.num_records), self.num_records)
        if self.num_bytes and estimate:
            count = estimate.shards_under(
                self.num_bytes, num_records=num_records, num_bytes=num_bytes
            )
        else:
            count = self.num_shards or -(-num_bytes // (self.num_bytes or 1))
        count = -(-max(count, 1) // self.multiple_of) * self.multiple_of
        most = num_records // self.multiple_of * self.multiple_of or num_records
        return ShardCuts(num_records, min(count, most))


@dataclass(frozen=True, slots=True)
class ShardCuts:
    """Where a split of `num_records` is cut into `num_shards`, evenly or every `records_per_shard` records."""

    num_records: int
    num_shards: int
    records_per_shard: int | None = None

    @property
    def starts(self) -> np.ndarray:
        """The first position of each shard, and the number of records last: shape [num_shards + 1], int64."""
        steps = np.arange(self.num_shards + 1, dtype=np.int64)
        if self.records_per_shard:
            return np.minimum(steps * self.records_per_shard, self.num_records)
        even, rest = divmod(self.num_records, max(self.num_shards, 1))
        return steps * even + np.minimum(steps, rest)

    @property
    def extremes(self) -> tuple[int, int]:
        """The fewest and the most records of a shard."""
        sizes = np.diff(self.starts)
        return (int(sizes.min()), int(sizes.max())) if len(sizes) else (0, 0)

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """(shard, first, last + 1) for the parts of positions [start, stop) that fall in each shard."""
        starts = self.starts
        shard = int(np.searchsorted(starts, start, side="right")) - 1
        while start < stop:
            end = min(stop, int(starts[shard + 1]))
            yield shard, start, end
            start, shard = end, shard + 1


@dataclass(frozen=True, slots=True)
class BucketCounts:
    """How many records, and bytes of them, each split has in one bucket."""

    bucket: int
    by_split: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything goes: each split's cuts, and each bucket's first position in each split.

    Attributes:
        cuts: By split, in name order.
        num_bytes: Estimated bytes of each split's shards.
        first_positions: By (bucket, split).
        estimate: What the bytes follow from, where images are encoded anew; None where their sizes are known.
    """

    cuts: Mapping[str, ShardCuts]
    num_bytes: Mapping[str, int]
    first_positions: Mapping[tuple[int, str], int]
    estimate: SizeEstimate | None = None

    @property
    def num_records(self) -> int:
        return sum(cuts.num_records for cuts in self.cuts.values())

    @property
    def num_shards(self) -> int:
        return sum(cuts.num_shards for cuts in self.cuts.values())


def lay_out(
    counts: Sequence[BucketCounts], policy: ShardPolicy, estimate: SizeEstimate | None = None
) -> Layout:
    """Prefix sums of the bucket counts, and the cuts of every split, whose bytes `estimate` tells if there is one."""
    records: dict[str, int] = {}
    num_bytes: dict[str, int] = {}
    first_positions = {}
    for bucket in sorted(counts, key=lambda count: count.bucket):
        for split, (bucket_records, bucket_bytes) in bucket.by_split.items():
            first_positions[bucket.bucket, split] = records.get(split, 0)
            records[split] = records.get(split, 0) + bucket_records
            num_bytes[split] = num_bytes.get(split, 0) + bucket_bytes
    splits = sorted(records)
    if estimate:
        num_bytes = {split: estimate.total(records[split], num_bytes[split]) for split in splits}
    cuts = {split: policy.cut(records[split], num_bytes[split], estimate) for split in splits}
    return Layout(cuts, {split: num_bytes[split] for split in splits}, first_positions, estimate)


def order_keys(ids: pa.Array, seed: int) -> np.ndarray:
    """What decides each record's place: uint64, shape [len(ids)]."""
    return hash64(ids, f"shardwright/order/{seed}")


def spread(
    batch: pa.RecordBatch, seed: int, num_buckets: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(bucket, references) with `ORDER_KEY`; `num_buckets` is a power of two and changes nothing in the final order."""
    keys = order_keys(batch.column("id"), seed)
    return spread_rows(set_column(batch, ORDER_KEY, pa.array(keys)), keys, num_buckets)


def sort_bucket(batches: Sequence[pa.RecordBatch]) -> tuple[pa.RecordBatch, list[Reject]]:
    """A bucket's references in the global order, without those whose id an earlier one has; "earlier" is by row, then uri."""
    batch = concat(batches)
    ordered = batch.sort_by(
        [(ORDER_KEY, "ascending"), ("id", "ascending"), ("row", "ascending"), ("uri", "ascending")]
    )
    ids = ordered.column("id")
    again = np.zeros(ordered.num_rows, bool)
    again[1:] = pc.equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    rejects = list(
        reject_rows(
            ordered,
            again,
            RejectReason.DUPLICATE_ID,
            "row {row}: an earlier input has the id {id!r}",
        )
    )
    return keep_rows(ordered, ~again), rejects


def count_bucket(bucket: int, batch: pa.RecordBatch) -> BucketCounts:
    """Records and estimated record bytes of each split in a sorted bucket."""
    sizes = batch.column(KNOWN_BYTES) if KNOWN_BYTES in batch.schema.names else known_sizes(batch)
    table = pa.table({"split": batch.column("split"), "size": sizes})
    totals = table.group_by("split").aggregate([("size", "count"), ("size", "sum")]).to_pydict()
    rows = zip(totals["split"], totals["size_count"], totals["size_sum"], strict=True)
    return BucketCounts(bucket, {split: (records, num_bytes) for split, records, num_bytes in rows})


def known_sizes(batch: pa.RecordBatch) -> pa.Array:
    """What is known of each record's bytes before an image is read, int64: its pictures as they are, its id and other features."""
    sizes = pc.add(pc.binary_length(batch.column("id")).cast(pa.int64()), RECORD_OVERHEAD_BYTES)
    sizes = pc.add(sizes, pa.array(record_bytes(batch), pa.int64()))
    for name in extra_columns(batch.schema):
        column = batch.column(name)
        if column.type != PICTURE_TYPE:
            sizes = pc.add(sizes, pc.add(_value_bytes(column), len(name)))
    return sizes


def _value_bytes(column: pa.Array) -> pa.Array:
    """About how many bytes the values of each row take in a tf.Example: those of texts, one for a byte of a small number."""
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        items = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64())
        flat = pc.cumulative_sum(_value_bytes(column.flatten())).to_numpy(zero_copy_only=False)
        ends = np.cumsum(items.to_numpy(zero_copy_only=False))
        sums = np.concatenate(([0], flat))[ends]
        return pa.array(np.diff(sums, prepend=0), pa.int64())
    if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())
    return pa.array(np.full(len(column), _NUMBER_BYTES), pa.int64())


def cut_bucket(
    bucket: int, batch: pa.RecordBatch, layout: Layout
) -> Iterator[tuple[tuple[str, int], tuple[int, pa.RecordBatch]]]:
    """((split, shard), (first position, references)) for each piece of a sorted bucket that one shard gets."""
    for split in pc.unique(batch.column("split")).to_pylist():
        rows = batch.filter(pc.equal(batch.column("split"), split)).drop_columns([ORDER_KEY])
        first = layout.first_positions[bucket, split]
        for shard, start, stop in layout.cuts[split].pieces(first, first + rows.num_rows):
            yield (split, shard), (start, rows.slice(start - first, stop - start))


def assemble(pieces: Sequence[tuple[int, pa.RecordBatch]]) -> pa.RecordBatch:
    """A shard's references in their final order, from its pieces in any order."""
    return concat([batch for _, batch in sorted(pieces, key=lambda piece: piece[0])])
