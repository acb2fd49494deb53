"""Records by number for tf.data: blocks of them at a time, checked, and a count of those that cannot be used. No TensorFlow."""

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
from shardwright.reader.order import I64
from shardwright.reader.record_reader import RecordReader
from shardwright.reader.shard_files import ShardFiles
from shardwright.reader.shard_index import ShardIndexes
from shardwright.trainers.tf_kept import KeptRecords

_LOG = logging.getLogger("shardwright")
_BLOCK_RECORDS, _BLOCK_BYTES = 64, 16 << 20

Block = tuple[NDArray[Any], I64, str]


def block_records(mean_record_bytes: float) -> int:
    """How many records are read by one call: enough that the call itself costs little, few enough to keep memory flat."""
    return int(max(1, min(_BLOCK_RECORDS, _BLOCK_BYTES // max(mean_record_bytes, 1))))


class BadRecords:
    """The distinct records of one dataset that could not be used. Any thread may note one.

    Args:
        corpus: The shards.
        allowed: How many there may be.
    """

    def __init__(self, corpus: Corpus, allowed: int) -> None:
        self._corpus = corpus
        self._allowed = allowed
        self._found: dict[tuple[str, int], str] = {}
        self._lock = threading.Lock()

    def note(self, shard: int, row: int, bad: str) -> str:
        """Note a bad record; what to tell where it is one too many, else "". Each record counts once, however often it is met."""
        place = (self._corpus.shards[shard].uri, row)
        with self._lock:
            is_new = place not in self._found
            self._found[place] = bad
            count = len(self._found)
        if count > self._allowed or count >= self._corpus.num_records:
            return str(BadRecordError(bad, count, self._allowed))
        if is_new:
            _LOG.warning(
                "%s: left out, the %d. of at most %d bad records", bad, count, self._allowed
            )
        return ""


class BlockReader:
    """Blocks of records of a corpus. Any thread may ask.

    Args:
        corpus: The shards.
        at_a_time: How many of a store's shards are needed at once.
        max_bad_records: How many records that cannot be used are left out before it is an error.
        kept: Where records are kept once they have been read, None where they are not.

    Attributes:
        files: The shards as open files.

    Raises:
        UsageError: The cache of a dataset in a store may not hold so many shards.
    """

    def __init__(
        self, corpus: Corpus, *, at_a_time: int, max_bad_records: int, kept: KeptRecords | None
    ) -> None:
        self._corpus = corpus
        self._at_a_time = at_a_time
        self._indexes = ShardIndexes(corpus.shards, of_images=False)
        self._bad = BadRecords(corpus, max_bad_records)
        self._kept = kept
        self._is_let_go = False
        self._decodable = np.zeros(corpus.num_records, np.bool_)
        self._first_rows = [shard.first_row for shard in corpus.shards]
        # The number of each shard's first record, counted through all of them: a record's slot.
        self._starts: I64 = np.concatenate([np.zeros(1, np.int64), np.cumsum(corpus.sizes)])
        self.open_anew()

    def open_anew(self) -> None:
        """Begin with no file open, and no shard of a store held."""
        self.files = ShardFiles(self._corpus.shards, at_a_time=self._at_a_time)
        self._records = RecordReader(self._corpus, self.files, self._indexes, check=True)

    def let_go(self) -> None:
        """Give back files and memory, and keep none from now on: only a pipeline that is being dropped asks for more."""
        self._is_let_go = True
        if self._kept is not None:
            self._kept.forget()
        self._give_back()

    def keep_indexes_of(self, shards: Collection[int]) -> None:
        """Let go of the places of all other shards' records."""
        self._indexes.keep_only(shards)

    def read(self, shards: I64, rows: I64) -> Block:
        """Serialized examples by shard and row, [n] each; a row counts among those of the shard that are read.

        Returns:
            The examples as bytes [m], their slots [m], and "" or why it cannot go on. Bad records are left out.

        Raises:
            StorageError: A shard or its index cannot be read.
        """
        try:
            return self._read(shards.tolist(), rows.tolist())
        finally:
            if self._is_let_go:
                self._give_back()

    def _give_back(self) -> None:
        self.files.close()
        self.open_anew()
        self._indexes.keep_only(())

    def _read(self, shards: list[int], rows: list[int]) -> Block:
        examples, slots = [], []
        for shard, row in zip(shards, rows, strict=True):
            slot = int(self._starts[shard]) + row
            try:
                examples.append(self._read_one(shard, self._first_rows[shard] + row, slot))
                slots.append(slot)
            except RecordFault as fault:
                message = self._note(shard, self._first_rows[shard] + row, fault.what)
                if message:
                    return np.empty(0, object), np.empty(0, np.int64), message
        return _bytes_array(examples), np.array(slots, np.int64), ""

    def note_decodable(self, slot: int) -> None:
        """Note that a record's image can be decoded, which its checksum vouches for from now on."""
        self._decodable[slot] = True

    def is_decodable(self, slot: int) -> np.bool_:
        """Whether that has been noted."""
        return np.bool_(self._decodable[slot])

    def note_undecodable(self, slot: int) -> str:
        """Note a record whose image TensorFlow cannot decode; "" or why it cannot go on."""
        shard = int(np.searchsorted(self._starts, slot, side="right")) - 1
        row = self._first_rows[shard] + int(slot - self._starts[shard])
        return self._note(shard, row, "its image cannot be decoded by tf.io.decode_image")

    def _note(self, shard: int, row: int, what: str) -> str:
        return self._bad.note(shard, row, str(self._records.describe(shard, row, what)))

    def _read_one(self, shard: int, row: int, slot: int) -> bytes:
        if self._kept is not None:
            found = self._kept.get(slot)
            if found is not None:
                return found
        example = self._records.read_data(shard, row)
        if self._kept is not None:
            self._kept.put(slot, example)
        return example


class HeldShards:
    """Which shards of a store the iterators under way need, all of them together.

    Args:
        reader: What reads the shards.
    """

    def __init__(self, reader: BlockReader) -> None:
        self._reader = reader
        self._needed: Counter[int] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, shards: Sequence[int], upcoming: Sequence[int]) -> Iterator[None]:
        """Keep shards in the cache inside the block; those of `upcoming` are downloaded ahead."""
        with self._lock:
            self._needed.update(shards)
            self._plan(upcoming)
        following: Sequence[
            int
        ] = ()  # as long as the block may be left because its iterator is dropped
        try:
            yield
            following = upcoming
        finally:
            with self._lock:
                self._needed.subtract(shards)
                self._needed += Counter()  # drops what nobody needs any more
                self._plan(following)
                if not self._needed:  # an iterator may be dropped here, too: nothing stays open
                    self._reader.files.close()
                    self._reader.open_anew()
                    self._plan(following)

    def _plan(self, upcoming: Sequence[int]) -> None:
        self._reader.files.plan(list(self._needed), upcoming)
        self._reader.keep_indexes_of(self._needed)


def _bytes_array(values: Sequence[bytes]) -> NDArray[Any]:
    # Filled one by one: `np.array` would look into each for its length.
    array = np.empty(len(values), object)
    array[:] = values
    return array
