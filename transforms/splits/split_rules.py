"""Split references: by folder or table, or drawn by a stable hash, as fractions or as counts.

Exact numbers, even classes and whole groups are drawn of all records together. One worker sorts the
hashes of all records, 16 bytes each. Without groups the result is a few thresholds per class; a
record's hash decides its split. Groups are placed one by one, the largest first, each where it
leaves the smallest error, as in scikit-learn's `StratifiedGroupKFold`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError, UsageError
from shardwright.format.naming import is_split_name
from shardwright.sizes import counted
from shardwright.transforms.hashing import hash64, joined, sort_pairs
from shardwright.transforms.references import reject_rows, rows_left, set_column
from shardwright.transforms.rejects import Reject, RejectReason

_TINY = 1e-9  # floating-point slack: 0.1 * 30 may be slightly less than 3


def whole_parts(exact: np.ndarray) -> np.ndarray:
    """Round parts by largest remainder, keeping their sum; ties go to the first parts.

    Args:
        exact: Parts of a whole number, float64 [splits].
    """
    parts = np.floor(exact + _TINY).astype(np.int64)
    spare = round(float(exact.sum())) - int(parts.sum())
    parts[np.argsort(parts - exact, kind="stable")[:spare]] += 1
    return parts


def apportion(counts: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Return the number of records of each class in each split, as int64 [classes, splits].

    Each class is used up, each split gets its total, and each cell is within one of its exact share
    `counts[c] * totals[s] / sum(totals)`. Shares are rounded class by class. The following classes
    repay what rounding takes from a split, so totals are almost right at the end. Then single
    records move between splits where this changes the shares least.

    Args:
        counts: Records of each class, int64 [classes].
        totals: Records of each split, int64 [splits], with the same sum.
    """
    exact = counts[:, None] * (totals / max(int(totals.sum()), 1))
    cells = np.floor(exact + _TINY).astype(np.int64)
    spare = counts - cells.sum(axis=1)
    remains = np.where(exact - cells > _TINY, exact - cells, 0.0)
    owed = np.zeros(len(totals))
    for row in np.flatnonzero(spare):
        owed += remains[row]
        # Only splits with a fraction left may get a record more: the others have their share
        # exactly.
        chosen = np.argsort(np.where(remains[row] > 0, -owed, np.inf), kind="stable")[: spare[row]]
        cells[row, chosen] += 1
        owed[chosen] -= 1
    _settle(cells, exact, totals)
    return cells


def _settle(cells: np.ndarray, exact: np.ndarray, totals: np.ndarray) -> None:
    """Move single records between splits, in place, until every split has its total."""
    excess = cells.sum(axis=0) - totals
    while excess.any():  # ends: each move brings two splits one record closer to their totals
        giver, taker = int(excess.argmax()), int(excess.argmin())
        # The larger of the two errors that the move would leave in each class, less one.
        worst = np.maximum(exact[:, giver] - cells[:, giver], cells[:, taker] - exact[:, taker])
        row = int(np.where(cells[:, giver] > 0, worst, np.inf).argmin())
        cells[row, giver] -= 1
        cells[row, taker] += 1
        excess[giver] -= 1
        excess[taker] += 1


DEFAULT_SPLIT = "train"
REST = "rest"
_SALT = "shardwright/split"
_TWO_64 = 2.0**64


@dataclass(frozen=True, slots=True)
class SplitRule:
    """A rule of fractions that add up to 1, or of exact numbers of records.

    With fractions, an id keeps its split when other files come or go.

    Attributes:
        names: Names in the given order, which decides the hash ranges.
        shares: A fraction in (0, 1] for each name, or a number of records, with None for the one
            split with the rest.
    """

    names: tuple[str, ...] = (DEFAULT_SPLIT,)
    shares: tuple[float | None, ...] = (1.0,)

    def __post_init__(self) -> None:
        for name in self.names:
            if not is_split_name(name):
                raise UsageError(
                    f"--split: {name!r} is not a valid split name; use letters, digits and "
                    "underscores"
                )
        if len(set(self.names)) < len(self.names):
            raise UsageError(f"--split has a duplicate name: {', '.join(self.names)}")
        numbers = [share for share in self.shares if share is not None]
        if self.is_exact:
            for name, count in self.settings.items():
                if count != REST and count < 1:
                    raise UsageError(f"--split: {name}={count} must be at least 1 record")
        elif not all(0 < fraction <= 1 for fraction in numbers) or not math.isclose(
            sum(numbers), 1, abs_tol=1e-6
        ):
            given = ",".join(f"{name}={share:g}" for name, share in self.settings.items())
            raise UsageError(
                f"--split {given}: fractions must each be above 0 and add up to 1; exact numbers "
                "need one split with the rest, as in test=5000,train=rest"
            )

    @property
    def is_exact(self) -> bool:
        """True for a rule of exact numbers."""
        return None in self.shares

    @property
    def settings(self) -> dict[str, Any]:
        """The rule as JSON."""
        shares = (REST if share is None else share for share in self.shares)
        return dict(zip(self.names, shares, strict=True))

    @property
    def _fractions(self) -> np.ndarray:
        return np.array(self.shares, np.float64)

    def choose(self, units: pa.Array) -> pa.Array:
        """Return the split of each unit, which is an id or a group, by fractions."""
        if len(self.names) == 1:
            return pa.array([self.names[0]] * len(units), pa.string())
        points = split_hash(units) / _TWO_64
        # Without the last sum, which rounding may leave below 1: the last split has all that is
        # above.
        chosen = np.searchsorted(np.cumsum(self._fractions)[:-1], points, side="right")
        return pa.array(self.names, pa.string()).take(pa.array(chosen))

    def totals(self, num_records: int) -> np.ndarray:
        """Return exact numbers of records by split, int64 [splits].

        Raises:
            BuildError: There are fewer records than the exact numbers need.
        """
        if not self.is_exact:
            return whole_parts(num_records * self._fractions / self._fractions.sum())
        rest = num_records - int(sum(share or 0 for share in self.shares))
        if rest < 0:
            named = " and ".join(name for name, count in self.settings.items() if count != REST)
            raise BuildError(
                f"--split needs {counted(num_records - rest, 'record')} in {named}, "
                f"but INPUT has {num_records:,}: use smaller numbers"
            )
        return np.array([rest if count is None else count for count in self.shares], np.int64)


def rule_for_additions(rule: SplitRule | None) -> SplitRule | None:
    """Return the rule for records that a dataset gets later, one by one: it must not need all.

    Fractions hold for them as ever. Exact counts are reached, so the split with the rest gets them.
    """
    if rule is None or not rule.is_exact:
        return rule
    return SplitRule((rule.names[rule.shares.index(None)],))


def parse_split(text: str) -> SplitRule:
    """Parse `train=0.8,test=0.2`, `test=5000,validation=1000,train=rest`, or one name.

    Raises:
        UsageError: The text has none of these forms.
    """
    parts = [part.partition("=") for part in text.split(",")]
    names = tuple(name.strip() for name, _, _ in parts)
    values = [value.strip() if equals else None for _, equals, value in parts]
    if REST not in values or len(names) == 1:
        whole = (None, REST)
        fractions = (
            1.0 if value in whole else _number(name, value)
            for name, value in zip(names, values, strict=True)
        )
        return SplitRule(names, tuple(fractions))
    numbers = [
        None if value == REST else _number(name, value)
        for name, value in zip(names, values, strict=True)
    ]
    if numbers.count(None) > 1:
        raise UsageError(
            f"--split: exactly one split must get the rest, got {numbers.count(None)}; "
            f"use for example test=5000,train={REST}"
        )
    given = [number for number in numbers if number is not None]
    # `test=1,train=rest` is one record, not all of them.
    if all(0 < number < 1 for number in given):
        rest = 1 - sum(given)
        return SplitRule(names, tuple(rest if number is None else number for number in numbers))
    if not all(math.isfinite(number) and number == int(number) for number in given):
        raise UsageError(
            f"--split {text}: use either fractions below 1 or whole numbers of records"
        )
    return SplitRule(names, tuple(None if number is None else int(number) for number in numbers))


def _number(name: str, value: str | None) -> float:
    value = value or ""
    try:
        return float(value)
    except ValueError:
        raise UsageError(
            f"--split: {value!r} in '{name}={value}' is not a number; use for example "
            "train=0.8,test=0.2"
        ) from None


def split_hash(units: pa.Array) -> np.ndarray:
    """Return the position of each unit in the hash range that is cut into splits, uint64."""
    return hash64(units, _SALT)


def units_of(batch: pa.RecordBatch) -> pa.Array:
    """Return the units that stay in one split: the group, or else the id."""
    groups, ids = batch.column("group"), batch.column("id")
    # Mostly there are no groups, and `coalesce` would copy all ids.
    return ids if groups.null_count == len(groups) else pc.coalesce(groups, ids)


def assign_splits(
    batch: pa.RecordBatch, rule: SplitRule | None, *, given: bool
) -> Iterator[pa.RecordBatch | Reject]:
    """Yield references with their split, and rejects.

    Args:
        batch: Some references.
        rule: Fractions to draw; None puts everything into `train`.
        given: The source provides the splits; rows with a missing or invalid one are rejected.
    """
    if not given:
        yield set_column(batch, "split", (rule or SplitRule()).choose(units_of(batch)))
        return
    # A name is checked once, not once for each row.
    names = batch.column("split").dictionary_encode()
    usable = pa.array(
        [name is not None and is_split_name(name) for name in names.dictionary.to_pylist()],
        pa.bool_(),
    )
    mask = usable.take(names.indices).fill_null(False).to_numpy(zero_copy_only=False)
    rule_of_names = "split {split!r} is empty or not a name of letters, digits and _"
    yield from reject_rows(batch, ~mask, RejectReason.UNKNOWN_SPLIT, rule_of_names)
    yield from rows_left(batch, mask)


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
