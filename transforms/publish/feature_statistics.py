"""Summarize the features of a shard's records: values of numbers, lengths of texts and lists."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.format.schema import ExampleSchema, FeatureKind, Source
from transforms.publish.number_sums import describe_numbers
from transforms.references import extra_name

FEATURES = "features"  # key in a split's statistics
_NUMBERS = (FeatureKind.INT64, FeatureKind.FLOAT32)


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


def _columns(
    references: pa.RecordBatch, schema: ExampleSchema
) -> Iterator[tuple[str, str, pa.Array]]:
    """Yield name, "values", "characters", "bytes" or "items", and numbers without nulls."""
    names = set(references.schema.names)
    for feature in schema.features:
        stored = feature.stored[0]
        column = extra_name(stored.key)
        if feature.source != Source.COLUMN or column not in names:
            continue
        values = references.column(column)
        if stored.shape:
            if stored.shape[0] is None:  # else all lists have the same length
                lengths = pc.list_value_length(values).drop_null()
                yield (
                    feature.name,
                    "items",
                    pc.divide(lengths, math.prod(size or 1 for size in stored.shape[1:])),
                )
        elif feature.kind in _NUMBERS:
            yield feature.name, "values", values.drop_null()
        elif feature.kind == FeatureKind.TEXT:
            yield feature.name, "characters", _characters(values.drop_null())
        elif feature.kind == FeatureKind.BYTES:
            yield feature.name, "bytes", pc.binary_length(values.drop_null())


def _characters(values: pa.Array) -> pa.Array:
    try:
        return pc.utf8_length(values.cast(pa.string()))
    except pa.ArrowInvalid:  # not UTF-8
        return pc.binary_length(values)
