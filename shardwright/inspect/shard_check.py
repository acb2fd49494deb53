"""Name the broken records of a shard whose content is not the one that the manifest states.

A frame locates the next one only if its own length is valid; after a broken length, the index
locates it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shardwright.errors import RecordFault, StorageError
from shardwright.format.index import read_index_of
from shardwright.format.naming import ShardName
from shardwright.format.records import OTHER_RECORD, RecordSpan, read_record
from shardwright.format.splits import ShardInfo
from shardwright.inspect.faults import DatasetFault
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
    offsets = crcs = np.zeros(0, np.int64)
    # A broken index is a fault of its own, of another file: then the frames alone are compared.
    with suppress(StorageError):
        rows = read_index_of(root, name, info, ["offset", _CHECKSUM])
        offsets, crcs = _column(rows, "offset"), _column(rows, _CHECKSUM)
    if not np.all(np.diff(offsets) > 0):  # by an index of a stranger, the walk would not end
        offsets = offsets[:0]
    with (
        root.local_copy(name.shard) as copy,
        open(copy.fileno(), "rb", BLOCK_BYTES, closefd=False) as file,
    ):
        yield from _faults(file, name, info, offsets, crcs)


def _column(rows: pa.Table, name: str) -> NDArray[np.int64]:
    """Return a column of integers, shape [rows], with -1 for nulls."""
    column = pc.fill_null(rows[name].cast(pa.int64()), -1).combine_chunks()
    # Not Arrow's `to_numpy`: it imports pandas, which takes 0.4 s.
    return np.asarray(np.from_dlpack(column), np.int64)


def _faults(
    file: BinaryIO,
    name: ShardName,
    info: ShardInfo,
    offsets: NDArray[np.int64],
    crcs: NDArray[np.int64],
) -> Iterator[DatasetFault]:
    num_records, last = 0, None
    for number, last in walk_records(file, offsets):
        if isinstance(last, RecordFault):
            # A fault past the last planned record is surplus bytes, not a record.
            num_records = max(num_records, min(number + 1, info.num_records))
            yield DatasetFault(name.shard, number, last.offset, last.what)
            continue
        num_records = number + 1
        if number < len(crcs) and crcs[number] not in (-1, google_crc32c.value(last.data)):
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
    file: BinaryIO, known_offsets: NDArray[np.int64]
) -> Iterator[tuple[int, RecordSpan | RecordFault]]:
    """Yield (number, record) for every record of a shard in file order, or a fault if it is broken.

    Ends early after a fault without `next_offset` if no known offset follows it.

    Args:
        file: The shard, at its start.
        known_offsets: The starts of the records in the index, in bytes, shape [records],
            increasing; empty without an index.
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
                number = int(np.searchsorted(known_offsets, fault.offset, side="right"))
                if number == len(known_offsets):
                    return
                offset = int(known_offsets[number])
            # The reader is somewhere inside the broken record.
            file.seek(offset)
            continue
        if span is None:
            return
        yield number, span
        number, offset = number + 1, span.next_offset
