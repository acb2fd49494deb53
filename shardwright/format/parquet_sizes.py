"""Read the sizes of Parquet columns from the headers of their pages; metadata may misstate them.

The format: https://parquet.apache.org/docs/file-format/data-pages and Thrift's compact protocol,
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

_WIDTHS = {
    "BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4,
}  # fmt: skip
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3  # types of pages
_COUNT_AND_ENCODING = {_DATA: (5, 1, 2), _DATA_2: (8, 1, 4)}  # numbers of fields in headers
_PREFIXES, _PREFIXES_NAME = 7, "DELTA_BYTE_ARRAY"
_HEADER_BYTES = (512, 64 << 10, 16 << 20)  # read at first, and at most, as by Arrow
_MAX_DEPTH = 8


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


def read_sizes(
    source: pa.NativeFile, metadata: pq.FileMetaData, columns: Sequence[str] | None
) -> list[ColumnSizes]:
    """Return the sizes of columns, or of all; none of a file without rows.

    Raises:
        pa.ArrowInvalid: A page is damaged.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    wanted = None if columns is None else set(columns)
    found = []
    for number in range(metadata.num_columns if groups else 0):
        column = metadata.schema.column(number)
        parts = accumulate(column.path.split("."), "{}.{}".format)
        if wanted is None or not wanted.isdisjoint(parts):
            chunks = [group.column(number) for group in groups]
            found.append(_sizes_of(source, column, chunks))
    return found


def _sizes_of(
    source: pa.NativeFile, column: pq.ColumnSchema, chunks: Sequence[pq.ColumnChunkMetaData]
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


def _read_pages(source: pa.NativeFile, chunk: pq.ColumnChunkMetaData) -> Iterator[_Page]:
    """Yield the pages of a column in a row group, as far as Arrow reads them.

    In a store each header would take a request, so there sizes are those of the metadata.

    Raises:
        pa.ArrowInvalid: A header is damaged.
    """
    is_shared = chunk.has_dictionary_page and chunk.dictionary_page_offset > 0
    start = min(chunk.data_page_offset, chunk.dictionary_page_offset if is_shared else 1 << 62)
    if not isinstance(source, pa.PythonFile):
        end = min(start + chunk.total_compressed_size, source.size())
        yield from _read_headers(source, start, end, chunk.num_values)
        return
    num_bytes = chunk.total_uncompressed_size
    if is_shared:  # all other pages have at least their compressed sizes
        others = chunk.total_compressed_size - (chunk.data_page_offset - start)
        yield _Page(num_bytes - max(0, others), is_dictionary=True)
    yield _Page(num_bytes, has_prefixes=_PREFIXES_NAME in chunk.encodings)


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
            yield _Page(header[2], kind == _DICTIONARY, encoding == _PREFIXES, entries)
            at += num_bytes + max(0, header[3])
        except (KeyError, TypeError) as error:
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
    if kind == 12:
        return _struct(data, at, depth + 1)
    raise ValueError(f"no header has a field of type {kind}")


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
