"""Write, read and check TFRecord frames.

The format of a record (TensorFlow's `tensorflow/core/lib/io/record_writer.h`):

    uint64  length of data, little-endian
    uint32  masked CRC32C of the 8 length bytes
    byte    data[length]
    uint32  masked CRC32C of data

where masked(crc) = rotate_right(crc, 15) + 0xa282ead8, modulo 2**32.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

import google_crc32c

from shardwright.errors import RecordFault
from shardwright.sizes import counted

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
OTHER_RECORD = "it is sound, but not the record that the index describes"
MAX_RECORD_BYTES = 2**31 - 1  # the limit of a protobuf message: a larger length is corrupt

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_HEADER = struct.Struct("<QI")
_MASK_DELTA = 0xA282EAD8

if google_crc32c.implementation != "c":
    raise ImportError(
        f"google-crc32c runs its {google_crc32c.implementation!r} implementation, hundreds of "
        "times slower than the C one: install a wheel of google-crc32c built for this platform"
    )


def mask_crc(crc: int) -> int:
    """Return the masked CRC, as TensorFlow stores it: a CRC over data with CRCs in it is weak."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def frame_header(num_bytes: int) -> bytes:
    """Return the 12 bytes that precede `num_bytes` bytes of data."""
    length = _LENGTH.pack(num_bytes)
    return length + _CRC.pack(mask_crc(google_crc32c.value(length)))


def frame_footer(crc: int) -> bytes:
    """Return the 4 bytes that follow data with the unmasked CRC32C `crc`."""
    return _CRC.pack(mask_crc(crc))


@dataclass(frozen=True, slots=True)
class RecordSpan:
    """A valid record: the start of its frame, in bytes from the start of the file, and its data."""

    offset: int
    data: bytes

    @property
    def next_offset(self) -> int:
        return self.offset + FRAME_BYTES + len(self.data)


def read_record(file: BinaryIO, offset: int, num_bytes: int | None = None) -> RecordSpan | None:
    """Read and check the record at the file's position; return None at the end of the file.

    Args:
        file: The file, at `offset`.
        offset: The file's position, in bytes.
        num_bytes: The file's length if known; a record length beyond it fails before memory is
            allocated for it.

    Raises:
        RecordFault: The record is cut short, a checksum is wrong, or its length is impossible.
    """
    length = _read_length(file, offset)
    if length is None:
        return None
    cut_off = RecordFault(
        offset,
        f"the file ends inside the record, which claims {counted(length, 'byte')}",
        is_truncated=True,
    )
    # Before `read`, which would allocate what a damaged length claims.
    if num_bytes is not None and offset + FRAME_BYTES + length > num_bytes:
        raise cut_off
    data = file.read(length)
    footer = file.read(FOOTER_BYTES)
    if len(data) + len(footer) < length + FOOTER_BYTES:
        raise cut_off
    if mask_crc(google_crc32c.value(data)) != _CRC.unpack(footer)[0]:
        raise RecordFault(
            offset, "the checksum of the record's data is wrong", offset + FRAME_BYTES + length
        )
    return RecordSpan(offset, data)


def _read_length(file: BinaryIO, offset: int) -> int | None:
    """Return the checked length of a record's data, None at the end of the file."""
    header = file.read(HEADER_BYTES)
    if not header:
        return None
    if len(header) < HEADER_BYTES:
        raise RecordFault(
            offset,
            f"the file ends inside the record's header, after {len(header)} of 12 bytes",
            is_truncated=True,
        )
    length, length_crc = _HEADER.unpack(header)
    if mask_crc(google_crc32c.value(header[:8])) != length_crc:
        raise RecordFault(offset, "the checksum of the record's length is wrong")
    # Its checksum is right, so the file was written so: no reader of examples can parse it.
    if length > MAX_RECORD_BYTES:
        raise RecordFault(
            offset, f"the record claims {counted(length, 'byte')}, more than an example can have"
        )
    return int(length)


def scan_records(file: BinaryIO) -> Iterator[RecordSpan]:
    """Yield and check every record of a file, from its start.

    Raises:
        RecordFault: The first invalid record, after all records before it were yielded.
    """
    offset = 0
    while (span := read_record(file, offset)) is not None:
        yield span
        offset = span.next_offset


def check_frame(frame: bytes, offset: int, crc: int | None = None) -> None:
    """Check a whole record with its frame, which was read at `offset`.

    Args:
        frame: The record with its frame.
        offset: Its start in the shard, in bytes.
        crc: The unmasked CRC32C of its data by the index; None if the index has none.

    Raises:
        RecordFault: The record's length is not that of its data, or a checksum is wrong.
    """
    check_parts(
        frame[:HEADER_BYTES], frame[HEADER_BYTES:-FOOTER_BYTES], frame[-FOOTER_BYTES:], offset, crc
    )


def check_parts(
    header: bytes, data: bytes, footer: bytes, offset: int, crc: int | None = None
) -> None:
    """Check a record like `check_frame`, in three parts, to copy none of them."""
    length, length_crc = _HEADER.unpack(header)
    if mask_crc(google_crc32c.value(header[:8])) != length_crc:
        raise RecordFault(
            offset, "the checksum of the record's length is wrong", offset + FRAME_BYTES + len(data)
        )
    if length != len(data):
        raise RecordFault(
            offset, f"the record claims {counted(length, 'byte')}, but the index says {len(data):,}"
        )
    found = google_crc32c.value(data)
    if mask_crc(found) != _CRC.unpack(footer)[0]:
        raise RecordFault(
            offset, "the checksum of the record's data is wrong", offset + FRAME_BYTES + len(data)
        )
    if crc is not None and found != crc:
        raise RecordFault(offset, OTHER_RECORD, offset + FRAME_BYTES + len(data))
