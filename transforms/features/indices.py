"""Replace the values of settled columns by indices of their vocabulary."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.format.schema import Feature, FeatureKind, VocabularyRule
from shardwright.transforms.features.lists import Items, Mask, is_list, take_apart
from shardwright.transforms.features.texts import encode_bags, encode_tokens


def index_column(
    column: pa.Array, feature: Feature, words: Sequence[str]
) -> tuple[dict[str, pa.Array], Mask]:
    """Return the stored columns of a settled column by key, and rows with an unknown class."""
    (first, *others) = feature.stored
    known = np.zeros(len(column), bool)
    rule = feature.vocabulary or VocabularyRule()
    if feature.kind == FeatureKind.TOKENS:
        return {first.key: encode_tokens(column, words, rule)}, known
    if feature.kind == FeatureKind.BAG_OF_WORDS:
        indices, counts = encode_bags(column, words, rule, others[0].type)
        return {first.key: indices, others[0].key: counts}, known
    items = take_apart(column, (None,) if is_list(column.type) else ())
    indices = pc.index_in(
        items.values.cast(pa.string()), value_set=pa.array(words, pa.string())
    ).cast(pa.int64())
    unknown = items.rows_with(indices.is_null().to_numpy(zero_copy_only=False))
    if feature.kind == FeatureKind.MULTI_LABEL:
        return {first.key: _sets(items, indices, max(len(words), 1))}, unknown
    return {first.key: items.as_lists(indices) if is_list(column.type) else indices}, unknown


def _sets(items: Items, indices: pa.Array, num_classes: int) -> pa.Array:
    """Return each row's distinct indices, ascending."""
    # Each (row, index) as one number, so a single np.unique sorts and deduplicates all rows.
    rows = np.repeat(np.arange(len(items.lengths)), items.lengths)
    rows, values = np.divmod(
        np.unique(rows * num_classes + indices.fill_null(0).to_numpy()), num_classes
    )
    offsets = np.concatenate(
        ([0], np.cumsum(np.bincount(rows, minlength=len(items.lengths))))
    ).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values, pa.int64()))
