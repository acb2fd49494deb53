"""Assign a split to every reference, by its own hash."""

from __future__ import annotations

import apache_beam as beam
import pyarrow as pa

from shardwright.transforms.routing import Route, Routed
from shardwright.transforms.splits.split_rules import SplitRule, assign_splits


class AssignSplits(beam.PTransform):
    """A transform that assigns a split to every reference; no other one need be seen for it.

    `DrawSplits` draws exact numbers, and keeps classes even or groups together. `ListSplits` takes
    the splits of listed ids from a file.

    Args:
        rule: Fractions to draw. None uses a single split.
        given: INPUT states the splits.

    Raises:
        ValueError: The rule is one of exact numbers.
    """

    def __init__(self, rule: SplitRule | None = None, *, given: bool = False) -> None:
        super().__init__()
        if rule is not None and rule.is_exact:
            raise ValueError(f"{rule} states exact numbers: use DrawSplits instead of AssignSplits")
        self._rule, self._given = rule, given

    def expand(self, references: beam.PCollection) -> Routed:
        return references | Route(assign_splits, pa.RecordBatch, rule=self._rule, given=self._given)
