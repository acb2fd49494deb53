"""Load the places of records in shards as compact arrays.

They take at most 16 bytes a record, or 20 in shards of over 4 GB.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shardwright.errors import StorageError
from shardwright.format.index import CHECKED, read_index_of
from shardwright.format.records import FRAME_BYTES
from shardwright.reader.corpus import ShardRef

_IMAGE_COLUMNS = ["image_offset", "image_length", "crc32c", "label"]
_NO_LABEL = -1
_LOCKS = 64  # enough that threads loading different shards seldom wait for each other


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of bytes in a shard's file, one per row.

    Attributes:
        offsets: [rows], uint32 or uint64, bytes from the start of the file.
        lengths: [rows], uint32, bytes.
        crcs: [rows], uint32, CRC32C of the image, or of the data of a whole record.
        labels: [rows], int32, -1 for none; None for whole records.
    """

    offsets: NDArray[np.unsignedinteger]
    lengths: NDArray[np.uint32]
    crcs: NDArray[np.uint32]
    labels: NDArray[np.int32] | None = None


def read_rows(shard: ShardRef, columns: list[str] | None) -> pa.Table:
    """Return all index rows of a shard, in file order.

    Raises:
        StorageError: The sidecar is missing, cannot be read, or belongs to another shard than the
            one in the manifest.
    """
    if shard.source.cache is not None:
        return shard.source.cache.index(shard.name, columns)
    return read_index_of(shard.source.root, shard.name, shard.info, columns)


class ShardIndexes:
    """The spans of every shard, loaded on first use. Thread-safe.

    Args:
        shards: The shards.
        of_images: Load spans of the image bytes, with checksums and labels; else of whole records,
            with their frames.
    """

    def __init__(self, shards: Sequence[ShardRef], *, of_images: bool) -> None:
        self._shards = shards
        self._of_images = of_images
        self._loaded: dict[int, Spans] = {}
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    def __getitem__(self, shard: int) -> Spans:
        """Return the spans of a shard; raise as `read_rows`."""
        # Without a lock, because a lookup is made for each record.
        spans = self._loaded.get(shard)
        if spans is None:
            # Of many threads that need a new shard at the same moment, one loads its index.
            with self._locks[shard % _LOCKS]:
                spans = self._loaded.get(shard)
                if spans is None:
                    spans = self._loaded[shard] = self._load(self._shards[shard])
        return spans

    def keep_only(self, shards: Collection[int]) -> None:
        """Release the spans of all other shards."""
        # Over a copy, and with a default: other threads load shards meanwhile.
        for shard in [shard for shard in list(self._loaded) if shard not in shards]:
            self._loaded.pop(shard, None)

    def _load(self, shard: ShardRef) -> Spans:
        if self._of_images:
            table = read_rows(shard, _IMAGE_COLUMNS)
            spans = _spans(table["image_offset"], table["image_length"], shard, 0)
            return Spans(*spans, table["crc32c"].to_numpy(), labels_of(table))
        table = read_rows(shard, [*CHECKED])
        spans = _spans(table["offset"], table["length"], shard)
        return Spans(*spans, table["record_crc32c"].to_numpy())


def labels_of(rows: pa.Table) -> NDArray[np.int32]:
    """Return the labels of index rows, int32 [rows], -1 for none."""
    return rows["label"].fill_null(_NO_LABEL).to_numpy().astype(np.int32)


def _spans(
    offset: pa.ChunkedArray,
    length: pa.ChunkedArray,
    shard: ShardRef,
    min_length: int = FRAME_BYTES,
) -> tuple[NDArray[np.unsignedinteger], NDArray[np.uint32]]:
    """Return offsets and lengths, after checking that they are in the shard: memory is taken."""
    offsets, lengths = offset.to_numpy(), length.to_numpy()
    # A hostile or damaged index could state terabytes, and a reader allocates what the index
    # states.
    end = shard.info.num_bytes
    outside = (lengths < min_length) | (lengths > end) | (offsets < 0) | (offsets > end - lengths)
    if outside.any():
        raise StorageError(
            f"{shard.source.root.path(shard.name.sidecar)} states a record outside of its shard "
            f"(row {int(outside.argmax())}): build the dataset again"
        )
    return _compact(offsets), lengths.astype(np.uint32)


def _compact(offsets: NDArray[np.int64]) -> NDArray[np.unsignedinteger]:
    # Offsets ascend, so the last one is the largest.
    small = len(offsets) == 0 or int(offsets[-1]) < 2**32
    return offsets.astype(np.uint32 if small else np.uint64)
