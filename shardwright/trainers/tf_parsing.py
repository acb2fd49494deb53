"""The argument of `tf.io.parse_example` for the records of a dataset."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import tensorflow as tf

from shardwright.format.schema import ExampleSchema, FeatureKind, StoredFeature

_DTYPES = {pa.int64(): tf.int64, pa.float32(): tf.float32}


def parsing_spec(schema: ExampleSchema) -> dict[str, Any]:
    """Return the `features` argument of `tf.io.parse_example` for records of this schema.

    Single values are FixedLenFeature([]), arrays of fixed shape FixedLenFeature(shape), lists
    RaggedFeature, boxes RaggedFeature with rows of 4, bags of words SparseFeature over their
    vocabulary. Images and serialized tensors are bytes.
    """
    spec: dict[str, Any] = {}
    for feature in schema.features:
        if feature.kind == FeatureKind.BAG_OF_WORDS:
            indices, counts = feature.stored
            size, dtype = len(schema.names_of(feature)), _DTYPES[counts.type]
            spec[feature.name] = tf.io.SparseFeature(
                indices.key, counts.key, dtype, size, already_sorted=True
            )
        else:
            spec[feature.name] = _rule(feature.stored[0])
    return spec


def _rule(stored: StoredFeature) -> Any:
    dtype = _DTYPES.get(stored.type, tf.string)
    if None not in stored.shape:
        return tf.io.FixedLenFeature(stored.shape, dtype)
    partitions = [tf.io.RaggedFeature.UniformRowLength(size) for size in stored.shape[1:]]
    return tf.io.RaggedFeature(dtype, partitions=partitions)
