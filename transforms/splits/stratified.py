"""Draw splits with exact numbers of records, in total or per class, by ranks of a stable hash.

One worker sorts the hashes of all records, 16 bytes each. The result is a few thresholds per class;
a record's hash decides its split.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shardwright.errors import BuildError
from shardwright.transforms.hashing import hash64, joined, sort_pairs
from shardwright.transforms.references import set_column
from shardwright.transforms.splits.apportion import apportion
from shardwright.transforms.splits.split_rules import SplitRule, split_hash

NO_CLASS = 0
_LAST = np.uint64(2**64 - 1)
_CLASS_SALT = "shardwright/class"


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


def hashes_of(batch: pa.RecordBatch, *, stratify: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the class and the hash of each row, both uint64 [rows]."""
    return classes_of(batch, stratify=stratify), split_hash(batch.column("id"))


def find_thresholds(
    parts: Iterable[tuple[np.ndarray, np.ndarray]], rule: SplitRule, *, stratify: bool
) -> Thresholds:
    """Return the exact cuts of all records.

    Args:
        parts: Classes and hashes, as of `hashes_of`, in any order.
        rule: The splits.
        stratify: Distinguish classes.

    Raises:
        BuildError: There are too few records for the rule, or no classes to stratify by.
    """
    given = list(parts)
    classes, hashes = (joined((part[of] for part in given), np.uint64) for of in (0, 1))
    order = np.lexsort((hashes, classes))
    hashes = hashes[order]
    present, counts = np.unique(classes, return_counts=True)
    check_classes(present, stratify=stratify)
    starts = np.cumsum(counts) - counts
    ranks = np.cumsum(apportion(counts, rule.totals(len(hashes))), axis=1)[:, :-1]
    # A cut after the last record of a class has no hash: any will do.
    places = np.minimum(starts[:, None] + ranks, max(len(hashes) - 1, 0))
    found = hashes[places] if len(hashes) else np.zeros(ranks.shape, np.uint64)
    return Thresholds(
        rule.names, present, np.where(ranks == counts[:, None], _LAST, found), stratify
    )


def check_classes(classes: np.ndarray, *, stratify: bool) -> None:
    """Raise BuildError if there are no classes to stratify by."""
    if stratify and len(classes) and (classes == NO_CLASS).all():
        raise BuildError(
            "--stratify needs labels, but no record has a label of its own (boxes and lists of "
            "labels do not count): remove --stratify, or set --label-column"
        )


def cut_batch(batch: pa.RecordBatch, thresholds: Thresholds) -> pa.RecordBatch:
    """Return the batch with its splits."""
    classes, hashes = hashes_of(batch, stratify=thresholds.stratify)
    # Thresholds of a class ascend, so the number that a hash has reached is the number of its
    # split.
    reached = hashes[:, None] >= thresholds.hashes[np.searchsorted(thresholds.classes, classes)]
    return set_column(batch, "split", name_splits(thresholds.names, reached.sum(axis=1)))


def name_splits(names: tuple[str, ...], chosen: np.ndarray) -> pa.Array:
    """Return the names of splits by number."""
    return pa.array(names, pa.string()).take(pa.array(chosen))


def sum_pairs(
    first: np.ndarray, second: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct pairs in order, and the sum of the counts of each."""
    order, starts = sort_pairs(first, second)
    kept = order[starts]
    totals = np.add.reduceat(counts[order], starts) if len(starts) else counts
    return first[kept], second[kept], totals
