"""Encode the source's columns as the features that are stored, and learn vocabularies."""

from __future__ import annotations

from typing import NamedTuple, Unpack

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsSingleton

from shardwright.format.schema import ExampleSchema
from shardwright.transforms.features.rows import FeatureHashes, index_references
from shardwright.transforms.features.vocabularies import (
    VocabularyRules,
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
        hash_labels: Hash the label with the columns.
        rules: As for `order_vocabularies`: `class_names` in label order, or None to learn them;
            `labels_are_names`; `needs_label`, or a dataset without labels has no label features;
            and `earlier`, the vocabularies of a dataset that grows.
    """

    def __init__(
        self,
        schema: ExampleSchema,
        *,
        hash_labels: bool = False,
        **rules: Unpack[VocabularyRules],
    ) -> None:
        super().__init__()
        self._schema, self._rules = schema, rules
        self._hashes = FeatureHashes(schema, hash_labels)

    def expand(self, references: beam.PCollection) -> Encoded:
        settled = references | "Settle" >> Route(self._hashes.settle, pa.RecordBatch)
        vocabularies = (
            settled.main
            | "Count"
            >> beam.Map(count_values, self._schema)  # feature -> occurrences of its values
            | "Add" >> beam.CombineGlobally(add_counts)  # the same, over all batches
            | "Order" >> beam.Map(order_vocabularies, self._schema, **self._rules)  # one dict
        )
        index = Route(
            index_references,
            pa.RecordBatch,
            schema=self._schema,
            vocabularies=AsSingleton(vocabularies),
        )
        indexed = settled.main | "Index" >> index  # references with final features
        rejects = (settled.rejects, indexed.rejects) | "Rejects" >> beam.Flatten()
        return Encoded(indexed.main, rejects, vocabularies)
