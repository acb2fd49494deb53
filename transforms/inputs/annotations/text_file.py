"""Keep long texts in a temporary file, so that memory holds only their places."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from shardwright.errors import BuildError

_BUFFER_BYTES = 1 << 20


class TextFile:
    """Texts in an unnamed file of the temporary folder, which ends with this object."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(buffering=_BUFFER_BYTES)  # noqa: SIM115
        self._end = 0

    def add(self, text: str) -> tuple[int, int]:
        """Write a text, and return its first byte and its number of bytes.

        Raises:
            BuildError: The disk is full.
        """
        data = text.encode()
        start = self._end
        self._end += len(data)
        with _disk_faults():
            self._file.write(data)
        return start, len(data)

    def read(self, starts: pa.Array, lengths: pa.Array) -> pa.Array:
        """Return texts by their places; raise as `add`."""
        with _disk_faults():
            self._file.flush()
        descriptor = self._file.fileno()
        texts = [
            os.pread(descriptor, length, start) if length else b""
            for start, length in zip(starts.to_pylist(), lengths.to_pylist(), strict=True)
        ]
        return pa.array(texts, pa.large_binary()).cast(pa.large_string())


@contextmanager
def _disk_faults() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BuildError(
            f"cannot write to the temporary folder {tempfile.gettempdir()}: {error.strerror}: "
            "set TMPDIR to a folder with room for the annotations"
        ) from error
