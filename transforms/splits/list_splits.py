"""Give listed references the split of a list (`--split-ids`)."""

from __future__ import annotations

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsSingleton

from shardwright.transforms.changes.known_files import KnownFile
from shardwright.transforms.routing import Route, Routed
from shardwright.transforms.splits.split_lists import (
    SplitLists,
    ids_of,
    read_lists,
    reject_others,
    reject_unused,
    stated_splits,
    take_listed,
)


class ListSplits(beam.PTransform):
    """A transform that assigns a split to every reference: that of a list, or a drawn one.

    Args:
        listed: Ids with a fixed split.
        others: Assigns the splits of all others; None rejects them.
        known: The records of a dataset that grows, which may be listed, too.
    """

    def __init__(
        self,
        listed: SplitLists,
        others: beam.PTransform | None = None,
        *,
        known: KnownFile | None = None,
    ) -> None:
        super().__init__()
        self._listed, self._others, self._known = listed, others, known

    def expand(self, references: beam.PCollection) -> Routed:
        ids = (
            references.pipeline
            | "Lists" >> beam.Create([self._listed])
            | "ReadLists" >> beam.Map(read_lists)
        )  # one ListedIds
        marked = references | "Mark" >> beam.Map(stated_splits, AsSingleton(ids)).with_output_types(
            pa.RecordBatch
        )
        listed, others = (
            marked
            | name >> beam.FlatMap(take_listed, listed=is_listed).with_output_types(pa.RecordBatch)
            for name, is_listed in (("Listed", True), ("Others", False))
        )
        used = (
            listed
            | "Used" >> beam.FlatMap(ids_of).with_output_types(str)
            | "AllUsed" >> beam.combiners.ToSet()
        )
        unused = used | "Unused" >> Route(
            reject_unused, pa.RecordBatch, ids=AsSingleton(ids), known=self._known
        )
        if self._others is None:
            drawn = others | "RejectOthers" >> Route(reject_others, pa.RecordBatch)
        else:
            drawn = others | "Draw" >> self._others
        main = (listed, drawn.main) | "Main" >> beam.Flatten()
        rejects = (unused.rejects, drawn.rejects) | "Rejects" >> beam.Flatten()
        return Routed(main, rejects)
