"""Splits with exact numbers of records, of all together or of each class: each is a range of ranks of a stable hash.

No place ever sorts all records. One pass counts them by class and the top bits of their hash, which tells in which bucket of
which class each cut falls, and a second pass collects the hashes in just those buckets: there the exact cuts are read off.
What comes of it is a few thresholds for each class, and a record's split follows from its own hash.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shardwright.errors import BuildError
from transforms.hashing import hash64
from transforms.references import set_column
from transforms.splitting.apportion import apportion
from transforms.splitting.splits import SplitRule, split_hash

BUCKET_BITS = 12
MAX_ENTRIES = (
    1 << 22
)  # of a histogram: 100 MB; where there would be more, its buckets are made larger
NO_CLASS = 0
_LAST = np.uint64(2**64 - 1)
_CLASS_SALT = "shardwright/class"


@dataclass(frozen=True, slots=True)
class HashHistogram:
    """How many records each class has in each bucket of hashes; only those that have some, by class, then bucket.

    Attributes:
        bits: Top bits of the hash that are the bucket's number.
        classes: uint64, as `classes_of` gives them; shape [entries], as the others.
        buckets: uint64.
        counts: int64.
    """

    bits: int
    classes: np.ndarray
    buckets: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where each class is cut into splits, as far as a histogram tells.

    Attributes:
        bits: Of the buckets.
        classes: Sorted, uint64, shape [classes].
        buckets: The bucket each cut falls in, uint64, shape [classes, splits - 1].
        ranks: How many hashes of that bucket are before the cut, int64; -1 for a cut behind the last record of the class.
    """

    bits: int
    classes: np.ndarray
    buckets: np.ndarray
    ranks: np.ndarray

    @property
    def is_open(self) -> np.ndarray:
        """Which cuts are inside of a bucket, so that the hashes in it must be seen."""
        return self.ranks > 0


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The first hash of each split but the first, for each class.

    Attributes:
        names: Of the splits.
        classes: Sorted, uint64, shape [classes].
        hashes: uint64, shape [classes, splits - 1].
        stratify: Classes are told apart.
    """

    names: tuple[str, ...]
    classes: np.ndarray
    hashes: np.ndarray
    stratify: bool


def classes_of(batch: pa.RecordBatch, *, stratify: bool) -> np.ndarray:
    """A number for each row's class, uint64: a hash of its label, or `NO_CLASS` without one; one number for all where classes do
    not matter."""
    if not stratify:
        return np.ones(batch.num_rows, np.uint64)
    labels = batch.column("label").dictionary_encode()
    numbers = hash64(labels.dictionary, _CLASS_SALT) | np.uint64(1)  # never NO_CLASS
    indices = labels.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)
    return np.append(numbers, np.uint64(NO_CLASS))[indices]


def count_hashes(batch: pa.RecordBatch, *, stratify: bool) -> HashHistogram:
    """The histogram of a batch."""
    classes = classes_of(batch, stratify=stratify)
    buckets = split_hash(batch.column("id")) >> np.uint64(64 - BUCKET_BITS)
    return _summed(BUCKET_BITS, classes, buckets, np.ones(len(classes), np.int64))


def merge_histograms(parts: Iterable[HashHistogram]) -> HashHistogram:
    """The histogram of all, with buckets as small as `MAX_ENTRIES` allows."""
    given = list(parts)
    bits = min((part.bits for part in given), default=BUCKET_BITS)
    merged = _summed(
        bits,
        joined((part.classes for part in given), np.uint64),
        joined((part.buckets >> np.uint64(part.bits - bits) for part in given), np.uint64),
        joined((part.counts for part in given), np.int64),
    )
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
    """The distinct pairs in order, and the sum of the counts of each."""
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


def joined(parts: Iterable[np.ndarray], dtype: type) -> np.ndarray:
    """All parts as one array; of none, an empty one."""
    return np.concatenate([np.zeros(0, dtype), *parts])


def find_cuts(histogram: HashHistogram, rule: SplitRule, *, stratify: bool) -> Cuts:
    """Where each class is cut.

    Raises:
        BuildError: There are fewer records than the rule asks for, or no classes to stratify by.
    """
    classes, starts = np.unique(histogram.classes, return_index=True)
    check_classes(classes, stratify=stratify)
    before = np.append(0, np.cumsum(histogram.counts))
    firsts = before[starts]
    counts = np.diff(np.append(firsts, before[-1]))
    parts = apportion(counts, rule.totals(int(before[-1])))
    ranks = np.cumsum(parts, axis=1)[:, :-1]
    positions = firsts[:, None] + ranks
    entries = np.minimum(
        np.searchsorted(before, positions, side="right") - 1, max(len(histogram.counts) - 1, 0)
    )
    buckets = histogram.buckets[entries] if len(classes) else np.zeros(ranks.shape, np.uint64)
    return Cuts(
        histogram.bits,
        classes,
        buckets,
        np.where(ranks == counts[:, None], -1, positions - before[entries]),
    )


def check_classes(classes: np.ndarray, *, stratify: bool) -> None:
    """Raises BuildError where there is nothing to stratify by."""
    if stratify and len(classes) and (classes == NO_CLASS).all():
        raise BuildError(
            "--stratify keeps the classes' fractions alike in all splits, and no record has a label of its own "
            "(boxes and lists of labels are not one): leave --stratify out, or name the label by --label-column"
        )


def collect_hashes(
    batch: pa.RecordBatch, cuts: Cuts, *, stratify: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The hashes of a batch that are in buckets with a cut inside: their classes' positions in `cuts.classes`, and they."""
    classes = np.searchsorted(cuts.classes, classes_of(batch, stratify=stratify))
    hashes = split_hash(batch.column("id"))
    buckets = hashes >> np.uint64(64 - cuts.bits)
    wanted = ((cuts.buckets[classes] == buckets[:, None]) & cuts.is_open[classes]).any(axis=1)
    return classes[wanted], hashes[wanted]


def find_thresholds(
    collected: Iterable[tuple[np.ndarray, np.ndarray]],
    cuts: Cuts,
    rule: SplitRule,
    *,
    stratify: bool,
) -> Thresholds:
    """The exact cuts.

    Memory: 16 bytes for each record in a bucket with a cut inside, about (splits - 1) / 4096 of them all.

    Raises:
        BuildError: The records are not those that were counted.
    """
    given = list(collected)
    classes = joined((part[0] for part in given), np.int64)
    hashes = joined((part[1] for part in given), np.uint64)
    order = np.lexsort((hashes, classes))
    classes, hashes = classes[order].astype(np.uint64), hashes[order]
    shift = np.uint64(cuts.bits)
    keys = (classes << shift) | (hashes >> np.uint64(64 - cuts.bits))
    wanted = (np.arange(len(cuts.classes), dtype=np.uint64)[:, None] << shift) | cuts.buckets
    positions = np.searchsorted(keys, wanted) + cuts.ranks
    if cuts.is_open.any() and (
        positions[cuts.is_open].max() >= len(keys)
        or (keys[positions[cuts.is_open]] != wanted[cuts.is_open]).any()
    ):
        raise BuildError(
            "INPUT changed while its splits were drawn (files added or removed): run the build again"
        )
    found = np.where(cuts.ranks < 0, _LAST, cuts.buckets << np.uint64(64 - cuts.bits))
    found[cuts.is_open] = hashes[positions[cuts.is_open]]
    return Thresholds(rule.names, cuts.classes, found, stratify)


def cut_batch(batch: pa.RecordBatch, thresholds: Thresholds) -> pa.RecordBatch:
    """The batch with its splits."""
    classes = np.searchsorted(thresholds.classes, classes_of(batch, stratify=thresholds.stratify))
    hashes = split_hash(batch.column("id"))
    chosen = (hashes[:, None] >= thresholds.hashes[classes]).sum(axis=1)
    return set_column(batch, "split", name_splits(thresholds.names, chosen))


def name_splits(names: tuple[str, ...], chosen: np.ndarray) -> pa.Array:
    """The names of splits by number."""
    return pa.array(names, pa.string()).take(pa.array(chosen))
