"""Reading headers that lie between large pieces of data, of an object in a store, by few requests and few bytes."""

from __future__ import annotations

import os

from shardwright.storage import StorageOptions, files_of

# From about here on, a request that skips data is quicker than the data: 30 ms at 100 MB/s.
READ_AHEAD_BYTES = 1 << 20
MAX_READ_BYTES = 8 << 20


class HeaderReader:
    """An object as a seekable file. It reads a megabyte at a time; where that is read to its end, twice as much the next time; and
    begins anew where more than a megabyte is skipped.
    """

    def __init__(self, uri: str, storage: StorageOptions) -> None:
        self._uri = uri
        self._files = files_of(uri, storage)
        self._buffer = b""
        self._start = self._position = 0
        self._ahead = READ_AHEAD_BYTES

    def read(self, num_bytes: int) -> bytes:
        """Up to `num_bytes` bytes; fewer where the object ends. Raises `StorageError`."""
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
        """Move to a byte, counted from the start or from here."""
        self._position = offset + (self._position if whence == os.SEEK_CUR else 0)
        return self._position

    def tell(self) -> int:
        return self._position

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing is open."""
