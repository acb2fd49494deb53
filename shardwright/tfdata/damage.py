"""Name the shard and the record at which TensorFlow's reader ends. No TensorFlow."""

from __future__ import annotations

import os

from shardwright.errors import BadRecordError, RecordFault, StorageError
from shardwright.format.records import read_record
from shardwright.reader.corpus import ShardRef
from shardwright.reader.record_reader import BadRecord
from shardwright.reader.shard_index import read_rows
from shardwright.reader.shard_opening import shard_fault


def describe_file(shard: ShardRef, path: str) -> str:
    """Return "" if a shard's local file can be opened and has its length, else the message."""
    try:
        with open(path, "rb") as file:
            num_bytes = os.fstat(file.fileno()).st_size
    except OSError as error:
        return f"{shard.uri} cannot be read: {error.strerror or error}"
    if num_bytes != shard.info.num_bytes:
        return str(shard_fault(shard.uri, shard.info, num_bytes))
    return ""


def describe_damage(shard: ShardRef, path: str, first_byte: int) -> str:
    """Return the message of the error that ended the reading of a shard.

    Args:
        shard: The shard, or a part of it.
        path: Its local file.
        first_byte: Offset of the part's first record.
    """
    row, offset = shard.first_row, first_byte
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            while (span := read_record(file, offset)) is not None:
                row, offset = row + 1, span.next_offset
    except RecordFault as fault:
        bad = BadRecord(shard.uri, row, fault.offset, fault.what, _id_of(shard, row))
        return str(BadRecordError(str(bad), 1, 0))
    except OSError as error:
        return f"{shard.uri} cannot be read: {error.strerror or error}"
    return f"{shard.uri} could not be read to its end by TensorFlow: read it again"


def _id_of(shard: ShardRef, row: int) -> str:
    try:
        return str(read_rows(shard, ["id"])["id"][row].as_py())
    except StorageError:  # TensorFlow's reader needs no index, so it may be missing
        return ""
