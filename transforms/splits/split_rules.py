"""Split references: by folder or table, or drawn by a stable hash, as fractions or as counts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import BuildError, UsageError
from shardwright.format.naming import is_split_name
from shardwright.sizes import counted
from shardwright.transforms.hashing import hash64
from shardwright.transforms.references import reject_rows, rows_left, set_column
from shardwright.transforms.rejects import Reject, RejectReason
from shardwright.transforms.splits.apportion import whole_parts

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
