"""Turn extra columns of references into the features of a schema, and hash them.

First every column is settled: features without a vocabulary get their final values, and bad rows
are rejected before any vocabulary is learned. Then classes and words become indices.

The hash is of what a record is planned with besides its image, so that an append notices a change
of it. Hashed are settled columns: final values, but classes and words by name. So a hash stays the
same when names get other numbers, needs no image, and is known before anything is planned. Indexes
hold the hashes: another algorithm would make every record of a dataset look changed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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
from shardwright.transforms.features.conversions import Misfit, encode_bags, encode_tokens
from shardwright.transforms.features.lists import (
    Mask,
    as_lists,
    as_sets,
    is_list,
    is_number,
    list_lengths,
    null_rows,
    take_apart,
)
from shardwright.transforms.features.vocabularies import Vocabularies, is_storable
from shardwright.transforms.record_states import places_of
from shardwright.transforms.references import (
    EXTRA_PREFIX,
    HASH,
    LABEL_INDEX,
    PICTURE_TYPE,
    extra_name,
    reject_rows,
    rows_left,
    set_column,
    stacked,
)
from shardwright.transforms.rejects import Reject, RejectReason
from shardwright.transforms.text_hashes import combined, hash128

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
            lengths = list_lengths(column) // math.prod(
                size or 1 for size in feature.stored_shape[1:]
            )
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
    missing = null_rows(labels)
    yield from reject_rows(
        batch, missing, RejectReason.MISSING_LABEL, "other images have a label, this one has none"
    )
    indices = pc.index_in(labels, value_set=pa.array(class_names, pa.string())).cast(pa.int64())
    known = ~null_rows(indices)
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
    unknown = items.rows_with(null_rows(indices))
    if feature.kind == FeatureKind.MULTI_LABEL:
        # Unknown ones are any class: their rows are rejected.
        values, lengths = as_sets(indices.fill_null(0).to_numpy(), items.lengths)
        return {first.key: as_lists(pa.array(values), lengths)}, unknown
    return {first.key: items.as_lists(indices) if is_list(column.type) else indices}, unknown


_ROW = "row in batch"
_MOST_BYTES = 512  # of a value hashed by `hash128`; the index has BLAKE2b of longer ones
_MISSING = np.uint64(1)


@dataclass(frozen=True, slots=True)
class FeatureHashes:
    """The rule by which the features of a build's references are hashed.

    Attributes:
        schema: The features.
        labels: Hash the label, too, because the index has none that could be compared.
    """

    schema: ExampleSchema
    labels: bool = False

    @property
    def names(self) -> list[str]:
        """The features that are hashed, in this order."""
        labels = [self.schema.label.name] if self.labels and self.schema.label else []
        return [each.name for each in self._features()] + labels

    def settle(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch | Reject]:
        """Yield as `settle_references`; references with something to hash have a column `HASH`."""
        for settled in settle_references(batch, self.schema):
            yield settled if isinstance(settled, Reject) else self._hashed(settled)

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the hash of each reference of a listing, null if it is unknown, uint64 [rows].

        It is unknown of one that would be rejected, and if there is nothing to hash.
        """
        if HASH in batch.schema.names:
            return batch.column(HASH)
        rows = pa.array(np.arange(batch.num_rows))
        for settled in self.settle(set_column(batch, _ROW, rows)):
            if not isinstance(settled, Reject) and HASH in settled.schema.names:
                places = pc.index_in(rows, value_set=settled.column(_ROW))
                return settled.column(HASH).take(places)
        return pa.nulls(batch.num_rows, pa.uint64())

    def _features(self) -> list[Feature]:
        return sorted(self.schema.column_features, key=lambda feature: feature.name)

    def _hashed(self, settled: pa.RecordBatch) -> pa.RecordBatch:
        there = dict(zip(settled.schema.names, settled.columns, strict=True))
        columns = [(there[extra_name(each.name)], each) for each in self._features()]
        hashes = _hashes_of([each for each in columns if not pa.types.is_null(each[0].type)])
        if self.labels:
            hashes.append(_hash_bytes(settled.column("label")))
        if not hashes or HASH in settled.schema.names:
            return settled
        return set_column(settled, HASH, pa.array(combined(*hashes)))


def _hashes_of(columns: Sequence[tuple[pa.Array, Feature]]) -> list[np.ndarray]:
    """Return the hashes of the values of settled columns, uint64 [rows] each."""
    hashes: dict[int, np.ndarray] = {}
    rules = [feature.kind for _, feature in columns]
    for numbers, whole in stacked([column for column, _ in columns], rules):
        found = _hashes_in(whole, columns[numbers[0]][1]).reshape(len(numbers), -1)
        hashes |= zip(numbers, found, strict=True)
    return [hashes[number] for number in range(len(columns))]


def _hashes_in(column: pa.Array, feature: Feature) -> np.ndarray:
    """Return a hash of each value of a stack of settled columns of one kind, uint64 [values]."""
    if feature.kind in PICTURES:
        uris, etags = (pc.struct_field(column, name) for name in ("uri", "etag"))
        # A picture is known by its place and etag: to read it would take as long as a build.
        hashes = combined(places_of(uris, etags), _hash_bytes(etags))
    elif is_list(column.type):
        hashes = _hash_lists(column, feature)
    else:
        hashes = _hash_items(column)
    if column.null_count:
        hashes[null_rows(column)] = _MISSING
    return hashes


def _hash_lists(column: pa.Array, feature: Feature) -> np.ndarray:
    """Return a hash of the items of each list, in their order."""
    items = column.flatten()
    values = items.to_numpy() if is_number(items.type) else _hash_items(items)
    lengths = list_lengths(column)
    if feature.kind == FeatureKind.MULTI_LABEL:
        values, lengths = as_sets(values, lengths)
    # The numbers' own bytes as one binary value for each row: no loop over rows, and no text.
    offsets = np.append(0, np.cumsum(lengths, dtype=np.int64)) * values.itemsize
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    return _hash_bytes(pa.Array.from_buffers(pa.large_binary(), len(column), buffers))


def _hash_items(items: pa.Array) -> np.ndarray:
    if not is_number(items.type):
        return _hash_bytes(items)
    numbers = items.to_numpy(zero_copy_only=False)
    # By their bits, so that -0.0 and each NaN have a hash, too. There are no nulls: they are
    # misfits.
    return numbers.view(f"u{numbers.itemsize}").astype(np.uint64)


def _hash_bytes(values: pa.Array) -> np.ndarray:
    """Return a hash of each text or bytes, uint64 [len(values)]; null hashes like ""."""
    values = values.cast(pa.large_binary())
    is_long = pc.fill_null(pc.greater(pc.binary_length(values), _MOST_BYTES), False)
    if not pc.any(is_long).as_py():
        return hash128(values)[0]
    hashes = hash128(pc.if_else(is_long, b"", values))[0]
    digests = (
        hashlib.blake2b(value.as_buffer(), digest_size=8).digest()
        for value in values.filter(is_long)
    )
    hashes[is_long.to_numpy(zero_copy_only=False)] = np.frombuffer(b"".join(digests), "<u8")
    return hashes
