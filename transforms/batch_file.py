"""Keep record batches in a temporary file, so that memory holds only their places."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple

import pyarrow as pa

from shardwright.errors import BuildError
from shardwright.transforms.references import from_ipc, to_ipc


class Place(NamedTuple):
    """The position of a packed batch in the file, in bytes."""

    start: int
    length: int


class BatchFile:
    """Packed batches in a file of the temporary folder.

    The file has no name, so the system removes it however the process ends.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._end = 0

    def add(self, batch: pa.RecordBatch) -> Place:
        """Write a batch.

        Raises:
            BuildError: The disk is full.
        """
        data = to_ipc(batch)
        place = Place(self._end, len(data))
        with _disk_faults():
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115
            self._file.write(data)
            self._file.flush()
        self._end += len(data)
        return place

    def read(self, place: Place) -> pa.RecordBatch:
        """Return a batch; raise as `add`."""
        assert self._file is not None, "the batch is of another file"
        with _disk_faults():
            # With its own offset, so that threads may read while others write.
            return from_ipc(os.pread(self._file.fileno(), place.length, place.start))


@contextmanager
def _disk_faults() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BuildError(
            f"cannot use the temporary folder {tempfile.gettempdir()}: {error.strerror}: "
            "set TMPDIR to a folder with more room"
        ) from error
