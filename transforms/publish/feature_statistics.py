"""Summarize the features of a shard's records: values of numbers, lengths of texts and lists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.format.stats_keys import FEATURES
from shardwright.transforms.publish.number_sums import describe_numbers
from shardwright.transforms.references import extra_name, stacked

_NUMBERS = (FeatureKind.INT64, FeatureKind.FLOAT32)
_DESCRIBED = (*_NUMBERS, FeatureKind.TEXT, FeatureKind.BYTES)


def describe_features(references: pa.RecordBatch, schema: ExampleSchema) -> dict[str, Any]:
    """Return the statistics of the features that come from columns, {} if there are none.

    Args:
        references: The rows of the records, with final feature values.
        schema: Their features.
    """
    there = dict(zip(references.schema.names, references.columns, strict=True))
    columns = [
        (feature, there[extra_name(feature.stored[0].key)].drop_null())
        for feature in described_features(schema)
        if extra_name(feature.stored[0].key) in there
    ]
    found: dict[int, dict[str, Any]] = {}
    values = [each for _, each in columns]
    rules = [(feature.kind, feature.stored[0].shape) for feature, _ in columns]
    for numbers, whole in stacked(values, rules):
        own = [values[number] for number in numbers]
        of, measured = _measured(columns[numbers[0]][0], whole, own)
        ends = np.cumsum([len(each) for each in own])[:-1]
        parts = describe_numbers(np.split(measured.to_numpy(zero_copy_only=False), ends))
        found |= {number: {"of": of, **part} for number, part in zip(numbers, parts, strict=True)}
    in_order = sorted(number for number in found if len(values[number]))
    described = {columns[number][0].name: found[number] for number in in_order}
    return {FEATURES: described} if described else {}


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


def _measured(
    feature: Feature, whole: pa.Array, columns: Sequence[pa.Array]
) -> tuple[str, pa.Array]:
    """Return "values", "characters", "bytes" or "items", and these numbers of stacked columns."""
    shape = feature.stored[0].shape
    if shape:
        items = math.prod(size or 1 for size in shape[1:])
        return "items", pc.divide(pc.list_value_length(whole), items)
    if feature.kind in _NUMBERS:
        return "values", whole
    if feature.kind == FeatureKind.TEXT:
        return "characters", _characters(whole, columns)
    return "bytes", pc.binary_length(whole)


def _characters(whole: pa.Array, columns: Sequence[pa.Array]) -> pa.Array:
    """Return the characters of each text; the bytes in a column with one that is not UTF-8."""
    try:
        return pc.utf8_length(whole.cast(pa.string()))
    except pa.ArrowInvalid:
        if len(columns) == 1:
            return pc.binary_length(whole)
        return pa.concat_arrays([_characters(each, [each]) for each in columns])
