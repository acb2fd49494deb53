"""Draw splits of all references together: exact numbers, even classes, whole groups."""

from __future__ import annotations

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsSingleton

from shardwright.transforms.routing import Routed
from shardwright.transforms.splits.draws import DrawnSplits, SplitDraw
from shardwright.transforms.splits.split_rules import SplitRule


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
        split = references | "Split" >> beam.Map(_split, AsSingleton(drawn)).with_output_types(
            pa.RecordBatch
        )
        none = beam.Create([]).with_output_types(bytes)
        return Routed(split, references.pipeline | "NoRejects" >> none)


def _split(batch: pa.RecordBatch, drawn: DrawnSplits) -> pa.RecordBatch:
    return drawn.split(batch)
