"""EncodeFeatures: references with the source's columns -> references with the features that are stored | rejects, and vocabularies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsSingleton

from shardwright.schema import ExampleSchema
from transforms.features.rows import index_references, settle_references
from transforms.features.vocabularies import add_counts, count_values, order_vocabularies
from transforms.routing import Route


class Encoded(NamedTuple):
    """References with final features, what is left out, and one dict: feature name -> its class names or words, in index order."""

    main: beam.PCollection
    rejects: beam.PCollection
    vocabularies: beam.PCollection


class EncodeFeatures(beam.PTransform):
    """Turn the columns that a source brings into what the examples store: coerced, checked, and with indices for classes and words.

    Vocabularies that nobody gives are learned from the same references: classes from all of them, words from the train split.

    Args:
        schema: The features.
        class_names: The label's names in label order, or None to learn them.
        integer_labels: Labels are whole numbers, so learned names are ordered by value.
        label_indices: They are indices already, and stay what they are.
        needs_label: A dataset without any label is refused; if not, it has no label features.
    """

    def __init__(
        self,
        schema: ExampleSchema,
        *,
        class_names: Sequence[str] | None = None,
        integer_labels: bool = False,
        label_indices: bool = False,
        needs_label: bool = False,
    ) -> None:
        super().__init__()
        self._schema = schema
        self._class_names = None if class_names is None else tuple(class_names)
        self._integer_labels = integer_labels
        self._label_indices = label_indices
        self._needs_label = needs_label

    def expand(self, references: beam.PCollection) -> Encoded:
        settled = references | "Settle" >> Route(
            settle_references, pa.RecordBatch, schema=self._schema
        )
        vocabularies = (
            settled.main
            | "Count"
            >> beam.Map(
                count_values, self._schema
            )  # by feature, how often each class or word occurs in a batch
            | "Add" >> beam.CombineGlobally(add_counts)  # the same of all
            | "Order"
            >> beam.Map(
                order_vocabularies,
                self._schema,
                class_names=self._class_names,
                integer_labels=self._integer_labels,
                label_indices=self._label_indices,
                needs_label=self._needs_label,
            )
        )  # one dict
        index = Route(
            index_references,
            pa.RecordBatch,
            schema=self._schema,
            vocabularies=AsSingleton(vocabularies),
        )
        indexed = settled.main | "Index" >> index  # references with final features
        rejects = (settled.rejects, indexed.rejects) | "Rejects" >> beam.Flatten()
        return Encoded(indexed.main, rejects, vocabularies)
