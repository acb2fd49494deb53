"""List INPUT as references; reads names, sizes and table rows, never pixels.

A PCollection of Python records becomes references, too: its images go to the spool.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsSingleton

from shardwright.transforms.inputs.source import InputSource, Rows, unpack
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.routing import Route, Routed

_FEWEST_RECORDS, _MOST_RECORDS = 64, 256  # of a file in the spool; they are in memory at once


class ListImages(beam.PTransform):
    """A transform that lists a source as reference batches, its parts in parallel.

    Args:
        source: The source that `shardwright.transforms.inputs.detection.detect_source` found.
        one_machine: All workers are on one machine. Then a long prefix of a store is one part,
            which a process lists with many requests at a time; finding smaller ones takes longer.
    """

    def __init__(self, source: InputSource, *, one_machine: bool = False) -> None:
        super().__init__()
        self._source = source
        self._one_machine = one_machine

    def expand(self, begin: beam.pvalue.PBegin) -> Routed:
        # A source may name every part, so the graph holds it once, packed; `Create` would hold it
        # three times.
        packed = self._source.pack()
        source = (
            begin | "Impulse" >> beam.Impulse() | "Source" >> beam.Map(lambda _: packed)
        )  # one packed source
        return (
            source
            | "Parts" >> beam.FlatMap(_parts, self._one_machine)  # part name
            | "Spread" >> beam.Reshuffle()
            | "List" >> Route(_list_part, pa.RecordBatch, packed=AsSingleton(source))
        )  # references, any order


def _parts(packed: bytes, one_machine: bool) -> Iterator[str]:
    source = unpack(packed)
    return source.parts() if one_machine else source.worker_parts()


def _list_part(part: str, *, packed: bytes) -> Rows:
    return PROGRESS.count_listed(unpack(packed).list_part(part))


class Records(Protocol):
    """Records as a source (`formats.records.RecordSource`)."""

    def spool(self, records: Sequence[Any]) -> Rows:
        """Put the images of some records into a file of the spool, and yield references."""


class SpoolRecords(beam.PTransform):
    """A transform of records into reference batches.

    Args:
        source: The records as a source, with their ids.
    """

    def __init__(self, source: Records) -> None:
        super().__init__()
        self._source = source

    def expand(self, records: beam.PCollection) -> Routed:
        return (
            records
            | "Batch" >> beam.BatchElements(_FEWEST_RECORDS, _MOST_RECORDS)  # list of records
            | "Spool" >> Route(self._source.spool, pa.RecordBatch)
        )  # references, any order
