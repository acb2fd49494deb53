"""Read Parquet files of others in memory that is in proportion to their size.

A dictionary holds a long text once, and a few bytes name it in 100,000 rows: 7 kB decode to 6 GB.
So before rows are decoded, their size is bounded by the pages and by the longest shared text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardwright.errors import StorageError
from shardwright.format.decoded_sizes import MAX_BYTES, check_decoded, cut, decoded_bytes, most_of
from shardwright.format.parquet_sizes import ColumnSizes, read_footer, read_sizes
from shardwright.storage.folder import Folder

_STEP_BYTES = MAX_BYTES // 8  # decoded before they are measured


class ParquetRows:
    """An open Parquet file of others, as a context manager.

    Attributes:
        schema: Its columns.
        metadata: Its Parquet metadata.
    """

    def __init__(
        self, source: pa.NativeFile, path: str, *, checksums: bool = False, threads: bool = True
    ) -> None:
        """Read the metadata.

        Args:
            source: The file.
            path: Its address, for messages.
            checksums: Check those of pages.
            threads: Decode columns concurrently.

        Raises:
            pa.ArrowException, OSError: The file is damaged; also raised by the methods.
        """
        self._source, self._path = source, path
        self._footer = read_footer(source)
        self.metadata: pq.FileMetaData = pq.read_metadata(pa.BufferReader(self._footer))
        self._options: dict[str, Any] = {
            "metadata": self.metadata,
            "pre_buffer": False,
            "page_checksum_verification": checksums,
        }
        self._threads = threads
        self._file = pq.ParquetFile(source, **self._options)
        self.schema: pa.Schema = self._file.schema_arrow
        self._num_bytes: int = source.size()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows; raise `TooLargeError` if they take far more bytes than the file."""
        num_rows = self.metadata.num_rows
        step = self._step(num_rows, columns, streamed=False)
        if step >= num_rows:
            return self._file.read(columns, use_threads=self._threads)
        rows = list(self._measured(step, columns, streamed=False))
        return pa.Table.from_batches(rows, self._file.read_row_groups([], columns).schema)

    def batches(self, rows: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield batches of up to `rows` rows, of fewer if they are large.

        Raises:
            TooLargeError: All rows together take far more bytes than the file.
        """
        step = self._step(rows, columns, streamed=True)
        pieces = self._measured(step, columns, streamed=True)
        return pieces if step == rows else _joined(pieces, rows)

    def _measured(
        self, step: int, columns: Sequence[str] | None, *, streamed: bool
    ) -> Iterator[pa.RecordBatch]:
        decoded = 0
        for batch in self._file.iter_batches(step, columns=columns, use_threads=self._threads):
            decoded += decoded_bytes(batch)
            check_decoded(self._path, self._num_bytes, decoded, streamed=streamed)
            yield from cut(batch)

    def _step(self, rows: int, columns: Sequence[str] | None, *, streamed: bool) -> int:
        """Return how many rows to decode at a time, up to `rows`."""
        sizes = read_sizes(self._source, self._footer, self.metadata.schema, columns)
        least = max(sum(each.fixed for each in sizes), sum(each.stored for each in sizes))
        check_decoded(self._path, self._num_bytes, least, streamed=streamed)
        on_average = max(1, self.metadata.num_rows * MAX_BYTES // (least + 1))
        shared = [each for each in sizes if each.repeated]
        if least + sum(each.most_in(rows) for each in shared) <= most_of(self._num_bytes):
            return min(rows, on_average)
        share = MAX_BYTES // (2 * len(shared) + 1)
        large = [each for each in shared if each.most_in(rows) > share]
        longest = self._longest_shared([each for each in large if each.is_flat])
        in_row = sum(longest.get(each.path, each.repeated) for each in large)
        return max(1, min(rows, on_average, _STEP_BYTES // (in_row + 1)))

    def _longest_shared(self, columns: Sequence[ColumnSizes]) -> dict[str, int]:
        """Return the length of the longest text in the dictionaries of columns, by their paths."""
        paths = [each.path for each in columns]
        found = dict.fromkeys(paths, 0)
        with pq.ParquetFile(self._source, read_dictionary=paths, **self._options) as file:
            for group in range(self.metadata.num_row_groups if paths else 0):
                first = file.iter_batches(1, row_groups=[group], columns=paths, use_threads=False)
                row = next(first, None)
                texts = {} if row is None else dict(zip(row.schema.names, row.columns, strict=True))
                for each in columns if texts else ():
                    longest = _longest(texts[each.path], each.entries[group], each.repeated)
                    found[each.path] = max(found[each.path], longest)
        return found


def _longest(row: pa.Array, entries: int | None, most: int) -> int:
    """Return the length of the longest text of a row's dictionary, `most` if that is not whole."""
    is_shared = pa.types.is_dictionary(row.type) and entries in (None, len(row.dictionary))
    return pc.max(pc.binary_length(row.dictionary)).as_py() or 0 if is_shared else most


def read_rows(root: Folder, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a small Parquet file.

    Raises:
        StorageError: It is missing, damaged, or decodes to far more than its size.
    """
    data, path = root.read_bytes(name), root.path(name)
    try:
        with ParquetRows(pa.BufferReader(data), path) as file:
            return file.read(columns)
    except (pa.ArrowException, OSError) as error:
        raise StorageError(f"{path} cannot be read: {error}") from error


def _joined(pieces: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in fewer batches, of up to `rows` rows."""
    held: list[pa.RecordBatch] = []
    num_rows = num_bytes = 0
    for piece in pieces:
        num_rows, num_bytes = num_rows + piece.num_rows, num_bytes + piece.nbytes
        if held and (num_rows > rows or num_bytes > _STEP_BYTES):
            yield pa.concat_batches(held)
            held, num_rows, num_bytes = [], piece.num_rows, piece.nbytes
        held.append(piece)
    if held:
        yield pa.concat_batches(held)
