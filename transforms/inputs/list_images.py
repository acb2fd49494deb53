"""List INPUT as references; reads names, sizes and table rows, never pixels."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
import pyarrow as pa

from transforms.inputs.source import InputSource
from transforms.rejects import Reject
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
        return (
            begin
            | "Source" >> beam.Create([self._source])  # InputSource
            # The source may list every part, so it travels once, with the DoFn of List.
            | "Parts" >> beam.FlatMap(_parts)  # part name
            | "Spread" >> beam.Reshuffle()
            | "List" >> Route(_list, pa.RecordBatch, source=self._source)  # references, any order
        )


def _parts(source: InputSource) -> Iterator[str]:
    yield from source.parts()


def _list(part: str, source: InputSource) -> Iterator[pa.RecordBatch | Reject]:
    yield from source.list_part(part)
