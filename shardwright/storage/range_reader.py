"""Read an object as a seekable file."""

from __future__ import annotations

import io
import os

from shardwright.storage.object_reads import ObjectParts

BUFFER_BYTES = 8 << 20
# Above about this size, a new request is faster than reading on: 30 ms at 100 MB/s.
SKIPPED_BYTES = 1 << 20


class RangeReader(io.RawIOBase):
    """An object as a seekable file, buffered, with ranged requests that are retried.

    It reads `BUFFER_BYTES` at a time. If most bytes are skipped, it reads `SKIPPED_BYTES`, doubles
    that while reads are contiguous, and falls back after a long skip.
    """

    def __init__(self, parts: ObjectParts, num_bytes: int, *, skips: bool = False) -> None:
        super().__init__()
        self._least = self._ahead = SKIPPED_BYTES if skips else BUFFER_BYTES
        self._parts = parts
        self._num_bytes = num_bytes
        self._position = self._start = 0
        self._buffer = b""

    def read(self, num_bytes: int | None = -1) -> bytes:
        left = self._num_bytes - self._position
        wanted = left if num_bytes is None or num_bytes < 0 else min(num_bytes, left)
        skip = self._position - self._start
        if skip < 0 or skip + wanted > len(self._buffer):
            is_near = self._buffer and 0 <= skip <= len(self._buffer) + self._least
            self._ahead = min(2 * self._ahead, BUFFER_BYTES) if is_near else self._least
            stop = min(self._num_bytes, self._position + max(wanted, self._ahead))
            self._buffer = self._parts.read(self._position, stop) if wanted > 0 else b""
            self._start, skip = self._position, 0
        self._position += max(wanted, 0)
        return self._buffer[skip : skip + wanted]

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = (
            offset
            + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._num_bytes}[whence]
        )
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
