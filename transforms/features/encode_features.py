"""Encode the source's columns as the features that are stored, and learn vocabularies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsSingleton

from shardwright.format.schema import ExampleSchema
from shardwright.transforms.features.feature_hashes import FeatureHashes
from shardwright.transforms.features.rows import index_references
from shardwright.transforms.features.vocabularies import (
    Vocabularies,
    add_counts,
    count_values,
    order_vocabularies,
)
from shardwright.transforms.routing import Route


class Encoded(NamedTuple):
    """References with final features, rejects, and one dict of vocabularies by feature name.

    A vocabulary is the tuple of class names or words in index order.
    """

    main: beam.PCollection
    rejects: beam.PCollection
    vocabularies: beam.PCollection


class EncodeFeatures(beam.PTransform):
    """A transform that coerces and checks source columns and replaces classes and words by indices.

    Vocabularies that are not given are learned from the references: classes from all of them,
    words from the train split.

    Args:
        schema: The features.
        class_names: The label's names in label order, or None to learn them.
        labels_are_names: Labels that are numbers are names, which sort as text.
        needs_label: Fail without any label. Otherwise such a dataset has no label features.
        earlier: The vocabularies of a dataset that grows, whose names keep their numbers.
        hash_labels: Hash the label with the columns.
    """

    def __init__(
        self,
        schema: ExampleSchema,
        *,
        class_names: Sequence[str] | None = None,
        labels_are_names: bool = False,
        needs_label: bool = False,
        earlier: Vocabularies | None = None,
        hash_labels: bool = False,
    ) -> None:
        super().__init__()
        self._schema = schema
        self._class_names = None if class_names is None else tuple(class_names)
        self._labels_are_names = labels_are_names
        self._needs_label = needs_label
        self._earlier = earlier
        self._hashes = FeatureHashes(schema, hash_labels)

    def expand(self, references: beam.PCollection) -> Encoded:
        settled = references | "Settle" >> Route(self._hashes.settle, pa.RecordBatch)
        vocabularies = (
            settled.main
            | "Count"
            >> beam.Map(count_values, self._schema)  # feature -> occurrences of its values
            | "Add" >> beam.CombineGlobally(add_counts)  # the same, over all batches
            | "Order"
            >> beam.Map(
                order_vocabularies,
                self._schema,
                class_names=self._class_names,
                labels_are_names=self._labels_are_names,
                needs_label=self._needs_label,
                earlier=self._earlier,
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
