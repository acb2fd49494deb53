"""Read TFRecord files of any writer: plain or compressed, valid or damaged."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from shardwright.errors import RecordFault, StorageError
from shardwright.format.records import HEADER_BYTES, RecordSpan, frame_header, read_record
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions

_BUFFER_BYTES = 1 << 20
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
# x.tfrecord, x.tfrecords, x.tfrec, x.tfrecord-00000-of-00012, x.tfrecord.gz, and x.record of the
# Object Detection API; also a bare train-00000-of-01024, and TFX's data_tfrecord-00000-of-00001.gz.
_NAME = re.compile(
    r"(?i).*\.(tfrecords?|tfrec)([-._].*)?|.*\.record(-\d+-of-\d+)?(\.gz)?|.*-\d{5,}-of-\d{5,}(\.gz)?"
)


def is_tfrecord_name(name: str) -> bool:
    """Return whether a file's name is that of a TFRecord file."""
    return _NAME.fullmatch(name) is not None


@contextmanager
def open_tfrecord(uri: str, storage: StorageOptions) -> Iterator[tuple[BinaryIO, bool]]:
    """Open a TFRecord file; yield it, uncompressed and at its start, and whether it is compressed.

    Raises:
        StorageError: It cannot be read.
    """
    try:
        with files_of(uri, storage).open_stream(uri) as file:
            is_compressed = _is_compressed(file.read(HEADER_BYTES))
            file.seek(0)
            plain: Any = file
            if is_compressed:
                plain = io.BufferedReader(_Inflated(file), _BUFFER_BYTES)
            yield plain, is_compressed
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(f"{uri} cannot be read: {error.strerror or error}") from error


def read_frames(file: BinaryIO, num_bytes: int | None = None) -> Iterator[RecordSpan | RecordFault]:
    """Yield every record of a file, in order, and a fault for each damaged one.

    A fault that hides the start of the next record is the last and stands for the rest of the file.

    Args:
        file: The file, at its start.
        num_bytes: The file's length, None if it is compressed.
    """
    offset = 0
    while True:
        try:
            span = read_record(file, offset, num_bytes)
        except RecordFault as fault:
            yield fault
            if fault.next_offset is None:
                return
            offset = fault.next_offset
            continue
        except (EOFError, zlib.error) as error:
            told = f"the file cannot be unpacked any further: {error}"
            yield RecordFault(offset, told, is_truncated=True)
            return
        if span is None:
            return
        yield span
        offset = span.next_offset


def _is_compressed(header: bytes) -> bool:
    """Return whether the first bytes are those of gzip or zlib.

    A plain file begins with a length and its checksum, which no other file does.
    """
    if header == frame_header(int.from_bytes(header[:8], "little")):
        return False
    is_zlib = (
        len(header) > 1 and header[0] & 0x0F == 8 and int.from_bytes(header[:2], "big") % 31 == 0
    )  # RFC 1950
    return is_zlib or header.startswith(b"\x1f\x8b\x08")


class _Inflated(io.RawIOBase):
    """A gzip or zlib stream as a file; other streams may follow, as `cat a.gz b.gz` writes them."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self._inflate = zlib.decompressobj(_GZIP_OR_ZLIB)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = b""
        while not data:
            # `unconsumed_tail` is input for which the last call had no room in its output.
            before = self._inflate
            packed = before.unconsumed_tail or before.unused_data or self._file.read(_BUFFER_BYTES)
            if before.eof:
                if not packed.strip(b"\0"):  # the padding of a tape or a disk
                    return 0
                self._inflate = zlib.decompressobj(_GZIP_OR_ZLIB)
            elif not packed:
                raise EOFError("the compressed file ended before its end mark")
            # Bounded, because a few bytes may inflate to gigabytes.
            data = self._inflate.decompress(packed, len(buffer))
        buffer[: len(data)] = data
        return len(data)
