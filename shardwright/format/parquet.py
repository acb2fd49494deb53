"""Read Parquet files of others in memory that is in proportion to their size, and write them.

A dictionary holds a long text once, and a few bytes name it in 100,000 rows: 7 kB decode to 6 GB.
So rows are decoded in steps that are measured, of so few rows that all may have the longest value:
none is longer than its row group, whose size the metadata state. Those of a column cannot be asked
of Arrow, whose getters end the process on many a changed byte (25.0.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardwright.errors import StorageError, TooLargeError
from shardwright.sizes import show_bytes
from shardwright.storage.folder import Folder

MAX_BYTES = 256 << 20  # decoded at a time, and allowed for every file
# Bytes of a file for each row of its smallest step: small steps are slow.
_ROW_BYTES, _STREAMED_ROW_BYTES = 8 << 10, 1 << 10
# Decoded bytes for each byte of a file: indexes have up to 30, tables with a common prompt 500.
_MAX_RATIO, _MAX_STREAMED_RATIO = 64, 1000


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
        self._path, self._threads = path, threads
        self._file = pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=checksums)
        self.metadata: pq.FileMetaData = self._file.metadata
        self.schema: pa.Schema = self._file.schema_arrow
        self._num_bytes: int = source.size()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows; raise `TooLargeError` if they take far more bytes than the file."""
        num_rows = self.metadata.num_rows
        step = self._step(num_rows, streamed=False)
        if step < num_rows:
            rows = list(self._measured(step, columns, streamed=False))
            return pa.Table.from_batches(rows, self._file.read_row_groups([], columns).schema)
        table: pa.Table = self._file.read(columns, use_threads=self._threads)
        decoded = sum(map(decoded_bytes, table.to_batches()))
        _check_decoded(self._path, self._num_bytes, decoded, streamed=False)
        return table

    def batches(self, rows: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield batches of up to `rows` rows, of fewer if they are large.

        Raises:
            TooLargeError: All rows together take far more bytes than the file.
        """
        step = self._step(rows, streamed=True)
        pieces = self._measured(step, columns, streamed=True)
        return pieces if step == rows else _joined(pieces, rows)

    def _measured(
        self, step: int, columns: Sequence[str] | None, *, streamed: bool
    ) -> Iterator[pa.RecordBatch]:
        decoded = 0
        for batch in self._file.iter_batches(step, columns=columns, use_threads=self._threads):
            decoded += decoded_bytes(batch)
            _check_decoded(self._path, self._num_bytes, decoded, streamed=streamed)
            yield from cut(batch)

    def _step(self, rows: int, *, streamed: bool) -> int:
        """Return how many rows to decode at a time, up to `rows`."""
        groups = range(self.metadata.num_row_groups)
        stated = [max(0, self.metadata.row_group(group).total_byte_size) for group in groups]
        _check_decoded(self._path, self._num_bytes, sum(stated), streamed=streamed)
        on_average = self.metadata.num_rows * MAX_BYTES // (sum(stated) + 1)
        of_longest = 2 * MAX_BYTES // (max(stated, default=0) + 1)
        least = self._num_bytes // (_STREAMED_ROW_BYTES if streamed else _ROW_BYTES)
        return max(1, min(rows, on_average, max(least, of_longest)))


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


def parquet_bytes(rows: pa.Table, **options: Any) -> bytes:
    """Return rows as a Parquet file; `options` of `pq.write_table`, by default with zstd."""
    buffer = pa.BufferOutputStream()
    pq.write_table(rows, buffer, **{"compression": "zstd", **options})
    return bytes(buffer.getvalue().to_pybytes())


def _joined(pieces: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in fewer batches, of up to `rows` rows."""
    held: list[pa.RecordBatch] = []
    num_rows = num_bytes = 0
    for piece in pieces:
        num_rows, num_bytes = num_rows + piece.num_rows, num_bytes + piece.nbytes
        if held and (num_rows > rows or num_bytes > MAX_BYTES // 8):
            yield pa.concat_batches(held)
            held, num_rows, num_bytes = [], piece.num_rows, piece.nbytes
        held.append(piece)
    if held:
        yield pa.concat_batches(held)


def _check_decoded(path: str, num_bytes: int, decoded: int, *, streamed: bool) -> None:
    """Raise `TooLargeError` if a file decodes to too much.

    Args:
        path: Its address.
        num_bytes: Its length.
        decoded: Bytes that it decodes to, so far or at least.
        streamed: Only some rows are in memory at a time.
    """
    allowed = max(MAX_BYTES, num_bytes * (_MAX_STREAMED_RATIO if streamed else _MAX_RATIO))
    if decoded > allowed:
        raise TooLargeError(
            f"{path} has {show_bytes(num_bytes)} and decodes to more than {show_bytes(allowed)}, "
            "the limit for its size: many of its rows share very long values"
        )


def decoded_bytes(values: pa.Array | pa.RecordBatch) -> int:
    """Return the bytes that values take without dictionary encoding, and with none shared."""
    if isinstance(values, pa.RecordBatch):
        return sum(map(decoded_bytes, values.columns))
    kind: Any = values.type
    if isinstance(values, pa.ExtensionArray):
        return decoded_bytes(values.storage)
    if pa.types.is_dictionary(kind):
        return 8 * len(values) + _shared_bytes(values)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        # The first of four int32 of a view is the length of its text.
        views = np.frombuffer(values.buffers()[1], np.int32)[values.offset * 4 :: 4]
        return 16 * len(values) + int(views[: len(values)].sum(dtype=np.int64))
    if pa.types.is_struct(kind):
        return sum(map(decoded_bytes, values.flatten()))
    if pa.types.is_map(kind):
        start, stop = values.offsets[0].as_py(), values.offsets[len(values)].as_py()
        parts = (each.slice(start, stop - start) for each in (values.keys, values.items))
        return 8 * len(values) + sum(map(decoded_bytes, parts))
    if any(is_kind(kind) for is_kind in _LISTS):
        return 8 * len(values) + decoded_bytes(values.flatten())
    return int(values.nbytes)


_LISTS = (
    *(pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list),
    *(pa.types.is_list_view, pa.types.is_large_list_view),
)


def _shared_bytes(values: pa.DictionaryArray) -> int:
    shared = values.dictionary
    if not len(shared):
        return 0
    try:
        lengths = pc.binary_length(shared)
    except pa.ArrowNotImplementedError:  # numbers, and what has a length for all
        return len(values) * (1 + shared.nbytes // len(shared))
    return int(pc.sum(lengths.take(values.indices)).as_py() or 0)


def cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield parts of a batch that decode to at most `MAX_BYTES`, unless they have one row."""
    if batch.num_rows > 1 and decoded_bytes(batch) > MAX_BYTES:
        half = batch.num_rows // 2
        yield from cut(batch.slice(0, half))
        yield from cut(batch.slice(half))
    else:
        yield batch
