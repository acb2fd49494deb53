"""TFRecord frames, written and read.

A record is (TensorFlow's `tensorflow/core/lib/io/record_writer.h`):

    uint64  length of data, little-endian
    uint32  masked CRC32C of the 8 length bytes
    byte    data[length]
    uint32  masked CRC32C of data

where masked(crc) = rotate_right(crc, 15) + 0xa282ead8, modulo 2**32.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import google_crc32c

from shardwright.errors import RecordFault

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
MAX_RECORD_BYTES = (
    2**31 - 1
)  # what one protobuf message can hold, so a longer record is a broken length

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_HEADER = struct.Struct("<QI")
_MASK_DELTA = 0xA282EAD8

if google_crc32c.implementation != "c":
    raise ImportError(
        f"google-crc32c runs its {google_crc32c.implementation!r} implementation, hundreds of times slower than the C one: "
        "install a wheel of google-crc32c built for this platform"
    )


def mask_crc(crc: int) -> int:
    """TensorFlow's mask, which keeps a CRC of data that holds CRCs from degenerating."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def crc32c_of(pieces: Sequence[bytes], crc: int = 0) -> int:
    """CRC32C (Castagnoli) of the pieces one after another, going on from `crc`."""
    for piece in pieces:
        crc = google_crc32c.extend(crc, piece)
    return crc


def frame_header(num_bytes: int) -> bytes:
    """The 12 bytes before a record of `num_bytes` bytes."""
    length = _LENGTH.pack(num_bytes)
    return length + _CRC.pack(mask_crc(google_crc32c.value(length)))


def frame_footer(crc: int) -> bytes:
    """The 4 bytes after a record whose data has the plain CRC32C `crc`."""
    return _CRC.pack(mask_crc(crc))


@dataclass(frozen=True, slots=True)
class RecordSpan:
    """A sound record: where its frame begins, in bytes from the file's start, and its data."""

    offset: int
    data: bytes

    @property
    def next_offset(self) -> int:
        return self.offset + FRAME_BYTES + len(self.data)


def read_record(file: BinaryIO, offset: int, num_bytes: int | None = None) -> RecordSpan | None:
    """Read and check the record at the file's position, which is `offset`; None at the end of the file.

    Args:
        num_bytes: The file's length, where it is known: a length beyond it is refused before memory is taken for it.

    Raises:
        RecordFault: A cut, a wrong checksum, or a length no record can have.
    """
    header = file.read(HEADER_BYTES)
    if not header:
        return None
    if len(header) < HEADER_BYTES:
        raise RecordFault(
            offset, f"the file ends inside the record's header, after {len(header)} of 12 bytes"
        )
    length, length_crc = _HEADER.unpack(header)
    if mask_crc(google_crc32c.value(header[:8])) != length_crc:
        raise RecordFault(offset, "the checksum of the record's length is wrong")
    if length > MAX_RECORD_BYTES:
        raise RecordFault(
            offset, f"the record claims {length} bytes, more than an example can have"
        )
    if num_bytes is not None and offset + FRAME_BYTES + length > num_bytes:
        raise RecordFault(offset, f"the file ends inside the record, which claims {length} bytes")
    data = file.read(length)
    footer = file.read(FOOTER_BYTES)
    if len(data) + len(footer) < length + FOOTER_BYTES:
        raise RecordFault(offset, f"the file ends inside the record, which claims {length} bytes")
    if mask_crc(google_crc32c.value(data)) != _CRC.unpack(footer)[0]:
        raise RecordFault(
            offset, "the checksum of the record's data is wrong", offset + FRAME_BYTES + length
        )
    return RecordSpan(offset, data)


def scan_records(file: BinaryIO) -> Iterator[RecordSpan]:
    """Every record of a file from its start, checked.

    Raises:
        RecordFault: At the first record that does not hold; the ones before it have been given.
    """
    offset = 0
    while (span := read_record(file, offset)) is not None:
        yield span
        offset = span.next_offset


def check_frame(frame: bytes, offset: int) -> None:
    """Check a whole record, frame and all, that was read at `offset`.

    Raises:
        RecordFault: Its length is not that of its data, or a checksum is wrong.
    """
    check_parts(
        frame[:HEADER_BYTES], frame[HEADER_BYTES:-FOOTER_BYTES], frame[-FOOTER_BYTES:], offset
    )


def check_parts(header: bytes, data: bytes, footer: bytes, offset: int) -> None:
    """The same of a record in its three parts, of which none is copied."""
    length, length_crc = _HEADER.unpack(header)
    if mask_crc(google_crc32c.value(header[:8])) != length_crc:
        raise RecordFault(
            offset, "the checksum of the record's length is wrong", offset + FRAME_BYTES + len(data)
        )
    if length != len(data):
        raise RecordFault(
            offset, f"the record claims {length} bytes, and the index states {len(data)}"
        )
    if mask_crc(google_crc32c.value(data)) != _CRC.unpack(footer)[0]:
        raise RecordFault(
            offset, "the checksum of the record's data is wrong", offset + FRAME_BYTES + len(data)
        )
