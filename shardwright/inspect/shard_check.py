"""Name the broken records of a shard whose content is not the one that the manifest states.

A frame locates the next one only if its own length is valid; after a broken length, the index
locates it.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import BinaryIO

import google_crc32c

from shardwright.errors import RecordFault, StorageError
from shardwright.format.index import read_index_of
from shardwright.format.listed_files import DatasetFault
from shardwright.format.naming import ShardName
from shardwright.format.records import OTHER_RECORD, RecordSpan, read_record
from shardwright.format.splits import ShardInfo
from shardwright.sizes import counted
from shardwright.storage.folder import Folder

BLOCK_BYTES = 1 << 20
_CHECKSUM = "record_crc32c"


def record_faults(root: Folder, name: ShardName, info: ShardInfo) -> Iterator[DatasetFault]:
    """Yield the broken records of a shard, and the number of records that are missing or surplus.

    Takes the memory of a record, and of two columns of the index.

    Raises:
        OSError, StorageError: The shard cannot be read.
    """
    offsets: Sequence[int] = ()
    crcs: Sequence[int] = ()
    # A broken index is a fault of its own, of another file: then the frames alone are compared.
    with suppress(StorageError):
        rows = read_index_of(root, name, info, ["offset", _CHECKSUM])
        offsets, crcs = rows["offset"].to_pylist(), rows[_CHECKSUM].to_pylist()
    if any(one >= after for one, after in pairwise(offsets)):
        offsets = ()  # by an index of a stranger, the walk would not end
    with (
        root.local_copy(name.shard) as copy,
        open(copy.fileno(), "rb", BLOCK_BYTES, closefd=False) as file,
    ):
        yield from _faults(file, name, info, offsets, crcs)


def _faults(
    file: BinaryIO,
    name: ShardName,
    info: ShardInfo,
    offsets: Sequence[int],
    crcs: Sequence[int],
) -> Iterator[DatasetFault]:
    num_records, last = 0, None
    for number, last in walk_records(file, offsets):
        if isinstance(last, RecordFault):
            # A fault past the last planned record is surplus bytes, not a record.
            num_records = max(num_records, min(number + 1, info.num_records))
            yield DatasetFault(name.shard, number, last.offset, last.what)
            continue
        num_records = number + 1
        if number < len(crcs) and crcs[number] != google_crc32c.value(last.data):
            yield DatasetFault(name.shard, number, last.offset, OTHER_RECORD)
    if isinstance(last, RecordFault) and num_records < info.num_records:
        what = (
            f"its last {counted(info.num_records - num_records, 'record')}: cut off, "
            "or after a broken record and not in the index"
        )
        yield DatasetFault.of_file(name.shard, what)
    elif num_records != info.num_records:
        what = (
            f"the shard holds {counted(num_records, 'record')}, "
            f"the manifest says {info.num_records}"
        )
        yield DatasetFault.of_file(name.shard, what)


def walk_records(
    file: BinaryIO, known_offsets: Sequence[int]
) -> Iterator[tuple[int, RecordSpan | RecordFault]]:
    """Yield (number, record) for every record of a shard in file order, or a fault if it is broken.

    Ends early after a fault without `next_offset` if no known offset follows it.

    Args:
        file: The shard, at its start.
        known_offsets: The starts of the records in the index, in bytes, increasing; empty without
            an index.
    """
    num_bytes = os.fstat(file.fileno()).st_size
    number = offset = 0
    while offset < num_bytes:
        try:
            span = read_record(file, offset, num_bytes)
        except RecordFault as fault:
            yield number, fault
            if fault.next_offset is not None:
                number, offset = number + 1, fault.next_offset
            else:  # the frame does not know the end of this record, but the index does
                number = bisect_right(known_offsets, fault.offset)
                if number == len(known_offsets):
                    return
                offset = known_offsets[number]
            # The reader is somewhere inside the broken record.
            file.seek(offset)
            continue
        if span is None:
            return
        yield number, span
        number, offset = number + 1, span.next_offset
