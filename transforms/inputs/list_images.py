"""List INPUT as references; reads names, sizes and table rows, never pixels."""

from __future__ import annotations

import apache_beam as beam
import pyarrow as pa

from transforms.inputs.source import InputSource
from transforms.routing import Route, Routed


class ListImages(beam.PTransform):
    """A transform that lists a source as reference batches, its parts in parallel.

    Args:
        source: The source that `transforms.inputs.detection.detect_source` found.
    """

    def __init__(self, source: InputSource) -> None:
        super().__init__()
        self._source = source

    def expand(self, begin: beam.pvalue.PBegin) -> Routed:
        source = self._source
        return (
            begin
            | "Source" >> beam.Create([source.facts])  # SourceFacts
            # The facts may list every part, so they travel once, with the DoFn of List.
            | "Parts" >> beam.FlatMap(lambda facts: facts.worker_parts())  # part name
            | "Spread" >> beam.Reshuffle()
            | "List" >> Route(source.list_part, pa.RecordBatch)  # references, any order
        )
