"""Read all records of a shard, skipping broken ones.

A frame locates the next one only if its own length is valid; after a broken length, the index
locates it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from shardwright.errors import RecordFault
from shardwright.format.records import RecordSpan, read_record

BLOCK_BYTES = 1 << 20


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
    """Return number and offset of the record after a broken one; offset -1 if it is unknown."""
    if fault.next_offset is not None:
        return number + 1, fault.next_offset
    # The length is broken, so the end of this record is unknown to the frame, but not to the index.
    following = int(np.searchsorted(known_offsets, fault.offset, side="right"))
    return (
        (following, int(known_offsets[following]))
        if following < len(known_offsets)
        else (number + 1, -1)
    )
