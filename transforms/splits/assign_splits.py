"""Assign a split to every reference by its own hash, or draw the splits of all together."""

from __future__ import annotations

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsSingleton

from shardwright.transforms.routing import Route, Routed
from shardwright.transforms.splits.split_rules import (
    SplitDraw,
    SplitRule,
    assign_splits,
)


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


class DrawSplits(beam.PTransform):
    """A transform that assigns a split to every reference, which needs the hashes of all.

    Args:
        rule: How to draw splits.
        stratify: Give every split the same class fractions, to within one record.
        grouped: References may have a group, which stays in one split.
    """

    def __init__(self, rule: SplitRule, *, stratify: bool = False, grouped: bool = False) -> None:
        super().__init__()
        self._draw = SplitDraw(rule, stratify, grouped)

    def expand(self, references: beam.PCollection) -> Routed:
        drawn = (
            references
            | "Hash" >> beam.Map(self._draw.hashes_of)  # Hashes
            | "AllHashes" >> beam.combiners.ToList()
            | "Decide" >> beam.Map(self._draw.decide)  # one DrawnSplits
        )
        split = references | "Split" >> beam.Map(
            lambda batch, splits: splits.split(batch), AsSingleton(drawn)
        ).with_output_types(pa.RecordBatch)
        none = beam.Create([]).with_output_types(bytes)
        return Routed(split, references.pipeline | "NoRejects" >> none)
