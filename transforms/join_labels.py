"""JoinLabels: references (+ a table of labels) -> references with a label index | rejects, and the class names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsSingleton

from transforms.inputs.detection import list_source
from transforms.inputs.tables import TableSource
from transforms.labels import LabelTable, index_labels, label_names, order_class_names
from transforms.rejects import Reject
from transforms.routing import Route


class Labelled(NamedTuple):
    """References with labels, what is left out, and the class names in label order (one tuple of str)."""

    main: beam.PCollection
    rejects: beam.PCollection
    class_names: beam.PCollection


class JoinLabels(beam.PTransform):
    """Give every reference its label's index.

    Args:
        table: A table of labels to join by id, held in memory by each worker; None where references bring their own.
        class_names: The class names in label order, or None to learn them from the labels.
        integer_labels: The labels are integers, so learned names are ordered by value.
    """

    def __init__(self, *, table: TableSource | None = None, class_names: Sequence[str] | None = None, integer_labels: bool = False) -> None:
        super().__init__()
        self._table = table
        self._class_names = class_names
        self._integer_labels = integer_labels

    def expand(self, references: beam.PCollection) -> Labelled:
        rejects = []
        if self._table is not None:
            parts = references.pipeline | "Labels" >> beam.Create([self._table]) | "ReadLabels" >> beam.FlatMap(list_source)
            table = parts | "AllLabels" >> beam.combiners.ToList() | "Load" >> beam.Map(LabelTable)  # one LabelTable
            joined = references | "Join" >> Route(_join, pa.RecordBatch, table=AsSingleton(table))
            lines = table | "Lines" >> Route(_broken_lines, Reject)
            references = joined.main
            rejects += [joined.rejects, lines.rejects]
        class_names = self._learn(references)
        indexed = references | "Index" >> Route(index_labels, pa.RecordBatch, class_names=AsSingleton(class_names))
        every_reject = (*rejects, indexed.rejects) | "Rejects" >> beam.Flatten()
        return Labelled(indexed.main, every_reject, class_names)

    def _learn(self, references: beam.PCollection) -> beam.PCollection:
        if self._class_names is not None:
            return references.pipeline | "ClassNames" >> beam.Create([tuple(self._class_names)])
        return (
            references
            | "LabelNames" >> beam.Map(label_names)  # frozenset of a batch's labels
            | "Union" >> beam.CombineGlobally(_union)  # frozenset of all
            | "Order" >> beam.Map(order_class_names, integers=self._integer_labels)  # tuple, in label order
        )


def _join(batch: pa.RecordBatch, table: LabelTable) -> Iterator[pa.RecordBatch | Reject]:
    yield from table.join(batch)


def _broken_lines(table: LabelTable) -> Iterator[Reject]:
    yield from table.broken_lines


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)
