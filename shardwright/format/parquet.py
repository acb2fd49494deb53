"""Read Parquet files of others in memory that is in proportion to their size, and write them.

A dictionary holds a long text once, and a few bytes name it in 100,000 rows: 7 kB decode to 6 GB.
So before rows are decoded, their size is bounded by the pages and by the longest shared text.
Metadata may misstate the pages, so their headers are read. Those of a column cannot be asked of
Arrow, whose getters end the process on many a changed byte (25.0.1).

The format: https://parquet.apache.org/docs/file-format/data-pages and Thrift's compact protocol,
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from operator import index
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardwright.errors import StorageError
from shardwright.format.decoded_sizes import MAX_BYTES, check_decoded, cut, decoded_bytes, most_of
from shardwright.storage.folder import Folder

_WIDTHS = {
    "BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4,
}  # fmt: skip
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3  # types of pages
_COUNT_AND_ENCODING = {_DATA: (5, 1, 2), _DATA_2: (8, 1, 4)}  # numbers of fields in headers
_PREFIXES = 7  # DELTA_BYTE_ARRAY
_END_BYTES = 64 << 10  # of a file, read for its metadata
_HEADER_BYTES = (512, 64 << 10, 16 << 20)  # read at first, and at most, as by Arrow
_MAX_DEPTH = 8

# Of fields that are missing, of another type or too large.
_DAMAGED = (AttributeError, LookupError, OverflowError, TypeError, ValueError)


class _Page(NamedTuple):
    """A page of a column.

    Attributes:
        num_bytes: Its length without compression.
        is_dictionary: Other pages name its values.
        has_prefixes: A value may be the one before it, and not a byte more.
        entries: Number of values of a dictionary, if known.
    """

    num_bytes: int
    is_dictionary: bool = False
    has_prefixes: bool = False
    entries: int | None = None


class ColumnSizes(NamedTuple):
    """Sizes of a column.

    Attributes:
        path: Its path in the schema.
        num_values: Number of values, nulls included.
        fixed: Bytes of its numbers, or of the places of its texts.
        stored: Bytes of its pages without compression.
        repeated: Bytes of a text that other values may repeat, at most; 0 if none may.
        is_list: A row may have many values.
        is_flat: It is not below a list or a struct, and has no values with prefixes.
        entries: Number of texts in the dictionary of each row group; None if not read.
    """

    path: str
    num_values: int
    fixed: int
    stored: int
    repeated: int
    is_list: bool
    is_flat: bool
    entries: tuple[int | None, ...]

    def most_in(self, rows: int) -> int:
        """Return the bytes that repeated texts take in a batch, at most."""
        return self.repeated * (self.num_values if self.is_list else min(rows, self.num_values))


def read_footer(source: pa.NativeFile) -> bytes:
    """Return the end of a Parquet file, with its metadata; from a store, with one or two reads."""
    num_bytes = source.size()
    end: bytes = source.read_at(min(_END_BYTES, num_bytes), max(0, num_bytes - _END_BYTES))
    wanted = min(int.from_bytes(end[-8:-4], "little") + 8, num_bytes)
    return end if wanted <= len(end) else source.read_at(wanted, num_bytes - wanted)


def read_sizes(
    source: pa.NativeFile,
    footer: bytes,
    schema: pq.ParquetSchema,
    columns: Collection[str] | None,
) -> list[ColumnSizes]:
    """Return the sizes of columns, or of all; none of a file without rows.

    Args:
        source: The file.
        footer: Its `read_footer`. Arrow's own metadata of a chunk end the process if damaged.
        schema: Its columns.
        columns: Names of those that count, None for all.

    Raises:
        pa.ArrowInvalid: The metadata or a page are damaged.
    """
    groups = _row_groups(footer)
    wanted = None if columns is None else set(columns)
    found = []
    for number in range(len(schema) if groups else 0):
        column = schema.column(number)
        parts = accumulate(column.path.split("."), "{}.{}".format)
        if wanted is None or not wanted.isdisjoint(parts):
            try:
                chunks = [_Chunk.of(group[number]) for group in groups]
                found.append(_sizes_of(source, column, chunks))
            except pa.ArrowInvalid:  # which names the page
                raise
            except _DAMAGED as error:
                raise pa.ArrowInvalid(f"the metadata of {column.path} are damaged") from error
    return found


class _Chunk(NamedTuple):
    """A column in a row group, as its metadata state it; the dictionary is at 0 without one."""

    encodings: list[int]
    num_values: int
    num_bytes: int
    stored_bytes: int
    data_at: int
    dictionary_at: int

    @classmethod
    def of(cls, column: Mapping[int, Any]) -> _Chunk:
        # `ColumnMetaData` of https://github.com/apache/parquet-format/blob/master/src/main/thrift.
        stated = column[3]
        num_values, num_bytes, stored_bytes, data_at, dictionary_at = (
            index(stated.get(key, 0)) for key in (5, 6, 7, 9, 11)
        )
        return cls(stated[2], num_values, num_bytes, stored_bytes, data_at, dictionary_at)


def _row_groups(footer: bytes) -> list[list[dict[int, Any]]]:
    """Return the columns of each row group, as fields by number."""
    length = int.from_bytes(footer[-8:-4], "little")
    try:
        fields, _ = _struct(footer[max(0, len(footer) - 8 - length) : -8], 0, 0)
        return [group[1] for group in fields.get(4, ())]
    except _DAMAGED as error:
        raise pa.ArrowInvalid("the metadata are damaged") from error


def _sizes_of(
    source: pa.NativeFile, column: pq.ColumnSchema, chunks: Sequence[_Chunk]
) -> ColumnSizes:
    pages = [list(_read_pages(source, chunk)) for chunk in chunks]
    num_values = sum(chunk.num_values for chunk in chunks)
    repeated = max(map(_repeated, pages)) if column.physical_type == "BYTE_ARRAY" else 0
    has_prefixes = any(page.has_prefixes for page in chain(*pages))
    return ColumnSizes(
        column.path,
        num_values,
        num_values * (_WIDTHS.get(column.physical_type) or column.length),
        sum(page.num_bytes for page in chain(*pages)),
        repeated,
        is_list=column.max_repetition_level > 0,
        is_flat=column.path == column.name and not has_prefixes,
        entries=tuple(next((page.entries for page in of if page.entries), None) for of in pages),
    )


def _repeated(pages: Sequence[_Page]) -> int:
    """Return the bytes of a text that others may repeat, at most."""
    return max(
        (each.num_bytes for each in pages if each.is_dictionary or each.has_prefixes), default=0
    )


def _read_pages(source: pa.NativeFile, chunk: _Chunk) -> Iterator[_Page]:
    """Yield the pages of a column in a row group, as far as Arrow reads them.

    In a store each header would take a request, so there sizes are those of the metadata.
    """
    is_shared = 0 < chunk.dictionary_at < chunk.data_at
    start = chunk.dictionary_at if is_shared else chunk.data_at
    if not isinstance(source, pa.PythonFile):
        end = min(start + chunk.stored_bytes, source.size())
        yield from _read_headers(source, start, end, chunk.num_values)
        return
    if is_shared:  # all other pages have at least their compressed sizes
        others = chunk.stored_bytes - (chunk.data_at - start)
        yield _Page(chunk.num_bytes - max(0, others), is_dictionary=True)
    yield _Page(chunk.num_bytes, has_prefixes=_PREFIXES in chunk.encodings)


def _read_headers(source: pa.NativeFile, at: int, end: int, num_values: int) -> Iterator[_Page]:
    while at < end and num_values > 0:
        header, num_bytes = _read_header(source, at)
        try:
            kind, entries, encoding = header[1], None, None
            if kind == _DICTIONARY:
                entries = header[7][1]
            elif kind in _COUNT_AND_ENCODING:
                of_data, count, of_encoding = _COUNT_AND_ENCODING[kind]
                num_values -= header[of_data][count]
                encoding = header[of_data][of_encoding]
            yield _Page(index(header[2]), kind == _DICTIONARY, encoding == _PREFIXES, entries)
            at += num_bytes + max(0, header[3])
        except _DAMAGED as error:
            raise pa.ArrowInvalid(f"the page at byte {at} has no valid header") from error


def _read_header(source: pa.NativeFile, at: int) -> tuple[dict[int, Any], int]:
    """Return the fields of a page's header by number, and its length in bytes."""
    for num_bytes in _HEADER_BYTES:
        try:
            return _struct(source.read_at(num_bytes, at), 0, 0)
        except IndexError:  # longer
            continue
        except ValueError:
            break
    raise pa.ArrowInvalid(f"the page at byte {at} has no valid header")


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    if depth > _MAX_DEPTH:
        raise ValueError("nested too deeply")
    fields: dict[int, Any] = {}
    number = 0
    while head := data[at]:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        fields[number], at = _value(data, at, head & 15, depth)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):  # true and false
        return kind == 1, at
    if kind in (4, 5, 6):
        return _integer(data, at)
    if kind == 8:  # bytes
        length, at = _varint(data, at)
        return None, at + length
    if kind in (9, 10):  # a list
        return _list(data, at, depth)
    if kind == 12:
        return _struct(data, at, depth + 1)
    if kind in (3, 7):  # a byte, a double
        return None, at + (1 if kind == 3 else 8)
    raise ValueError(f"a field has the type {kind}")


def _list(data: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    head, at, values = data[at], at + 1, []
    number = head >> 4
    if number == 15:
        number, at = _varint(data, at)
    for _ in range(number):
        is_flag = head & 15 in (1, 2)  # in a list, a byte
        value, at = (None, at + 1) if is_flag else _value(data, at, head & 15, depth)
        if at > len(data):
            raise IndexError
        values.append(value)
    return values, at


def _integer(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return value >> 1 ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("too long an integer")


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
        if held and (num_rows > rows or num_bytes > _STEP_BYTES):
            yield pa.concat_batches(held)
            held, num_rows, num_bytes = [], piece.num_rows, piece.nbytes
        held.append(piece)
    if held:
        yield pa.concat_batches(held)
