"""Leave out references that a dataset has already, unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsSingleton, TaggedOutput

from shardwright.transforms.changes.known_files import KnownFile
from shardwright.transforms.changes.seen_records import (
    mark_rows,
    no_rows,
    take_changed,
    union_of,
)
from shardwright.transforms.features.rows import FeatureHashes
from shardwright.transforms.output_state import SeenRecords
from shardwright.transforms.routing import Route

_CHANGED, _UNCHANGED = "changed", "unchanged"


class Changes(NamedTuple):
    """The outcome of a comparison with a dataset's records.

    Attributes:
        new: References with unknown ids.
        changed: Changed references, with the splits of their records.
        rejects: Rejects, packed.
        seen: One SeenRecords.
    """

    new: beam.PCollection
    changed: beam.PCollection
    rejects: beam.PCollection
    seen: beam.PCollection


class FindChanges(beam.PTransform):
    """A transform of references into those that a dataset does not have, or not as they are.

    References have a split only where INPUT states it.

    Args:
        known: The file of the dataset's records, which every worker maps into its memory.
        features: The rule for the hashes of features.
    """

    def __init__(self, known: KnownFile, features: FeatureHashes) -> None:
        super().__init__()
        self._known, self._features = known, features

    def expand(self, references: beam.PCollection) -> Changes:
        known = self._known
        compare = beam.ParDo(_CompareFn(known, self._features)).with_output_types(
            pa.RecordBatch, **{_CHANGED: pa.RecordBatch, _UNCHANGED: np.ndarray}
        )
        compared = references | "Compare" >> compare.with_outputs(_CHANGED, _UNCHANGED, main="new")
        unchanged = compared[_UNCHANGED] | "Unchanged" >> beam.CombineGlobally(
            _RowsFn(known.num_rows)
        )  # one set of rows
        # After all are compared: whether a changed reference counts depends on whether another one
        # with its id is unchanged.
        taken = compared[_CHANGED] | "TakeChanged" >> Route(
            _take_changed, pa.RecordBatch, known=known, unchanged=AsSingleton(unchanged)
        )  # references
        changed = (
            taken.main
            | "ChangedRows" >> beam.Map(_rows_of, known)
            | "Changed" >> beam.CombineGlobally(_RowsFn(known.num_rows))
        )  # one set of rows
        seen = unchanged | "Seen" >> beam.Map(SeenRecords, AsSingleton(changed))
        return Changes(compared.new, taken.main, taken.rejects, seen)


class _CompareFn(beam.DoFn):
    """A DoFn that yields new and changed references, and the rows of unchanged records."""

    def __init__(self, known: KnownFile, features: FeatureHashes) -> None:
        self._known, self._features = known, features

    def process(self, batch: pa.RecordBatch) -> Iterator[Any]:
        compared = self._known.open().compare(batch, self._features)
        if compared.new.num_rows:
            yield compared.new
        if compared.changed.num_rows:
            yield TaggedOutput(_CHANGED, compared.changed)
        if len(compared.unchanged_rows):
            yield TaggedOutput(_UNCHANGED, compared.unchanged_rows)


class _RowsFn(beam.CombineFn):
    """A CombineFn of arrays of row numbers to one set."""

    def __init__(self, num_rows: int) -> None:
        self._num_rows = num_rows

    def create_accumulator(self) -> np.ndarray:
        return no_rows(self._num_rows)

    def add_input(self, rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        mark_rows(rows, numbers)
        return rows

    def merge_accumulators(self, parts: Iterable[np.ndarray]) -> np.ndarray:
        return union_of(parts)

    def extract_output(self, rows: np.ndarray) -> np.ndarray:
        return rows


def _take_changed(batch: pa.RecordBatch, *, known: KnownFile, unchanged: np.ndarray) -> Any:
    return take_changed(batch, known.open(), unchanged)


def _rows_of(batch: pa.RecordBatch, known: KnownFile) -> np.ndarray:
    records = known.open()
    return records.rows_at(records.find(batch.column("id")))
