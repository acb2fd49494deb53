"""Read headers that lie between large blocks of a stored object, with few requests and bytes."""

from __future__ import annotations

import os

from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions

# Above about this size, a new request is faster than reading on: 30 ms at 100 MB/s.
READ_AHEAD_BYTES = 1 << 20
MAX_READ_BYTES = 8 << 20


class HeaderReader:
    """An object as a seekable file.

    It reads 1 MiB at a time, doubles that up to 8 MiB while reads are contiguous, and falls back
    to 1 MiB after a skip of more than 1 MiB.
    """

    def __init__(self, uri: str, storage: StorageOptions) -> None:
        self._uri = uri
        self._files = files_of(uri, storage)
        self._buffer = b""
        self._start = self._position = 0
        self._ahead = READ_AHEAD_BYTES

    def read(self, num_bytes: int) -> bytes:
        """Return `num_bytes` bytes, fewer at the object's end. Raises `StorageError`."""
        skip = self._position - self._start
        if skip < 0 or skip + num_bytes > len(self._buffer):
            near = 0 <= skip <= len(self._buffer) + READ_AHEAD_BYTES
            self._ahead = (
                min(2 * self._ahead, MAX_READ_BYTES) if near and self._buffer else READ_AHEAD_BYTES
            )
            self._buffer = self._files.read_range(
                self._uri, self._position, max(num_bytes, self._ahead)
            )
            self._start, skip = self._position, 0
        data = self._buffer[skip : skip + num_bytes]
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a byte, counted from the start or from the current position."""
        self._position = offset + (self._position if whence == os.SEEK_CUR else 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: no handle is open."""
