"""List INPUT as references; reads names, sizes and table rows, never pixels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsSingleton

from shardwright.transforms.inputs.source import InputSource, Rows, SourceFacts, unpack_facts
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.routing import Route, Routed


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
        source = self._source
        # The facts may name every part, so the graph holds them once, packed; `Create` would hold
        # them three times.
        packed = source.pack_facts()
        facts = (
            begin | "Source" >> beam.Impulse() | "Facts" >> beam.Map(lambda _: packed)
        )  # one packed SourceFacts
        bare = replace(source, facts=SourceFacts(source.facts.description))
        return (
            facts
            | "Parts" >> beam.FlatMap(_parts, self._one_machine)  # part name
            | "Spread" >> beam.Reshuffle()
            | "List" >> Route(_list_part, pa.RecordBatch, source=bare, facts=AsSingleton(facts))
        )  # references, any order


def _parts(packed: bytes, one_machine: bool) -> Iterator[str]:
    facts = unpack_facts(packed)
    return facts.parts() if one_machine else facts.worker_parts()


def _list_part(part: str, *, source: InputSource, facts: bytes) -> Rows:
    return PROGRESS.count_listed(source.with_facts(facts).list_part(part))
