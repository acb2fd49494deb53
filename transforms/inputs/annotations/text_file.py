"""Keep long texts in a temporary file, so that memory holds only their places."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence

import pyarrow as pa

from shardwright.errors import BuildError


class TextFile:
    """Texts in an unnamed file of the temporary folder, which ends with this object."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this object
        self._end = 0

    def add(self, texts: Sequence[str]) -> tuple[pa.Array, pa.Array]:
        """Write texts, and return the first byte and the number of bytes of each.

        Raises:
            BuildError: The disk is full.
        """
        encoded = [text.encode() for text in texts]
        starts = []
        for data in encoded:
            starts.append(self._end)
            self._end += len(data)
        try:
            self._file.write(b"".join(encoded))
            self._file.flush()
        except OSError as error:
            raise BuildError(
                f"cannot write to the temporary folder {tempfile.gettempdir()}: {error.strerror}: "
                "set TMPDIR to a folder with room for the annotations"
            ) from error
        return pa.array(starts, pa.int64()), pa.array(map(len, encoded), pa.int64())

    def read(self, starts: pa.Array, lengths: pa.Array) -> pa.Array:
        """Return texts by their places."""
        descriptor = self._file.fileno()
        texts = [
            os.pread(descriptor, length, start) if length else b""
            for start, length in zip(starts.to_pylist(), lengths.to_pylist(), strict=True)
        ]
        return pa.array(texts, pa.large_binary()).cast(pa.large_string())
