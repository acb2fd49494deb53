"""ListImages: a folder or a table -> references | rejects. Reads names, sizes and table rows, never a pixel."""

from __future__ import annotations

import apache_beam as beam
import pyarrow as pa

from transforms.folders import FolderSource
from transforms.routing import Route, Routed
from transforms.sources import list_source
from transforms.tables import TableSource


class ListImages(beam.PTransform):
    """List a source as reference batches.

    Args:
        source: What `transforms.sources.detect_source` found INPUT to be.
    """

    def __init__(self, source: FolderSource | TableSource) -> None:
        super().__init__()
        self._source = source

    def expand(self, begin: beam.pvalue.PBegin) -> Routed:
        return (
            begin
            | "Source" >> beam.Create([self._source])  # FolderSource | TableSource
            | "List" >> Route(list_source, pa.RecordBatch)  # references, any order
        )
