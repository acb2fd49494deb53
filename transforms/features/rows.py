"""Turn extra columns of references into the features of a schema, and reject rows that do not fit.

First every column is settled: features without a vocabulary get their final values, and bad rows
are rejected before any vocabulary is learned. Then classes and words become indices.

"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.format.schema import (
    INDEXED,
    PICTURES,
    ExampleSchema,
    Feature,
    FeatureKind,
    VocabularyRule,
)
from shardwright.transforms.features.columns import settle_columns
from shardwright.transforms.features.conversions import Misfit
from shardwright.transforms.features.lists import Mask, as_lists, as_sets, is_list, take_apart
from shardwright.transforms.features.texts import encode_bags, encode_tokens
from shardwright.transforms.features.vocabularies import Vocabularies, is_storable
from shardwright.transforms.references import (
    EXTRA_PREFIX,
    LABEL_INDEX,
    PICTURE_TYPE,
    extra_name,
    reject_rows,
    rows_left,
    set_column,
)
from shardwright.transforms.rejects import Reject, RejectReason

_SHOWN_CHARACTERS = 80
_IDENTITY = ("id", "uri", "row")


def settle_references(
    batch: pa.RecordBatch, schema: ExampleSchema
) -> Iterator[pa.RecordBatch | Reject]:
    """Yield references with one settled extra column per feature, `x/<feature>`, and rejects.

    A feature without a column is computed by `--transform`: until then it is null.
    """
    keep = np.ones(batch.num_rows, bool)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    settled: dict[str, pa.Array] = {}
    given = []
    for feature in schema.column_features:
        kind = PICTURE_TYPE if feature.kind in PICTURES else pa.null()
        settled[feature.name] = pa.nulls(batch.num_rows, kind)
        if (name := extra_name(feature.column_name)) in columns:
            given.append((feature, columns[name]))
    misfits = []
    for (feature, raw), found in zip(given, settle_columns(given), strict=True):
        settled[feature.name] = found.column
        misfits += [(feature, raw, misfit) for misfit in found.misfits]
    misfits += _uneven_sequences(schema, settled)
    yield from _reject_misfits(batch, misfits, keep)
    others = {name: each for name, each in columns.items() if not name.startswith(EXTRA_PREFIX)}
    extras = {extra_name(name): column for name, column in settled.items()}
    yield from rows_left(pa.RecordBatch.from_pydict({**others, **extras}), keep)


def _reject_misfits(
    batch: pa.RecordBatch, misfits: Iterable[tuple[Feature, pa.Array, Misfit]], keep: Mask
) -> Iterator[Reject]:
    """Yield a reject for each row that is a misfit and still in `keep`, and remove it there.

    Args:
        batch: References.
        misfits: Features with their values and rows that do not fit.
        keep: Rows without a reject, bool [rows].
    """
    for feature, values, misfit in misfits:
        for row in np.flatnonzero(misfit.rows & keep).tolist():
            shown = repr(values[row].as_py())
            if len(shown) > _SHOWN_CHARACTERS:
                shown = f"{shown[:_SHOWN_CHARACTERS]}..."
            image_id, uri, number = (batch.column(each)[row].as_py() for each in _IDENTITY)
            rule = misfit.rule.replace("{value}", shown)
            detail = f"row {number}: {feature.column_name!r} {rule}"
            yield Reject(image_id, uri, misfit.reason, detail)
        keep &= ~misfit.rows


def _uneven_sequences(
    schema: ExampleSchema, settled: dict[str, pa.Array]
) -> Iterator[tuple[Feature, pa.Array, Misfit]]:
    """Yield features of a sequence, with the rows whose item count differs from its first one's."""
    firsts: dict[str, tuple[Feature, np.ndarray]] = {}
    for feature in schema.column_features:
        if not feature.sequence or pa.types.is_null(settled[feature.name].type):
            continue
        column = settled[feature.name]
        lengths = np.ones(len(column), np.int64)
        if pa.types.is_list(column.type):
            lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
            lengths = lengths // math.prod(size or 1 for size in feature.stored_shape[1:])
        first, wanted = firsts.setdefault(feature.sequence, (feature, lengths))
        rule = (
            f"must have as many items as {first.column_name!r}, because both belong to the "
            f"sequence {feature.sequence!r}"
        )
        yield feature, column, Misfit(lengths != wanted, RejectReason.BAD_VALUE, rule)


def index_references(
    batch: pa.RecordBatch, schema: ExampleSchema, vocabularies: Vocabularies
) -> Iterator[pa.RecordBatch | Reject]:
    """Yield references with `LABEL_INDEX` and one final `x/` column per `tf.Example` key."""
    label = schema.label
    for part in index_labels(batch, vocabularies.get(label.name, ()) if label else ()):
        if isinstance(part, Reject):
            yield part
        else:
            yield from _index_columns(part, schema, vocabularies)


def _index_columns(
    batch: pa.RecordBatch, schema: ExampleSchema, vocabularies: Vocabularies
) -> Iterator[pa.RecordBatch | Reject]:
    keep = np.ones(batch.num_rows, bool)
    names = [name for name in batch.schema.names if not name.startswith(EXTRA_PREFIX)]
    columns = {name: batch.column(name) for name in names}
    misfits = []
    for feature in schema.column_features:
        settled = batch.column(extra_name(feature.name))
        if pa.types.is_null(settled.type):  # computed later
            for each in feature.stored:
                kind = pa.list_(each.type) if each.shape else each.type
                columns[extra_name(each.key)] = pa.nulls(batch.num_rows, kind)
            continue
        if feature.kind not in INDEXED:
            columns[extra_name(feature.name)] = settled
            continue
        stored, unknown = index_column(settled, feature, vocabularies[feature.name])
        columns |= {extra_name(key): column for key, column in stored.items()}
        rule = "is {value}: unknown class name"
        misfits.append((feature, settled, Misfit(unknown, RejectReason.UNKNOWN_LABEL, rule)))
    yield from _reject_misfits(batch, misfits, keep)
    yield from rows_left(pa.RecordBatch.from_pydict(columns), keep)


def index_labels(
    batch: pa.RecordBatch, class_names: Sequence[str]
) -> Iterator[pa.RecordBatch | Reject]:
    """Yield references with `LABEL_INDEX`, int64 indices into `class_names`, and rejects.

    Without any class names the dataset is unlabeled, and the indices are null.
    """
    if not class_names:
        yield set_column(batch, LABEL_INDEX, pa.nulls(batch.num_rows, pa.int64()))
        return
    labels = batch.column("label")
    missing = labels.is_null().to_numpy(zero_copy_only=False)
    yield from reject_rows(
        batch, missing, RejectReason.MISSING_LABEL, "other images have a label, this one has none"
    )
    indices = pc.index_in(labels, value_set=pa.array(class_names, pa.string())).cast(pa.int64())
    known = indices.is_valid().to_numpy(zero_copy_only=False)
    unknown = ~known & ~missing
    if unknown.any():
        storable = np.array([label is None or is_storable(label) for label in labels.to_pylist()])
        for mask, why in (
            (storable, "is not a known class name"),
            (~storable, "is blank or has a line break, which labels.txt cannot hold: rename it"),
        ):
            what = f"label {{label!r}} {why}"
            yield from reject_rows(batch, unknown & mask, RejectReason.UNKNOWN_LABEL, what)
    yield from rows_left(set_column(batch, LABEL_INDEX, indices), known)


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
    indices = pc.index_in(items.values, value_set=pa.array(words, pa.string())).cast(pa.int64())
    unknown = items.rows_with(indices.is_null().to_numpy(zero_copy_only=False))
    if feature.kind == FeatureKind.MULTI_LABEL:
        # Unknown ones are any class: their rows are rejected.
        values, lengths = as_sets(indices.fill_null(0).to_numpy(), items.lengths)
        return {first.key: as_lists(pa.array(values), lengths)}, unknown
    return {first.key: items.as_lists(indices) if is_list(column.type) else indices}, unknown
