"""Put the images of a PCollection of records into the spool, and list them as references."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa

from shardwright.transforms.inputs.formats.record_forms import SAMPLE_RECORDS, records_of
from shardwright.transforms.inputs.formats.records import RecordSource, list_records
from shardwright.transforms.inputs.source import Rows
from shardwright.transforms.inputs.spool import SpoolWriter
from shardwright.transforms.routing import Route, Routed

_MAX_RECORDS = 4 * SAMPLE_RECORDS  # of a file in the spool; they are in memory at once


class SpoolRecords(beam.PTransform):
    """A transform of records into reference batches.

    Args:
        source: The records as a source, with their ids.
    """

    def __init__(self, source: RecordSource) -> None:
        super().__init__()
        self._source = source

    def expand(self, records: beam.PCollection) -> Routed:
        return (
            records
            | "Batch" >> beam.BatchElements(SAMPLE_RECORDS, _MAX_RECORDS)  # list of records
            | "Spool" >> Route(_spool, pa.RecordBatch, source=self._source)
        )  # references, any order


def _spool(records: Sequence[Any], *, source: RecordSource) -> Rows:
    folder = source.request.spool
    assert folder is not None
    # Another name in each attempt: a worker that was given up may still write its file.
    name = f"{uuid.uuid4().hex}.bin"
    with folder.open_sink(name, sync=False) as sink:
        writer = SpoolWriter(folder.path(name), None, sink.write)
        rows = list(list_records(source, records_of(records), "", writer))
        writer.flush()
    yield from rows
