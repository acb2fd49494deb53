"""AssignSplits: references -> references with a split | rejects."""

from __future__ import annotations

import apache_beam as beam
import pyarrow as pa

from transforms.routing import Route, Routed
from transforms.splits import SplitFractions, assign_splits


class AssignSplits(beam.PTransform):
    """Put every reference in a split.

    Args:
        fractions: How to draw splits; None for one split of everything.
        given: The source states the splits itself.
    """

    def __init__(self, fractions: SplitFractions | None = None, *, given: bool = False) -> None:
        super().__init__()
        self._fractions = fractions
        self._given = given

    def expand(self, references: beam.PCollection) -> Routed:
        return references | Route(assign_splits, pa.RecordBatch, fractions=self._fractions, given=self._given)
