"""Where each record of a shard is, as compact arrays: at most 16 bytes a record (20 in shards of over 4 GB)."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shardwright.index import read_index_of
from shardwright.reader.corpus import ShardRef

_IMAGE_COLUMNS = ["image_offset", "image_length", "crc32c", "label"]
_RECORD_COLUMNS = ["offset", "length"]
_NO_LABEL = -1
_LOCKS = 64  # so that threads that want different shards seldom wait for each other


@dataclass(frozen=True, slots=True)
class Spans:
    """Bytes of a shard's file, one span a row.

    Attributes:
        offsets: [rows], uint32 or uint64, from the file's start.
        lengths: [rows], uint32.
        crcs: [rows], uint32: CRC32C of the span, where the spans are images; None where they are whole records.
        labels: [rows], int32, -1 for none; None where the spans are whole records.
    """

    offsets: NDArray[np.unsignedinteger]
    lengths: NDArray[np.uint32]
    crcs: NDArray[np.uint32] | None = None
    labels: NDArray[np.int32] | None = None


def read_rows(shard: ShardRef, columns: list[str] | None) -> pa.Table:
    """Index rows of a shard, all of them, in file order.

    Raises:
        StorageError: The sidecar is missing, cannot be read, or is not that of the shard which the manifest states.
    """
    if shard.source.cache is not None:
        return shard.source.cache.index(shard.name, columns)
    return read_index_of(shard.source.root, shard.name, shard.info, columns)


class ShardIndexes:
    """The spans of every shard, read when first asked for. Any thread may ask.

    Args:
        shards: The shards.
        of_images: Spans of the image bytes alone, with their checksums and labels; else of whole records, frame and all.
    """

    def __init__(self, shards: Sequence[ShardRef], *, of_images: bool) -> None:
        self._shards = shards
        self._of_images = of_images
        self._loaded: dict[int, Spans] = {}
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    def __getitem__(self, shard: int) -> Spans:
        """Raises what `read_rows` does."""
        spans = self._loaded.get(shard)
        if spans is None:
            with self._locks[shard % _LOCKS]:
                spans = self._loaded.get(shard)
                if spans is None:
                    spans = self._loaded[shard] = self._load(self._shards[shard])
        return spans

    def keep_only(self, shards: Collection[int]) -> None:
        """Let go of all others."""
        for shard in [shard for shard in list(self._loaded) if shard not in shards]:
            self._loaded.pop(shard, None)

    def _load(self, shard: ShardRef) -> Spans:
        if not self._of_images:
            table = read_rows(shard, _RECORD_COLUMNS)
            return Spans(_offsets(table["offset"]), table["length"].to_numpy().astype(np.uint32))
        table = read_rows(shard, _IMAGE_COLUMNS)
        return Spans(
            _offsets(table["image_offset"]),
            table["image_length"].to_numpy().astype(np.uint32),
            table["crc32c"].to_numpy().astype(np.uint32),
            labels_of(table),
        )


def labels_of(rows: pa.Table) -> NDArray[np.int32]:
    """The labels of index rows, -1 where there is none."""
    return rows["label"].fill_null(_NO_LABEL).to_numpy().astype(np.int32)


def _offsets(column: pa.ChunkedArray) -> NDArray[np.unsignedinteger]:
    offsets = column.to_numpy()
    small = len(offsets) == 0 or int(offsets[-1]) < 2**32
    return offsets.astype(np.uint32 if small else np.uint64)
