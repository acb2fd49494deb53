"""Draw splits of all references together: exact numbers, even classes, whole groups."""

from __future__ import annotations

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsSingleton

from shardwright.transforms.routing import Routed
from shardwright.transforms.splits import grouped_splits, stratified
from shardwright.transforms.splits.split_rules import SplitRule


class DrawSplits(beam.PTransform):
    """A transform that assigns a split to every reference, which needs the hashes of all.

    Args:
        rule: How to draw splits.
        stratify: Give every split the same class fractions, to within one record.
        grouped: References may have a group, which stays in one split. This needs the contents of
            each group.
    """

    def __init__(self, rule: SplitRule, *, stratify: bool = False, grouped: bool = False) -> None:
        super().__init__()
        self._rule, self._stratify, self._grouped = rule, stratify, grouped

    def expand(self, references: beam.PCollection) -> Routed:
        draw = self._draw_groups if self._grouped else self._draw_records
        none = beam.Create([]).with_output_types(bytes)
        return Routed(draw(references, self._rule), references.pipeline | "NoRejects" >> none)

    def _draw_records(self, references: beam.PCollection, rule: SplitRule) -> beam.PCollection:
        stratify = self._stratify
        thresholds = (
            references
            | "Hash" >> beam.Map(stratified.hashes_of, stratify=stratify)  # (classes, hashes)
            | "AllHashes" >> beam.combiners.ToList()
            | "Thresholds"
            >> beam.Map(stratified.find_thresholds, rule, stratify=stratify)  # one Thresholds
        )
        return references | "Cut" >> beam.Map(
            stratified.cut_batch, thresholds=AsSingleton(thresholds)
        ).with_output_types(pa.RecordBatch)

    def _draw_groups(self, references: beam.PCollection, rule: SplitRule) -> beam.PCollection:
        placed = (
            references
            | "CountGroups"
            >> beam.FlatMap(grouped_splits.count_groups, stratify=self._stratify)  # (bucket, pairs)
            | "GroupBuckets" >> beam.GroupByKey()
            | "Pieces" >> beam.Values()
            | "Kinds" >> beam.Map(grouped_splits.find_kinds)  # GroupKinds
            | "AllKinds" >> beam.combiners.ToList()
            | "Place"
            >> beam.Map(
                grouped_splits.place_groups, rule, stratify=self._stratify
            )  # one GroupSplits
        )
        return references | "Split" >> beam.Map(
            grouped_splits.split_groups, placed=AsSingleton(placed)
        ).with_output_types(pa.RecordBatch)
