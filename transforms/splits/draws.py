"""Draw the splits of all records together: exact numbers, even classes, whole groups.

One worker sorts the hashes of all records, 16 bytes each. Without groups the result is a few
thresholds per class; a record's hash decides its split.

Groups are placed one by one, the largest first, each where it leaves the smallest error, as in
scikit-learn's `StratifiedGroupKFold`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shardwright.errors import BuildError
from shardwright.sizes import counted
from shardwright.transforms.hashing import hash64, joined, sort_pairs
from shardwright.transforms.references import set_column
from shardwright.transforms.splits.apportion import apportion
from shardwright.transforms.splits.split_rules import SplitRule, split_hash, units_of

NO_CLASS = 0
_LAST = np.uint64(2**64 - 1)
_CLASS_SALT = "shardwright/class"
# The class and the unit of each record, uint64 [records] each. A unit is the hash of the record's
# id, or of its group if it has one that must stay in one split.
Hashes = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True, slots=True)
class SplitDraw:
    """A draw of all records together.

    Attributes:
        rule: The splits.
        stratify: Give every split the same class fractions, to within one record.
        grouped: Records may have a group, which stays in one split.
    """

    rule: SplitRule
    stratify: bool = False
    grouped: bool = False

    def hashes_of(self, batch: pa.RecordBatch) -> Hashes:
        """Return classes and units of the rows. A class is 1 without `stratify`."""
        units = split_hash(units_of(batch) if self.grouped else batch.column("id"))
        if not self.stratify:
            return np.ones(len(units), np.uint64), units
        labels = batch.column("label").dictionary_encode()
        numbers = hash64(labels.dictionary, _CLASS_SALT) | np.uint64(1)  # never NO_CLASS
        indices = labels.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)
        return np.append(numbers, np.uint64(NO_CLASS))[indices], units

    def decide(self, parts: Iterable[Hashes]) -> DrawnSplits:
        """Return the splits, from the hashes of all records in any order.

        Raises:
            BuildError: There are too few records or groups for the rule, or no classes to stratify
                by.
        """
        given = list(parts)
        classes, units = (joined((part[of] for part in given), np.uint64) for of in (0, 1))
        if self.stratify and len(classes) and (classes == NO_CLASS).all():
            raise BuildError(
                "--stratify needs labels, but no record has a label of its own (boxes and lists of "
                "labels do not count): remove --stratify, or set --label-column"
            )
        totals = self.rule.totals(len(units))
        if self.grouped:
            return _place_groups(classes, units, totals, self)
        return _find_thresholds(classes, units, totals, self)


@dataclass(frozen=True, slots=True)
class DrawnSplits:
    """The thresholds of each class, or the split of every group.

    Attributes:
        draw: The draw.
        keys: Sorted classes, or the hashes of groups; 9 bytes per group on every worker.
        splits: The first hash of each split but the first, uint64 [classes, splits - 1]; or the
            number of the split, uint8 [groups].
    """

    draw: SplitDraw
    keys: np.ndarray
    splits: np.ndarray

    def split(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with its splits."""
        classes, units = self.draw.hashes_of(batch)
        if self.draw.grouped:
            chosen = self.splits[np.searchsorted(self.keys, units)]
        else:
            # Thresholds of a class ascend, so the number that a hash has reached is the number of
            # its split.
            chosen = units[:, None] >= self.splits[np.searchsorted(self.keys, classes)]
            chosen = chosen.sum(axis=1)
        names = pa.array(self.draw.rule.names, pa.string())
        return set_column(batch, "split", names.take(pa.array(chosen)))


def _find_thresholds(
    classes: np.ndarray, units: np.ndarray, totals: np.ndarray, draw: SplitDraw
) -> DrawnSplits:
    units = units[np.lexsort((units, classes))]
    present, counts = np.unique(classes, return_counts=True)
    starts = np.cumsum(counts) - counts
    ranks = np.cumsum(apportion(counts, totals), axis=1)[:, :-1]
    # A cut after the last record of a class has no hash: any will do.
    found = np.append(units, _LAST)[starts[:, None] + ranks]
    return DrawnSplits(draw, present, np.where(ranks == counts[:, None], _LAST, found))


def _place_groups(
    classes: np.ndarray, units: np.ndarray, totals: np.ndarray, draw: SplitDraw
) -> DrawnSplits:
    """Assign a split to every group, whatever the order of records."""
    order, starts = sort_pairs(units, classes)
    counts = np.diff(starts, append=len(order))  # records of a class in a group
    groups, begins, num_classes = np.unique(
        units[order[starts]], return_index=True, return_counts=True
    )
    present, columns = np.unique(classes[order[starts]], return_inverse=True)
    sizes = np.bincount(np.repeat(np.arange(len(groups)), num_classes), counts).astype(np.int64)
    # The last column counts all records, so a split's size has the same weight as a class. Lists,
    # because most groups hold few classes and NumPy is much slower on those.
    whole = np.append(np.bincount(columns, counts, minlength=len(present)), len(units))
    wanted = np.outer(totals / max(len(units), 1), whole).tolist()  # shape [splits, classes + 1]
    missing = [list(each) for each in wanted]
    splits = np.zeros(len(groups), np.uint8)
    # The largest first, while every split has room; ties by hash, not by order of arrival.
    for group in np.lexsort((groups, -sizes)).tolist():
        held = slice(begins[group], begins[group] + num_classes[group])
        size = int(sizes[group])
        content = [*zip(columns[held].tolist(), counts[held].tolist(), strict=True)]
        content.append((len(present), size))
        splits[group] = best = _best_split(content, size, wanted, missing)
        for column, count in content:
            missing[best][column] -= count
    _check_none_is_empty(splits, totals, draw.rule)
    return DrawnSplits(draw, groups, splits)


def _best_split(
    content: list[tuple[int, int]],
    size: int,
    wanted: list[list[float]],
    missing: list[list[float]],
) -> int:
    """Return the split where a group leaves the smallest error: missing^2 / wanted of its classes.

    Splits with room for the group come first.
    """

    def rank(split: int) -> tuple[bool, float]:
        # The change of the error: ((missing - count)^2 - missing^2) / wanted for each class.
        # A split with a share of 0 wants nothing: the floor makes any record there the worst.
        change = sum(
            count * (count - 2 * missing[split][column]) / max(wanted[split][column], 1e-9)
            for column, count in content
        )
        # False sorts before True: a split with room for the group is better than any without. Sums
        # of fractions may be slightly less than the whole number that they stand for.
        return missing[split][-1] + 1e-6 < size, change

    return min(range(len(wanted)), key=rank)


def _check_none_is_empty(splits: np.ndarray, totals: np.ndarray, rule: SplitRule) -> None:
    empty = [
        name
        for number, name in enumerate(rule.names)
        if totals[number] and not (splits == number).any()
    ]
    if empty:
        raise BuildError(
            f"no group fits into split {' and '.join(empty)}: INPUT has "
            f"{counted(len(splits), 'group')}, which stay whole; make the splits larger, or "
            "remove --group-column"
        )
