"""Draw splits with exact numbers of records, in total or per class, by ranks of a stable hash.

No worker sorts all records. A first pass counts them by class and the top bits of their hash, which
tells the bucket of each cut. A second pass collects the hashes in just those buckets, which gives
the exact cuts. The result is a few thresholds per class; a record's hash decides its split.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shardwright.errors import BuildError
from shardwright.transforms.hashing import hash64, joined
from shardwright.transforms.references import set_column
from shardwright.transforms.splits.apportion import apportion
from shardwright.transforms.splits.split_rules import SplitRule, split_hash

BUCKET_BITS = 12
MAX_ENTRIES = 1 << 22  # of a histogram, 100 MB; beyond that its buckets get larger
NO_CLASS = 0
_LAST = np.uint64(2**64 - 1)
_CLASS_SALT = "shardwright/class"


@dataclass(frozen=True, slots=True)
class HashHistogram:
    """The number of records by class and bucket of hashes, without empty entries, in order.

    Attributes:
        bits: Number of top bits of the hash that are the bucket's number.
        classes: Classes as in `classes_of`, uint64 [entries].
        buckets: Bucket numbers, uint64 [entries].
        counts: Records, int64 [entries].
    """

    bits: int
    classes: np.ndarray
    buckets: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True, slots=True)
class Cuts:
    """The cuts of each class into splits, as far as a histogram tells.

    Attributes:
        bits: Bits of the histogram's buckets.
        classes: Sorted classes, uint64 [classes].
        buckets: The bucket of each cut, uint64 [classes, splits - 1].
        ranks: Number of hashes of the bucket before the cut, int64 [classes, splits - 1]; -1 for a
            cut after the last record of the class.
    """

    bits: int
    classes: np.ndarray
    buckets: np.ndarray
    ranks: np.ndarray

    @property
    def is_open(self) -> np.ndarray:
        """The cuts inside a bucket, whose hashes must be collected, bool [classes, splits - 1]."""
        return self.ranks > 0


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The first hash of each split but the first, by class.

    Attributes:
        names: Names of the splits.
        classes: Sorted classes, uint64 [classes].
        hashes: Thresholds, uint64 [classes, splits - 1].
        stratify: Distinguish classes.
    """

    names: tuple[str, ...]
    classes: np.ndarray
    hashes: np.ndarray
    stratify: bool


def classes_of(batch: pa.RecordBatch, *, stratify: bool) -> np.ndarray:
    """Return a uint64 per row: the hash of its label, or `NO_CLASS`; all 1 without `stratify`."""
    if not stratify:
        return np.ones(batch.num_rows, np.uint64)
    labels = batch.column("label").dictionary_encode()
    numbers = hash64(labels.dictionary, _CLASS_SALT) | np.uint64(1)  # never NO_CLASS
    indices = labels.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)
    return np.append(numbers, np.uint64(NO_CLASS))[indices]


def count_hashes(batch: pa.RecordBatch, *, stratify: bool) -> HashHistogram:
    """Return the histogram of a batch."""
    classes = classes_of(batch, stratify=stratify)
    buckets = split_hash(batch.column("id")) >> np.uint64(64 - BUCKET_BITS)
    return _summed(BUCKET_BITS, classes, buckets, np.ones(len(classes), np.int64))


def merge_histograms(parts: Iterable[HashHistogram]) -> HashHistogram:
    """Return the sum of histograms, with buckets as small as `MAX_ENTRIES` allows."""
    given = list(parts)
    bits = min((part.bits for part in given), default=BUCKET_BITS)
    merged = _summed(
        bits,
        joined((part.classes for part in given), np.uint64),
        joined((part.buckets >> np.uint64(part.bits - bits) for part in given), np.uint64),
        joined((part.counts for part in given), np.int64),
    )
    # One bit less: two neighboring buckets become one.
    while len(merged.counts) > MAX_ENTRIES and merged.bits > 1:
        merged = _summed(
            merged.bits - 1, merged.classes, merged.buckets >> np.uint64(1), merged.counts
        )
    return merged


def _summed(
    bits: int, classes: np.ndarray, buckets: np.ndarray, counts: np.ndarray
) -> HashHistogram:
    return HashHistogram(bits, *sum_pairs(classes, buckets, counts))


def sum_pairs(
    first: np.ndarray, second: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct pairs in order, and the sum of the counts of each."""
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    starts = np.flatnonzero(is_new)
    return (
        first[starts],
        second[starts],
        np.add.reduceat(counts[order], starts) if len(starts) else counts,
    )


def find_cuts(histogram: HashHistogram, rule: SplitRule, *, stratify: bool) -> Cuts:
    """Find the cuts of each class.

    Raises:
        BuildError: There are too few records for the rule, or no classes to stratify by.
    """
    # Entries are in order of class and bucket, so their running total locates each cut's entry.
    classes, starts = np.unique(histogram.classes, return_index=True)
    check_classes(classes, stratify=stratify)
    before = np.append(0, np.cumsum(histogram.counts))
    firsts = before[starts]
    counts = np.diff(np.append(firsts, before[-1]))
    parts = apportion(counts, rule.totals(int(before[-1])))
    ranks = np.cumsum(parts, axis=1)[:, :-1]
    positions = firsts[:, None] + ranks
    # A cut after the very last record has no entry: any will do, because its rank becomes -1.
    entries = np.minimum(
        np.searchsorted(before, positions, side="right") - 1, max(len(histogram.counts) - 1, 0)
    )
    buckets = histogram.buckets[entries] if len(classes) else np.zeros(ranks.shape, np.uint64)
    return Cuts(
        histogram.bits,
        classes,
        buckets,
        # What is left of the cut's position inside its bucket: 0 is the start of the bucket.
        np.where(ranks == counts[:, None], -1, positions - before[entries]),
    )


def check_classes(classes: np.ndarray, *, stratify: bool) -> None:
    """Raise BuildError if there are no classes to stratify by."""
    if stratify and len(classes) and (classes == NO_CLASS).all():
        raise BuildError(
            "--stratify needs labels, but no record has a label of its own (boxes and lists of "
            "labels do not count): remove --stratify, or set --label-column"
        )


def collect_hashes(
    batch: pa.RecordBatch, cuts: Cuts, *, stratify: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the hashes of a batch in buckets with a cut, and before them their class positions."""
    classes = np.searchsorted(cuts.classes, classes_of(batch, stratify=stratify))
    hashes = split_hash(batch.column("id"))
    buckets = hashes >> np.uint64(64 - cuts.bits)
    # Any of the cuts of its own class.
    wanted = ((cuts.buckets[classes] == buckets[:, None]) & cuts.is_open[classes]).any(axis=1)
    return classes[wanted], hashes[wanted]


def find_thresholds(
    collected: Iterable[tuple[np.ndarray, np.ndarray]],
    cuts: Cuts,
    rule: SplitRule,
    *,
    stratify: bool,
) -> Thresholds:
    """Return the exact cuts.

    Memory: 16 bytes per record in a bucket with a cut, about (splits - 1) / 4096 of all records.

    Raises:
        BuildError: The records have changed since they were counted.
    """
    given = list(collected)
    classes = joined((part[0] for part in given), np.int64)
    hashes = joined((part[1] for part in given), np.uint64)
    order = np.lexsort((hashes, classes))
    classes, hashes = classes[order].astype(np.uint64), hashes[order]
    shift = np.uint64(cuts.bits)
    # One sorted key of class and bucket: a single search finds where each bucket starts.
    keys = (classes << shift) | (hashes >> np.uint64(64 - cuts.bits))
    wanted = (np.arange(len(cuts.classes), dtype=np.uint64)[:, None] << shift) | cuts.buckets
    # The threshold is the hash at this place: the first one of the next split.
    positions = np.searchsorted(keys, wanted) + cuts.ranks
    if cuts.is_open.any() and (
        positions[cuts.is_open].max() >= len(keys)
        or (keys[positions[cuts.is_open]] != wanted[cuts.is_open]).any()
    ):
        raise BuildError(
            "INPUT changed while its splits were drawn (files added or removed): "
            "run the build again"
        )
    # A cut at a bucket's start is its first possible hash; none was collected for it.
    found = np.where(cuts.ranks < 0, _LAST, cuts.buckets << np.uint64(64 - cuts.bits))
    found[cuts.is_open] = hashes[positions[cuts.is_open]]
    return Thresholds(rule.names, cuts.classes, found, stratify)


def cut_batch(batch: pa.RecordBatch, thresholds: Thresholds) -> pa.RecordBatch:
    """Return the batch with its splits."""
    classes = np.searchsorted(thresholds.classes, classes_of(batch, stratify=thresholds.stratify))
    hashes = split_hash(batch.column("id"))
    # Thresholds of a class ascend, so the number that a hash has reached is the number of its
    # split.
    chosen = (hashes[:, None] >= thresholds.hashes[classes]).sum(axis=1)
    return set_column(batch, "split", name_splits(thresholds.names, chosen))


def name_splits(names: tuple[str, ...], chosen: np.ndarray) -> pa.Array:
    """Return the names of splits by number."""
    return pa.array(names, pa.string()).take(pa.array(chosen))
