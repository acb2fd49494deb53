"""Plan shards: define the global order, cut it, and give each shard its digest.

The order is by a 64-bit hash of (seed, id), ties by id: a shuffle that depends on nothing else.
Records are spread over buckets by the hash's top bits. The record counts of all buckets give the
first position of each, so sorting a bucket on its own gives exact global positions. Shards come out
exact although no worker ever holds all references.

Cuts by records follow from the number of records alone. Cuts by bytes take a second look at the
record sizes: prefix sums of the buckets' bytes give the byte at which every record begins, and the
shard of a record is the one in whose range of bytes the middle of the record lies. So a shard
differs from the target by at most half a record at each end, whatever the number of buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta
from numpy.typing import NDArray

from shardwright.errors import UsageError
from shardwright.format.json_files import Number
from shardwright.format.naming import ShardName
from shardwright.sizes import counted, show_bytes
from shardwright.transforms.hashing import hash64, spread_rows
from shardwright.transforms.references import (
    EXTRA_PREFIX,
    HASH,
    ORIGIN,
    PICTURE_TYPE,
    QUERY,
    RECORD_CRC,
    STATED_SIZE,
    SUFFIX,
    concat,
    digest_of,
    extra_columns,
    from_ipc,
    keep_rows,
    record_bytes,
    reject_rows,
    set_column,
    to_ipc,
)
from shardwright.transforms.rejects import Reject, RejectReason


@dataclass(frozen=True, slots=True)
class SizeEstimate:
    """An estimate of record sizes in bytes, frames included.

    Attributes:
        sample: Hash of the sampled references and of the settings.
        num_sampled: Number of records made.
        mean: Mean size in the sample.
        ratio: Bytes written per byte known to the plan; None if the mean predicts sizes better.
    """

    sample: str
    num_sampled: Annotated[int, Meta(ge=1)]
    mean: Number
    ratio: Number | None

    @classmethod
    def of(cls, known: np.ndarray, made: np.ndarray, *, sample: str) -> SizeEstimate:
        """Compute the estimate from a sample.

        Args:
            known: Bytes of each record known to the plan, shape [n], n > 0.
            made: Bytes of each record as written, shape [n].
            sample: Hash of the sample.
        """
        mean, ratio = float(made.mean()), float(made.sum() / max(known.sum(), 1))
        # After a resize all records are about as large; with re-encoding alone, large files stay
        # large.
        by_ratio = ((made - ratio * known) ** 2).sum() < ((made - mean) ** 2).sum()
        return cls(sample, len(made), mean, ratio if by_ratio else None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def total(self, num_records: int, known_bytes: int) -> int:
        """Return the estimated bytes of records of which the plan knows `known_bytes`."""
        return round(self.mean * num_records if self.ratio is None else self.ratio * known_bytes)


ORDER_KEY = "order_key"
# The column with the result of `known_sizes`, if the columns that it needs were dropped.
KNOWN_BYTES = "known_bytes"
DEFAULT_SHARD_BYTES = 150_000_000
# Bytes of a record besides its image and id: 16 for the frame, about 60 for tags and names.
RECORD_OVERHEAD_BYTES = 80
_NUMBER_BYTES = 4  # of a float; an integer takes one byte per seven bits


@dataclass(frozen=True, slots=True)
class ShardPolicy:
    """A rule for the number of shards per split; exactly one of the first three is set.

    Attributes:
        num_bytes: Target size: ceil(total / num_bytes) shards of equal bytes, to within one record.
        num_records: Exactly this many records in every shard but the last.
        num_shards: Exactly this many shards per split, equal to within one record.
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
                "give one of --shard-size, --records-per-shard and --shard-count, "
                f"not {len(given)} ({', '.join(given)})"
            )
        for name, value in (*rules.items(), ("--shard-count-multiple-of", self.multiple_of)):
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, got {value}")
        if self.num_records and self.multiple_of > 1:
            raise UsageError(
                "--shard-count-multiple-of cannot be combined with --records-per-shard, which "
                "decides the number of shards: use --shard-size or --shard-count"
            )

    def cut(self, num_records: int, num_bytes: int) -> ShardCuts:
        """Return the cuts of a split by records.

        No shard is planned empty. With fewer records than shards, the number of shards is rounded
        down to a multiple; with fewer records than one multiple, it is the number of records.
        """
        if num_records == 0:
            return ShardCuts(0, 0)
        if self.num_records:
            return ShardCuts(num_records, -(-num_records // self.num_records), self.num_records)
        return ShardCuts(
            num_records, min(self.shards_for(num_bytes), self.most_shards(num_records))
        )

    def shards_for(self, num_bytes: int) -> int:
        """Return the number of shards for this size or number, however many records there are."""
        count = self.num_shards or -(-num_bytes // (self.num_bytes or 1))
        return self.multiple_above(max(count, 1))

    def multiple_above(self, count: int) -> int:
        """Return a number of shards, rounded up."""
        return -(-count // self.multiple_of) * self.multiple_of

    def most_shards(self, num_records: int) -> int:
        """Return the most shards without an empty one."""
        # With fewer records than readers, a multiple is impossible.
        return num_records // self.multiple_of * self.multiple_of or num_records


@dataclass(frozen=True, slots=True)
class ShardCuts:
    """The cuts of a split into shards: at positions, every so many records, or else evenly.

    Attributes:
        num_records: Records of the split.
        num_shards: Shards of the split.
        records_per_shard: Records of every shard but the last.
        positions: The first position of each shard, if they are cut by bytes.
    """

    num_records: int
    num_shards: int
    records_per_shard: int | None = None
    positions: tuple[int, ...] = ()

    @property
    def starts(self) -> np.ndarray:
        """The first position of each shard, then the number of records: int64 [num_shards + 1]."""
        if self.positions:
            return np.array([*self.positions, self.num_records], np.int64)
        steps = np.arange(self.num_shards + 1, dtype=np.int64)
        if self.records_per_shard:
            return np.minimum(steps * self.records_per_shard, self.num_records)
        # The first `rest` shards have one record more.
        even, rest = divmod(self.num_records, max(self.num_shards, 1))
        return steps * even + np.minimum(steps, rest)

    @property
    def extremes(self) -> tuple[int, int]:
        """The fewest and the most records in a shard."""
        sizes = np.diff(self.starts)
        return (int(sizes.min()), int(sizes.max())) if len(sizes) else (0, 0)

    def pieces(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield (shard, first, last + 1) for the parts of [start, stop) in each shard."""
        starts = self.starts
        shard = int(np.searchsorted(starts, start, side="right")) - 1
        while start < stop:
            end = min(stop, int(starts[shard + 1]))
            yield shard, start, end
            start, shard = end, shard + 1


@dataclass(frozen=True, slots=True)
class Layout:
    """The cuts of each split, and the first position of each bucket.

    Attributes:
        cuts: Cuts by split, in name order.
        num_bytes: Estimated bytes of each split's shards.
        first_positions: First position by (bucket, split).
        estimate: The estimate behind `num_bytes` for re-encoded images; None for known sizes.
        warning: A message about shards that are smaller than they should be, or "".
    """

    cuts: Mapping[str, ShardCuts]
    num_bytes: Mapping[str, int]
    first_positions: Mapping[tuple[int, str], int]
    estimate: SizeEstimate | None = None
    warning: str = ""

    @property
    def num_records(self) -> int:
        return sum(cuts.num_records for cuts in self.cuts.values())

    @property
    def num_shards(self) -> int:
        return sum(cuts.num_shards for cuts in self.cuts.values())


def order_keys(ids: pa.Array, seed: int) -> np.ndarray:
    """Return the sort keys of the global order, uint64 [len(ids)]."""
    return hash64(ids, f"shardwright/order/{seed}")


def spread(
    batch: pa.RecordBatch, seed: int, num_buckets: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (bucket, references) with `ORDER_KEY`; `num_buckets` is a power of two.

    The number of buckets does not affect the final order.
    """
    keys = order_keys(batch.column("id"), seed)
    return spread_rows(set_column(batch, ORDER_KEY, pa.array(keys)), keys, num_buckets)


def sort_bucket(
    batches: Sequence[pa.RecordBatch], columns: Sequence[str] = ()
) -> tuple[pa.RecordBatch, list[Reject]]:
    """Sort a bucket into the global order and reject ids that an earlier row or uri has.

    Args:
        batches: The references of the bucket, in any order.
        columns: The columns to return, or () for all.
    """
    batch = concat(batches)
    keys = batch.column(ORDER_KEY).to_numpy()
    # Not stable, and faster: with distinct keys there is one order only.
    order = np.argsort(keys)
    # Equal ids have equal keys, so they share a bucket and are neighbors in it.
    if not (np.diff(keys[order]) == 0).any():
        return (batch.select(columns) if columns else batch).take(pa.array(order)), []
    # By row and uri, too: which of two equal ids stays must not depend on which arrived first.
    ordered = batch.sort_by([(name, "ascending") for name in (ORDER_KEY, "id", "row", "uri")])
    ids = ordered.column("id")
    again = np.zeros(ordered.num_rows, bool)
    # By id, because different ids may have the same 64-bit hash.
    again[1:] = pc.equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
    rejects = list(
        reject_rows(
            ordered,
            again,
            RejectReason.DUPLICATE_ID,
            "row {row}: an earlier input has the id {id!r}",
        )
    )
    return keep_rows(ordered.select(columns) if columns else ordered, ~again), rejects


def known_sizes(batch: pa.RecordBatch) -> pa.Array:
    """Return the bytes of each record known before images are read, int64 [rows]."""
    # Columns of copied records are not read. Without lists and texts the sizes are known all the
    # same, and a copied dataset has the shards of a new one; with them, the index has the sizes.
    types = (batch.schema.field(name).type for name in extra_columns(batch.schema))
    if ORIGIN in batch.schema.names and not all(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in types
    ):
        return pc.struct_field(batch.column(ORIGIN), "length")
    sizes = pc.binary_length(batch.column("id")).to_numpy(zero_copy_only=False).astype(np.int64)
    sizes += np.array(record_bytes(batch), np.int64) + RECORD_OVERHEAD_BYTES
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        # `record_bytes` has counted the images already.
        if name.startswith(EXTRA_PREFIX) and column.type != PICTURE_TYPE:
            sizes += len(name) + _value_bytes(column)
    return pa.array(sizes)


def _value_bytes(column: pa.Array) -> NDArray[np.int64] | int:
    """Estimate the bytes of each row's values in a tf.Example, int64 [rows]; one for all rows."""
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        items = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        values = column.flatten()
        # Running sums at the ends of the lists: their differences are right for empty lists, too.
        sums = np.zeros(len(values) + 1, np.int64)
        sums[1:] = _value_bytes(values)
        return np.diff(np.cumsum(sums)[np.cumsum(items)], prepend=0)
    if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        lengths = pc.fill_null(pc.binary_length(column), 0)
        return lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return _NUMBER_BYTES


def cut_bucket(
    bucket: int, batch: pa.RecordBatch, layout: Layout
) -> Iterator[tuple[tuple[str, int], tuple[int, pa.RecordBatch]]]:
    """Yield ((split, shard), (first position, references)) for each piece of a sorted bucket."""
    for split in pc.unique(batch.column("split")).to_pylist():
        rows = batch.filter(pc.equal(batch.column("split"), split)).drop_columns([ORDER_KEY])
        # The number of the split's records in all buckets before this one.
        first = layout.first_positions[bucket, split]
        for shard, start, stop in layout.cuts[split].pieces(first, first + rows.num_rows):
            yield (split, shard), (start, rows.slice(start - first, stop - start))


def assemble(pieces: Sequence[tuple[int, pa.RecordBatch]]) -> pa.RecordBatch:
    """Concatenate a shard's pieces, given in any order, in their final order."""
    return concat([batch for _, batch in sorted(pieces, key=lambda piece: piece[0])])


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


@dataclass(frozen=True)
class ShardPlan:
    """A shard to write.

    Attributes:
        name: The shard's name, with split, number and count.
        digest: Hash of the settings that decide bytes and of the ordered references.
        references: Rows in record order, with `REFERENCE_SCHEMA`, label index and extra features.
    """

    name: ShardName
    digest: str
    references: pa.RecordBatch

    @classmethod
    def make(cls, name: ShardName, references: pa.RecordBatch, settings: bytes) -> ShardPlan:
        """Make a plan; drop the rows and groups, which decide nothing once a shard is planned.

        The digest is the same for other signatures of the same URLs.
        """
        references = references.drop_columns(["row", "group"])
        # What these say follows from other columns, or decides nothing about the bytes.
        others = {QUERY, STATED_SIZE, HASH, SUFFIX, RECORD_CRC}
        hashed = [column for column in references.schema.names if column not in others]
        return cls(name, digest_of(settings, references.select(hashed)), references)

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.name, self.digest, to_ipc(self.references))


def _restore(name: ShardName, digest: str, references: bytes) -> ShardPlan:
    return ShardPlan(name, digest, from_ipc(references))
