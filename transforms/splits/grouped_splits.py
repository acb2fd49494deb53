"""Assign groups to splits, close to the requested sizes and class fractions.

As in scikit-learn's `StratifiedGroupKFold`, large groups are placed first, each where it leaves the
smallest error. Groups with equal numbers of records of each class are interchangeable: each split
first gets its exact share of such a kind, chosen by hash, and only the rest is placed one by one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shardwright.errors import BuildError
from shardwright.sizes import counted
from shardwright.transforms.hashing import joined, runs_of
from shardwright.transforms.references import set_column
from shardwright.transforms.splits.split_rules import SplitRule, split_hash, units_of
from shardwright.transforms.splits.stratified import (
    check_classes,
    classes_of,
    name_splits,
    sum_pairs,
)

_BUCKET_BITS = 8

# (units, classes, counts): records per unit and class. A unit is the hash of a group, or of the id
# of a record without a group.
Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True, slots=True)
class GroupKinds:
    """The groups of one bucket by kind, which is the number of records of each class.

    Attributes:
        groups: Hashes, uint64 [groups].
        kinds: The kind of each group, uint64 [groups].
        holds: Classes and record counts of a group, by kind.
    """

    groups: np.ndarray
    kinds: np.ndarray
    holds: Mapping[int, tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, slots=True)
class GroupSplits:
    """The split of every group, 9 bytes per group on every worker.

    Attributes:
        names: Names of the splits.
        groups: Sorted hashes, uint64 [groups].
        splits: Positions in `names`, uint8 [groups].
    """

    names: tuple[str, ...]
    groups: np.ndarray
    splits: np.ndarray


def count_groups(batch: pa.RecordBatch, *, stratify: bool) -> Iterator[tuple[int, Pairs]]:
    """Yield (bucket, pairs) of a batch, by the top bits of the unit."""
    units, classes, counts = sum_pairs(
        split_hash(units_of(batch)),
        classes_of(batch, stratify=stratify),
        np.ones(batch.num_rows, np.int64),
    )
    # By the unit's hash, so that all records of a group are in one bucket.
    for bucket, start, stop in runs_of(units >> np.uint64(64 - _BUCKET_BITS)):
        yield bucket, (units[start:stop], classes[start:stop], counts[start:stop])


def find_kinds(parts: Iterable[Pairs]) -> GroupKinds:
    """Return the groups of a bucket with their kinds."""
    units, classes, counts = sum_pairs(*map(np.concatenate, zip(*parts, strict=True)))
    groups, kinds = [], []
    holds: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for group, start, stop in runs_of(units):
        held = (classes[start:stop], counts[start:stop])
        digest = hashlib.blake2b(held[0].tobytes() + held[1].tobytes(), digest_size=8).digest()
        groups.append(group)
        kinds.append(int.from_bytes(digest, "little"))
        holds.setdefault(kinds[-1], held)
    return GroupKinds(np.array(groups, np.uint64), np.array(kinds, np.uint64), holds)


def place_groups(buckets: Iterable[GroupKinds], rule: SplitRule, *, stratify: bool) -> GroupSplits:
    """Assign a split to every group, independent of the order of the buckets.

    Memory: 40 bytes per group on one worker, and the contents of the kinds.

    Raises:
        BuildError: There are too few records or groups for the rule, or no classes to stratify by.
    """
    given = list(buckets)
    groups = joined((bucket.groups for bucket in given), np.uint64)
    kinds = joined((bucket.kinds for bucket in given), np.uint64)
    order = np.lexsort((groups, kinds))
    groups, kinds = groups[order], kinds[order]
    placement = _Placement(
        {kind: held for bucket in given for kind, held in bucket.holds.items()},
        kinds,
        rule,
        stratify=stratify,
    )
    splits = placement.place(groups, kinds)
    by_group = np.argsort(groups)
    return GroupSplits(rule.names, groups[by_group], splits[by_group])


class _Placement:
    """The missing records of each split while groups are placed.

    The last column counts all records, so a split's size has the same weight as a class. The
    columns are plain lists, because most groups hold few classes and NumPy is much slower on those.
    """

    def __init__(
        self,
        holds: Mapping[int, tuple[np.ndarray, np.ndarray]],
        kinds: np.ndarray,
        rule: SplitRule,
        *,
        stratify: bool,
    ) -> None:
        classes = np.unique(joined((held for held, _ in holds.values()), np.uint64))
        check_classes(classes, stratify=stratify)
        self._held = {
            kind: [
                *zip(np.searchsorted(classes, held).tolist(), counts.tolist(), strict=True),
                (len(classes), int(counts.sum())),
            ]
            for kind, (held, counts) in holds.items()
        }
        whole = [0] * (len(classes) + 1)
        for kind, start, stop in runs_of(kinds):
            for column, count in self._held[kind]:
                whole[column] += (stop - start) * count
        totals = rule.totals(whole[-1])
        self._names = rule.names
        self._shares = totals / max(totals.sum(), 1)
        self._wanted = np.outer(self._shares, whole).tolist()  # shape [splits, classes + 1]
        self._missing = np.outer(self._shares, whole).tolist()

    def place(self, groups: np.ndarray, kinds: np.ndarray) -> np.ndarray:
        """Return the split of each group, uint8 [groups]; groups are sorted by kind, then hash."""
        splits = np.zeros(len(groups), np.uint8)
        single: list[tuple[int, int, int, int]] = []
        for kind, start, stop in runs_of(kinds):
            end = start
            if stop - start > 1:
                # 0.29 * 100 is slightly less than 29.
                shares = np.floor((stop - start) * self._shares + 1e-9).astype(np.int64)
                end += int(shares.sum())
                splits[start:end] = np.repeat(np.arange(len(shares)), shares)
                for split, number in enumerate(shares.tolist()):
                    self._take(split, kind, number)
            single += [
                (-self._held[kind][-1][1], int(groups[row]), row, kind) for row in range(end, stop)
            ]
        # The largest first, while every split has room; ties by hash, not by order of arrival.
        for _, _, row, kind in sorted(single):
            splits[row] = split = self._best_split(kind)
            self._take(split, kind, 1)
        self._check_none_is_empty(splits)
        return splits

    def _take(self, split: int, kind: int, number: int) -> None:
        missing = self._missing[split]
        for column, count in self._held[kind]:
            missing[column] -= number * count

    def _best_split(self, kind: int) -> int:
        """Return the split where a group of this kind leaves the smallest error.

        The error is the sum of missing^2 / wanted over the kind's classes. Splits with room for
        the group come first.
        """
        held = self._held[kind]

        def rank(split: int) -> tuple[bool, float]:
            missing, wanted = self._missing[split], self._wanted[split]
            # The change of the error: ((missing - count)^2 - missing^2) / wanted for each class.
            # A split with a share of 0 wants nothing: the floor makes any record there the worst.
            change = sum(
                count * (count - 2 * missing[column]) / max(wanted[column], 1e-9)
                for column, count in held
            )
            # False sorts before True: a split with room for the group is better than any without.
            return missing[-1] < held[-1][1], change

        return min(range(len(self._names)), key=rank)

    def _check_none_is_empty(self, splits: np.ndarray) -> None:
        empty = [
            name
            for number, name in enumerate(self._names)
            if self._wanted[number][-1] and not (splits == number).any()
        ]
        if empty:
            raise BuildError(
                f"no group fits into split {' and '.join(empty)}: INPUT has "
                f"{counted(len(splits), 'group')}, which stay whole; make the splits larger, or "
                "remove --group-column"
            )


def split_groups(batch: pa.RecordBatch, placed: GroupSplits) -> pa.RecordBatch:
    """Return the batch with its splits."""
    rows = np.searchsorted(placed.groups, split_hash(units_of(batch)))
    return set_column(batch, "split", name_splits(placed.names, placed.splits[rows]))
