"""Summarize the features of a shard's records: values of numbers, lengths of texts and lists."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.transforms.publish.number_sums import describe_numbers
from shardwright.transforms.references import extra_name

FEATURES = "features"  # key in a split's statistics
_NUMBERS = (FeatureKind.INT64, FeatureKind.FLOAT32)
_DESCRIBED = (*_NUMBERS, FeatureKind.TEXT, FeatureKind.BYTES)


def describe_features(references: pa.RecordBatch, schema: ExampleSchema) -> dict[str, Any]:
    """Return the statistics of the features that come from columns, {} if there are none.

    Args:
        references: The rows of the records, with final feature values.
        schema: Their features.
    """
    found = {}
    for name, of, numbers in _columns(references, schema):
        part = describe_numbers(numbers.to_numpy(zero_copy_only=False))
        if part is not None:
            found[name] = {"of": of, **part}
    return {FEATURES: found} if found else {}


def described_features(schema: ExampleSchema) -> list[Feature]:
    """Return the features with statistics: numbers, texts, and lists that vary in length."""
    return [
        feature
        for feature in schema.features
        if feature.source == Source.COLUMN and _is_described(feature)
    ]


def _is_described(feature: Feature) -> bool:
    shape = feature.stored[0].shape
    return shape[0] is None if shape else feature.kind in _DESCRIBED


def _columns(
    references: pa.RecordBatch, schema: ExampleSchema
) -> Iterator[tuple[str, str, pa.Array]]:
    """Yield name, "values", "characters", "bytes" or "items", and numbers without nulls."""
    names = set(references.schema.names)
    for feature in described_features(schema):
        stored = feature.stored[0]
        if extra_name(stored.key) not in names:
            continue
        values = references.column(extra_name(stored.key)).drop_null()
        if stored.shape:
            items = math.prod(size or 1 for size in stored.shape[1:])
            yield feature.name, "items", pc.divide(pc.list_value_length(values), items)
        elif feature.kind in _NUMBERS:
            yield feature.name, "values", values
        elif feature.kind == FeatureKind.TEXT:
            yield feature.name, "characters", _characters(values)
        else:
            yield feature.name, "bytes", pc.binary_length(values)


def _characters(values: pa.Array) -> pa.Array:
    try:
        return pc.utf8_length(values.cast(pa.string()))
    except pa.ArrowInvalid:  # not UTF-8
        return pc.binary_length(values)
