"""Walking over a shard's records past those that are broken.

A frame tells where the next one begins only while its length can be trusted; after a broken length the index tells.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from shardwright.errors import RecordFault
from shardwright.records import RecordSpan, read_record

BLOCK_BYTES = 1 << 20


def file_crc32c(file: BinaryIO) -> int:
    """Plain CRC32C of the file from its position on, in bounded memory."""
    crc = 0
    while block := file.read(BLOCK_BYTES):
        crc = google_crc32c.extend(crc, block)
    return crc


def walk_records(
    file: BinaryIO, known_offsets: NDArray[np.int64]
) -> Iterator[tuple[int, RecordSpan | RecordFault]]:
    """Every record of a shard in file order with its number, a fault standing for each that does not hold.

    Args:
        file: The shard, at its start.
        known_offsets: Where records begin according to the index, shape (records,), rising; empty where there is no index.

    The walk ends early, after a fault without `next_offset`, where no known offset lies behind the fault.
    """
    num_bytes = os.fstat(file.fileno()).st_size
    number = offset = 0
    while offset < num_bytes:
        try:
            span = read_record(file, offset, num_bytes)
        except RecordFault as fault:
            yield number, fault
            number, offset = _next_place(fault, number, known_offsets)
            if offset < 0:
                return
            file.seek(offset)
            continue
        if span is None:
            return
        yield number, span
        number, offset = number + 1, span.next_offset


def _next_place(
    fault: RecordFault, number: int, known_offsets: NDArray[np.int64]
) -> tuple[int, int]:
    """Number and offset of the record after a broken one; an offset of -1 where nothing tells."""
    if fault.next_offset is not None:
        return number + 1, fault.next_offset
    following = int(np.searchsorted(known_offsets, fault.offset, side="right"))
    return (
        (following, int(known_offsets[following]))
        if following < len(known_offsets)
        else (number + 1, -1)
    )
