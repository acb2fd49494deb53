"""Sort annotations by image on disk, in the memory of those of one batch of images.

They are first written in the order of the file. Once the row of every image is known, they are
distributed to ranges of rows, and a range is sorted when it is wanted.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shardwright.transforms.batch_file import BatchFile, Place
from shardwright.transforms.references import set_column

_CHUNK_BYTES = 32 << 20
_ROW_BYTES = 400  # of a row's Python objects, text apart
TEXT, IMAGE, ORDER = "text", "image", "order"


class AnnotationRows:
    """Annotations in the order they are added, in a temporary file.

    Args:
        more: Names and types of columns after `TEXT`, `IMAGE` (the image's number) and `ORDER` (in
            an image; equal ones stay as they were added).
    """

    def __init__(self, *more: tuple[str, pa.DataType]) -> None:
        self.num_bytes = self._count = 0
        self._columns = pa.schema(
            [(TEXT, pa.large_string()), (IMAGE, pa.int64()), (ORDER, pa.int64()), *more]
        )
        self._file = BatchFile()
        self._places: list[Place] = []
        self._held: list[tuple[object, ...]] = []
        self._held_bytes = 0

    def __len__(self) -> int:
        return self._count

    def add(self, text: str, image: int, order: int, *more: object) -> None:
        """Add a row; raise BuildError if the disk is full."""
        self._count += 1
        self._held.append((text, image, order, *more))
        self._held_bytes += _ROW_BYTES + len(text)
        if self._held_bytes >= _CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the latest rows; to be called after the last."""
        if self._held:
            columns = zip(*self._held, strict=True)
            arrays = [
                pa.array(values, field.type)
                for values, field in zip(columns, self._columns, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._columns)
            self._places.append(self._file.add(batch))
            self.num_bytes += batch.nbytes
            self._held, self._held_bytes = [], 0

    def by_image(self, row_of: NDArray[np.int64], range_rows: int) -> RowsOfImages:
        """Distribute the annotations to ranges of `range_rows` rows; can be called once.

        Args:
            row_of: The row of each image number; annotations of a negative one are left out.
            range_rows: Number of rows in a range.
        """
        pieces: dict[int, list[Place]] = defaultdict(list)
        file = BatchFile()
        for place in self._places:
            batch = self._file.read(place)
            rows = row_of[batch.column(IMAGE).to_numpy()]
            ranges = np.where(rows < 0, -1, rows // range_rows)
            order = np.argsort(ranges, kind="stable")
            batch = set_column(batch, IMAGE, pa.array(rows)).take(pa.array(order))
            found, starts = np.unique(ranges[order], return_index=True)
            ends = [*starts[1:], len(order)]
            for number, start, end in zip(found.tolist(), starts, ends, strict=True):
                if number >= 0:
                    pieces[number].append(file.add(batch.slice(start, end - start)))
        self._places, self._file = [], BatchFile()
        return RowsOfImages(self._columns, file, pieces, range_rows)


class RowsOfImages:
    """Annotations by their image's row, in the order of their ids, as in TFDS."""

    def __init__(
        self, columns: pa.Schema, file: BatchFile, pieces: dict[int, list[Place]], range_rows: int
    ) -> None:
        self._columns, self._file, self._pieces = columns, file, pieces
        self._range_rows, self._range = range_rows, -1
        self._sorted = pa.RecordBatch.from_pylist([], columns)
        self._rows = np.zeros(0, np.int64)

    def of(self, wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], pa.RecordBatch]:
        """Return the annotations of ascending rows of a range: positions in `wanted`, columns."""
        if len(wanted):
            self._load(int(wanted[0]) // self._range_rows)
        first, last = (
            np.searchsorted(self._rows, wanted),
            np.searchsorted(self._rows, wanted, side="right"),
        )
        counts = last - first
        places = np.repeat(np.arange(len(wanted)), counts)
        # The ranges first[i]..last[i], one after another, without a Python loop.
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return places, self._sorted.take(pa.array(np.repeat(first, counts) + within))

    def _load(self, number: int) -> None:
        if number == self._range:
            return
        self._range = number
        self._sorted = pa.RecordBatch.from_pylist([], self._columns)  # before the next is read
        if places := self._pieces.get(number):
            batch = pa.concat_batches([self._file.read(place) for place in places])
            keys = batch.column(ORDER).to_numpy(), batch.column(IMAGE).to_numpy()
            self._sorted = batch.take(pa.array(np.lexsort(keys)))
        self._rows = self._sorted.column(IMAGE).to_numpy()
