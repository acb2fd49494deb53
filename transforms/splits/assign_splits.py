"""Assign a split to every reference."""

from __future__ import annotations

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsSingleton

from shardwright.transforms.changes.known_files import KnownFile
from shardwright.transforms.routing import Route, Routed
from shardwright.transforms.splits import grouped_splits, stratified
from shardwright.transforms.splits.split_lists import (
    SplitLists,
    find_used,
    read_lists,
    reject_others,
    reject_unused,
    take_listed,
    take_others,
)
from shardwright.transforms.splits.split_rules import SplitFractions, SplitRule, assign_splits


class AssignSplits(beam.PTransform):
    """A transform that assigns a split to every reference.

    Fractions alone are drawn per reference. Counts and stratified splits also need the hashes
    of all (`transforms/splits/stratified.py`), and groups that stay together need the contents of
    each group (`transforms/splits/grouped_splits.py`).

    Args:
        rule: How to draw splits. None uses a single split or, with `listed`, rejects unlisted ids.
        given: The source provides the splits.
        stratify: Give every split the same class fractions, to within one record.
        grouped: References may have a group, which stays in one split.
        listed: Ids with a fixed split; splits are drawn for the others.
        known: The records of a dataset that grows, which may be listed, too.
    """

    def __init__(
        self,
        rule: SplitRule | None = None,
        *,
        given: bool = False,
        stratify: bool = False,
        grouped: bool = False,
        listed: SplitLists | None = None,
        known: KnownFile | None = None,
    ) -> None:
        super().__init__()
        self._rule = rule
        self._given = given
        self._stratify = stratify
        self._grouped = grouped
        self._listed = listed
        self._known = known

    def expand(self, references: beam.PCollection) -> Routed:
        if self._listed is None:
            return self._draw(references)
        ids = (
            references.pipeline
            | "Lists" >> beam.Create([self._listed])
            | "ReadLists" >> beam.Map(read_lists)
        )  # one ListedIds
        listed = references | "Listed" >> beam.FlatMap(
            take_listed, ids=AsSingleton(ids)
        ).with_output_types(pa.RecordBatch)
        others = references | "Others" >> beam.FlatMap(
            take_others, ids=AsSingleton(ids)
        ).with_output_types(pa.RecordBatch)
        used = (
            references
            | "Used" >> beam.FlatMap(find_used, ids=AsSingleton(ids)).with_output_types(str)
            | "AllUsed" >> beam.combiners.ToSet()
        )
        unused = used | "Unused" >> Route(
            reject_unused, pa.RecordBatch, ids=AsSingleton(ids), known=self._known
        )
        drawn = (
            others | "RejectOthers" >> Route(reject_others, pa.RecordBatch)
            if self._rule is None
            else self._draw(others)
        )
        main = (listed, drawn.main) | "Main" >> beam.Flatten()
        rejects = (unused.rejects, drawn.rejects) | "Rejects" >> beam.Flatten()
        return Routed(main, rejects)

    def _draw(self, references: beam.PCollection) -> Routed:
        rule = self._rule
        # A record's split follows from its own hash: no other record need be seen.
        if self._given or rule is None or (isinstance(rule, SplitFractions) and not self._stratify):
            return references | Route(
                assign_splits, pa.RecordBatch, fractions=rule, given=self._given
            )
        drawn = (
            self._draw_groups(references, rule)
            if self._grouped
            else self._draw_records(references, rule)
        )
        none = beam.Create([]).with_output_types(bytes)
        return Routed(drawn, references.pipeline | "NoRejects" >> none)

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
