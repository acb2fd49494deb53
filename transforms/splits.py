"""Which split a reference is in: given by its folder or table, or by fractions of a stable hash."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import UsageError
from shardwright.naming import is_split_name
from transforms.hashing import hash64
from transforms.references import keep_rows, reject_rows, set_column
from transforms.rejects import Reject, RejectReason

DEFAULT_SPLIT = "train"
_SALT = "shardwright/split"
_TWO_64 = 2.0**64


@dataclass(frozen=True, slots=True)
class SplitFractions:
    """Splits by fractions that add up to 1. An id keeps its split whatever other files come or go.

    Attributes:
        names: In the order given, which decides the hash ranges.
        fractions: Of (0, 1], one a name.
    """

    names: tuple[str, ...] = (DEFAULT_SPLIT,)
    fractions: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        for name in self.names:
            if not is_split_name(name):
                raise UsageError(f"--split: {name!r} is no split name; use letters, digits and underscores")
        if len(set(self.names)) < len(self.names):
            raise UsageError(f"--split names a split twice: {', '.join(self.names)}")
        if any(not 0 < fraction <= 1 for fraction in self.fractions) or not math.isclose(sum(self.fractions), 1, abs_tol=1e-6):
            given = ",".join(f"{name}={fraction:g}" for name, fraction in zip(self.names, self.fractions, strict=True))
            raise UsageError(f"--split {given}: fractions must each be above 0 and add up to 1")

    @classmethod
    def parse(cls, text: str) -> SplitFractions:
        """`train=0.8,validation=0.1,test=0.1`, or one name for everything."""
        names, fractions = [], []
        for part in text.split(","):
            name, equals, fraction = part.partition("=")
            try:
                fractions.append(float(fraction) if equals else 1.0)
            except ValueError:
                raise UsageError(f"--split: {fraction!r} in {part!r} is no number; write train=0.8,test=0.2") from None
            names.append(name.strip())
        return cls(tuple(names), tuple(fractions))

    def choose(self, units: pa.Array) -> pa.Array:
        """The split of each unit: an id, or the group that must stay together."""
        if len(self.names) == 1:
            return pa.array([self.names[0]] * len(units), pa.string())
        points = hash64(units, _SALT) / _TWO_64
        chosen = np.searchsorted(np.cumsum(self.fractions)[:-1], points, side="right")
        return pa.array(self.names, pa.string()).take(pa.array(chosen))


def assign_splits(batch: pa.RecordBatch, fractions: SplitFractions | None, *, given: bool) -> Iterator[pa.RecordBatch | Reject]:
    """References with their split filled in.

    Args:
        fractions: How to draw splits, or None where everything without a given split is `train`.
        given: The source states the splits: a row without one, or with an unusable name, is a reject.
    """
    if not given:
        units = pc.coalesce(batch.column("group"), batch.column("id"))
        yield set_column(batch, "split", (fractions or SplitFractions()).choose(units))
        return
    names = batch.column("split").dictionary_encode()
    usable = pa.array([name is not None and is_split_name(name) for name in names.dictionary.to_pylist()], pa.bool_())
    mask = usable.take(names.indices).fill_null(False).to_numpy(zero_copy_only=False)
    yield from reject_rows(batch, ~mask, RejectReason.UNKNOWN_SPLIT, "split {split!r} is empty or not a name of letters, digits and _")
    kept = keep_rows(batch, mask)
    if kept.num_rows:
        yield kept
