"""ListImages: what INPUT is -> references | rejects. Reads names, sizes and table rows, never a pixel."""

from __future__ import annotations

from collections.abc import Iterator

import apache_beam as beam
import pyarrow as pa

from transforms.inputs.source import InputSource
from transforms.rejects import Reject
from transforms.routing import Route, Routed


class ListImages(beam.PTransform):
    """List a source as reference batches, its parts by as many workers as there are.

    Args:
        source: What `transforms.inputs.detection.detect_source` found INPUT to be.
    """

    def __init__(self, source: InputSource) -> None:
        super().__init__()
        self._source = source

    def expand(self, begin: beam.pvalue.PBegin) -> Routed:
        return (
            begin
            | "Source" >> beam.Create([self._source])  # InputSource
            | "Parts"
            >> beam.FlatMap(
                _parts
            )  # name of a part; the source goes by the step: it may name all of them
            | "Spread" >> beam.Reshuffle()
            | "List" >> Route(_list, pa.RecordBatch, source=self._source)  # references, any order
        )


def _parts(source: InputSource) -> Iterator[str]:
    yield from source.parts()


def _list(part: str, source: InputSource) -> Iterator[pa.RecordBatch | Reject]:
    yield from source.list_part(part)
