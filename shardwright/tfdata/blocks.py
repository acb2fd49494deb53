"""Read blocks of records by number for tf.data, verified, and count bad records. No TensorFlow."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import BadRecordError, RecordFault
from shardwright.reader.corpus import Corpus
from shardwright.reader.order import I64, starts_of
from shardwright.reader.record_reader import BadRecord, RecordReader, add_bad_records
from shardwright.reader.shard_files import ShardFiles
from shardwright.reader.shard_index import ShardIndexes
from shardwright.tfdata.kept import KeptRecords

_LOG = logging.getLogger("shardwright")
_BLOCK_RECORDS, _BLOCK_BYTES = 64, 16 << 20

Block = tuple[NDArray[Any], I64, str]


def block_records(mean_record_bytes: float) -> int:
    """Return the records per call: enough to amortize it, few enough to bound memory."""
    return int(max(1, min(_BLOCK_RECORDS, _BLOCK_BYTES // max(mean_record_bytes, 1))))


class BlockReader:
    """A reader of blocks of records. Thread-safe.

    Args:
        corpus: The shards.
        at_a_time: Number of shards of a store that are needed at once.
        max_bad_records: Bad records to skip; one more is an error.
        kept: Store for records that have been read; None keeps none.
        in_order: Records are read in stored order.
        of_images: Read the image bytes alone, where the index states them, not whole examples.

    Attributes:
        files: The shards as open files.

    Raises:
        UsageError: The cache is too small for `at_a_time` shards of a store.
    """

    def __init__(
        self,
        corpus: Corpus,
        *,
        at_a_time: int,
        max_bad_records: int,
        kept: KeptRecords | None,
        in_order: bool = False,
        of_images: bool = False,
    ) -> None:
        self._corpus = corpus
        self._indexes = ShardIndexes(corpus.shards, of_images=of_images)
        self._max_bad_records = max_bad_records
        self._bad_records: list[BadRecord] = []
        self._bad_lock = threading.Lock()
        self._kept = kept
        # The kernel reads ahead in stored order. Kept records are read once.
        self._announces = kept is None and not in_order
        self._is_closed = False
        self._decodable = np.zeros(corpus.num_records, np.bool_)
        # A record's slot is its number over all shards; this is the slot of each shard's first.
        self._starts: I64 = starts_of(corpus.sizes)
        self.files = ShardFiles(corpus.shards, at_a_time=at_a_time, in_order=in_order)
        self._records = RecordReader(corpus, self.files, self._indexes, check=True)
        self._read_bytes = self._records.read_image if of_images else self._records.read_data

    def close(self) -> None:
        """Free files and memory for good; a pipeline being dropped may still call `read`."""
        # First: a `read` that is running sees it at its end, and releases what it has opened since.
        self._is_closed = True
        if self._kept is not None:
            self._kept.forget()
        self._release()

    def keep_indexes_of(self, shards: Collection[int]) -> None:
        """Drop the indexes of all other shards."""
        self._indexes.keep_only(shards)

    def read(self, shards: I64, rows: I64) -> Block:
        """Return serialized examples by shard and row, [n] each.

        Args:
            shards: Numbers of the shards.
            rows: Numbers within the part of each shard that is read, from 0.

        Returns:
            The examples as bytes [m] without bad records, their slots [m], and "" or the message
            of the error that ends the reading.

        Raises:
            StorageError: A shard or its index cannot be read.
        """
        try:
            return self._read(shards.tolist(), rows.tolist())
        finally:
            if self._is_closed:
                self._release()

    def check(self, shard: int, row: int, number: int) -> tuple[bytes, int, str]:
        """Check records that TensorFlow's reader reads next, against the index.

        Args:
            shard: Number of the shard.
            row: The first record's row in the file.
            number: Number of records.

        Returns:
            The path of the file, the offset of the first record in bytes, and "" or the message of
            the error that ends the reading.

        Raises:
            StorageError: The shard or its index cannot be read.
        """
        try:
            with self.files.path(shard) as path:
                bad = self._records.find_bad(shard, row, row + number)
            message = "" if bad is None else self._note(bad)
            return path.encode(), int(self._indexes[shard].offsets[row]), message
        finally:
            if self._is_closed:
                self._release()

    def _release(self) -> None:
        self.files.release()
        self._indexes.keep_only(())

    def _read(self, shards: list[int], rows: list[int]) -> Block:
        examples, slots = [], []
        if self._announces:
            for shard, row in zip(shards, rows, strict=True):
                self._records.announce(shard, self._corpus.shards[shard].row(row))
        for shard, row in zip(shards, rows, strict=True):
            slot = int(self._starts[shard]) + row
            in_file = self._corpus.shards[shard].row(row)
            try:
                examples.append(self._read_one(shard, in_file, slot))
                slots.append(slot)
            except RecordFault as fault:
                message = self._note(self._records.describe(shard, in_file, fault.what))
                if message:
                    # Without the good records before it: the error would come after them, or not at
                    # all.
                    return np.empty(0, object), np.empty(0, np.int64), message
        return _bytes_array(examples), np.array(slots, np.int64), ""

    def note_decodable(self, slot: int) -> None:
        """Note that a record's image can be decoded; its checksum guarantees that it stays so."""
        self._decodable[slot] = True

    def is_decodable(self, slot: int) -> np.bool_:
        """Return whether `note_decodable` was called for this slot."""
        return np.bool_(self._decodable[slot])

    def note_undecodable(self, slot: int) -> str:
        """Note a record whose image TensorFlow cannot decode; return "" or the error message."""
        shard = int(np.searchsorted(self._starts, slot, side="right")) - 1
        row = self._corpus.shards[shard].row(int(slot - self._starts[shard]))
        what = "its image cannot be decoded by tf.io.decode_image"
        return self._note(self._records.describe(shard, row, what, is_undecodable=True))

    def _note(self, bad: BadRecord) -> str:
        """Note a bad record, once; return the error message if it is one too many, else ""."""
        most = self._max_bad_records
        with self._bad_lock:
            known = self._bad_records
            try:
                # If all records were skipped, an endless dataset would never return.
                found = add_bad_records(known, [bad], most, self._corpus.num_records)
            except BadRecordError as error:
                return str(error)
            self._bad_records = found
        if len(found) > len(known):
            _LOG.warning("%s: skipped, bad record %d of at most %d", bad, len(found), most)
        return ""

    def _read_one(self, shard: int, row: int, slot: int) -> bytes:
        if self._kept is not None:
            found = self._kept.get(slot)
            if found is not None:
                return found
        example = self._read_bytes(shard, row)
        if self._kept is not None:
            self._kept.put(slot, example)
        return example


class HeldShards:
    """The shards of a store that the running iterators need, all together.

    Args:
        reader: The reader of the shards.
    """

    def __init__(self, reader: BlockReader) -> None:
        self._reader = reader
        self._needed: Counter[int] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, shards: Sequence[int], upcoming: Sequence[int]) -> Iterator[None]:
        """Keep shards in the cache inside the block, and download those of `upcoming` ahead."""
        with self._lock:
            self._needed.update(shards)
            self._plan(upcoming)
        # Stays empty if the block is left because its iterator was dropped.
        following: Sequence[int] = ()
        try:
            yield
            following = upcoming
        finally:
            with self._lock:
                self._needed.subtract(shards)
                self._needed += Counter()  # drops the shards whose count is 0
                self._plan(following)
                if not self._needed:  # the last iterator may have been dropped: leave no file open
                    self._reader.files.release()

    def _plan(self, upcoming: Sequence[int]) -> None:
        self._reader.files.plan(list(self._needed), upcoming)
        self._reader.keep_indexes_of(self._needed)


def _bytes_array(values: Sequence[bytes]) -> NDArray[Any]:
    # Assigned, not converted: `np.array` would inspect the length of every value.
    array = np.empty(len(values), object)
    array[:] = values
    return array
