"""Hash what a record is planned with besides its image, so that an append notices a change of it.

Hashed are settled columns: final values, but classes and words by name. So a hash stays the same
when names get other numbers, needs no image, and is known before anything is planned.

Indexes hold the results: another algorithm would make every record of a dataset look changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.format.schema import (
    PICTURES,
    ExampleSchema,
    Feature,
    FeatureKind,
)
from shardwright.transforms.features.lists import as_sets, is_list
from shardwright.transforms.features.rows import settle_references
from shardwright.transforms.record_states import places_of
from shardwright.transforms.references import HASH, extra_name, set_column, stacked
from shardwright.transforms.rejects import Reject
from shardwright.transforms.text_hashes import combined, hash128

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
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _MISSING
    return hashes


def _hash_lists(column: pa.Array, feature: Feature) -> np.ndarray:
    """Return a hash of the items of each list, in their order."""
    items = column.flatten()
    values = items.to_numpy() if _is_number(items.type) else _hash_items(items)
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    if feature.kind == FeatureKind.MULTI_LABEL:
        values, lengths = as_sets(values, lengths)
    # The numbers' own bytes as one binary value for each row: no loop over rows, and no text.
    offsets = np.append(0, np.cumsum(lengths, dtype=np.int64)) * values.itemsize
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    return _hash_bytes(pa.Array.from_buffers(pa.large_binary(), len(column), buffers))


def _hash_items(items: pa.Array) -> np.ndarray:
    if not _is_number(items.type):
        return _hash_bytes(items)
    numbers = items.to_numpy(zero_copy_only=False)
    # By their bits, so that -0.0 and each NaN have a hash, too. There are no nulls: they are
    # misfits.
    return numbers.view(f"u{numbers.itemsize}").astype(np.uint64)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


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
