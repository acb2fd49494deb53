"""Read and verify one record's bytes, at the place that the index states; collect damaged ones."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import google_crc32c

from shardwright.errors import BadRecordError, RecordFault, StorageError
from shardwright.format.records import FOOTER_BYTES, HEADER_BYTES, check_frame
from shardwright.reader.corpus import Corpus, ShardRef
from shardwright.reader.shard_files import ShardFiles
from shardwright.reader.shard_index import ShardIndexes, read_rows


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A damaged record.

    Attributes:
        shard: Path or address of its shard.
        row: Its row in the shard's file, from 0.
        offset: Where its span begins, in bytes from the start of the file.
        what: What is wrong with it.
        id: Its id, by the index.
        is_as_built: Its image does not decode, but its checksum is right.
    """

    shard: str
    row: int
    offset: int
    what: str
    id: str = ""
    is_as_built: bool = False

    def __str__(self) -> str:
        name = f"{self.id!r} in " if self.id else ""
        return f"{name}{self.shard}: record {self.row} at byte {self.offset}: {self.what}"


_T = TypeVar("_T")


def _healing(
    read: Callable[[RecordReader, int, int], _T],
) -> Callable[[RecordReader, int, int], _T]:
    """Read once more after a damaged shard in the cache was downloaded again."""

    @functools.wraps(read)
    def read_or_heal(self: RecordReader, shard: int, row: int) -> _T:
        try:
            return read(self, shard, row)
        except RecordFault:
            ref = self.shard_ref(shard)
            # Without a cache the damage is in the dataset itself, and reading again gives the same
            # bytes.
            if ref.source.cache is None:
                raise
            ref.source.cache.heal(ref.name)
            self._files.reopen(shard)
            return read(self, shard, row)

    return read_or_heal


class RecordReader:
    """A thread-safe reader of bytes by (shard, row).

    Args:
        corpus: The shards.
        files: Their files.
        indexes: Their spans, of images or of whole records.
    """

    def __init__(self, corpus: Corpus, files: ShardFiles, indexes: ShardIndexes) -> None:
        self._corpus = corpus
        self._files = files
        self.indexes = indexes

    def shard_ref(self, shard: int) -> ShardRef:
        """Return a shard by its number."""
        return self._corpus.shards[shard]

    @_healing
    def read_image(self, shard: int, row: int) -> bytes:
        """Return a record's image bytes; needs indexes of images.

        Raises:
            RecordFault: The bytes are damaged.
            StorageError: The shard or its index cannot be read.
        """
        spans = self.indexes[shard]
        offset, length = int(spans.offsets[row]), int(spans.lengths[row])
        data = self._read(shard, offset, length)
        # Of an image alone there is no frame to check: its checksum in the index covers all that
        # was read.
        if google_crc32c.value(data) != spans.crcs[row]:
            raise RecordFault(offset, "the checksum of the image bytes does not match the index")
        return data

    @_healing
    def read_record(self, shard: int, row: int) -> tuple[bytes, int, int]:
        """Return a record as (frame, start, stop): its data is frame[start:stop].

        Needs indexes of whole records.

        Raises:
            RecordFault: A length or checksum is wrong.
            StorageError: The shard or its index cannot be read.
        """
        spans = self.indexes[shard]
        offset, length = int(spans.offsets[row]), int(spans.lengths[row])
        frame = self._read(shard, offset, length)
        # The frame's own checksum tells that the record is sound; that of the index, that it is
        # this record.
        check_frame(frame, offset, int(spans.crcs[row]))
        return frame, HEADER_BYTES, length - FOOTER_BYTES

    def describe(self, shard: int, row: int, what: str, *, is_as_built: bool = False) -> BadRecord:
        """Return a record as a `BadRecord`, with its shard's path, its offset and its id.

        Args:
            shard: The shard's number.
            row: Its row.
            what: What is wrong with it.
            is_as_built: As of `BadRecord`.
        """
        ref, offset = self.shard_ref(shard), int(self.indexes[shard].offsets[row])
        image_id = read_rows(ref, ["id"])["id"][row].as_py()
        return BadRecord(ref.uri, row, offset, what, image_id, is_as_built)

    def _read(self, shard: int, offset: int, length: int) -> bytes:
        """Return a part of a shard. Raises as `read_record`."""
        try:
            # `pread` has no shared position, so any number of threads may use the descriptor.
            file = self._files.open(shard)
            data = os.pread(file.descriptor, length, offset)
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise StorageError(
                f"{self._corpus.shards[shard].uri} cannot be read: {error.strerror or error}"
            ) from error
        # The length was right when the shard was opened: it was cut since, or is a network disk's
        # short read.
        if len(data) < length:
            raise RecordFault(
                offset,
                f"the file ends inside the record: {len(data)} of {length} bytes are left",
                is_truncated=True,
            )
        return data


def add_bad_records(known: list[BadRecord], bad: list[BadRecord], most: int) -> list[BadRecord]:
    """Return the known records and the new ones of `bad`.

    Raises:
        BadRecordError: They are more than `most`.
    """
    if not bad:
        return known
    # A batch may draw a record more than once, and `known` may have it from an earlier epoch.
    found = list(dict.fromkeys([*known, *bad]))
    if len(found) > most:
        raise BadRecordError(str(bad[0]), len(found), most, bad[0].is_as_built)
    return found
