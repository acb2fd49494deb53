"""Read CSV, TSV, JSON lines and Parquet files as Arrow batches of one schema.

Text stays as written: "007" is not a number, "NA" is not a missing value, and a date is not a
timestamp. Text formats may be gzipped.
"""

from __future__ import annotations

import codecs
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from shardwright.errors import BuildError, MissingError
from shardwright.format.json_text import check_depth
from shardwright.format.parquet import ParquetRows
from shardwright.sizes import show_bytes
from shardwright.storage.addresses import redact
from shardwright.storage.folder import files_of
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.transforms.references import BATCH_ROWS
from shardwright.transforms.rejects import Reject, RejectReason

TABLE_EXTENSIONS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
DELIMITERS = ",;\t|"
USUAL_DELIMITERS = {"csv": ",", "tsv": "\t"}
_HEADER_BYTES = 64 << 10
BLOCK_BYTES = 8 << 20  # parsed at a time; a line must fit in it
_GZIP = ".gz"
_SHORT_LINE = 500  # bytes; Arrow's parser takes some 5,000 levels
_LINE_ENDS = (b"}", b"}\r")
TRUE_TEXTS, FALSE_TEXTS = ["true", "True", "TRUE"], ["false", "False", "FALSE"]


def table_format(path: str) -> str | None:
    """Return the format of a table's file name, or None. Text formats may also end in .gz."""
    stem, extension = os.path.splitext(path.lower())
    if extension == _GZIP:
        kind = TABLE_EXTENSIONS.get(os.path.splitext(stem)[1])
        return None if kind == "parquet" else kind
    return TABLE_EXTENSIONS.get(extension)


def read_table_file(
    path: str, kind: str, schema: pa.Schema, storage: StorageOptions = NO_OPTIONS
) -> Iterator[pa.RecordBatch | Reject]:
    """Yield a table's rows, in order, in batches of at most `BATCH_ROWS`.

    A line with a wrong number of fields is a reject.

    Args:
        schema: The columns and types to read text formats with.

    Raises:
        BuildError: It cannot be read to its end.
    """
    with table_faults(path):
        for part in _read_parts(path, kind, schema, storage):
            if isinstance(part, pa.RecordBatch):
                part.validate(full=True)  # nothing else checks that text is UTF-8
            yield part


def open_file(path: str, storage: StorageOptions) -> pa.NativeFile:
    file = files_of(path, storage).open_input(path)
    return pa.CompressedInputStream(file, "gzip") if path.lower().endswith(_GZIP) else file


def _read_parts(
    path: str, kind: str, schema: pa.Schema, storage: StorageOptions
) -> Iterator[pa.RecordBatch | Reject]:
    if kind == "parquet":
        with open_file(path, storage) as source, ParquetRows(source, path) as file:
            for batch in file.batches(BATCH_ROWS):
                yield batch if batch.schema.equals(schema) else _cast(batch, schema)
    elif kind == "jsonl":
        yield from read_json_lines(path, storage, schema).to_batches(max_chunksize=BATCH_ROWS)
    else:
        yield from _read_csv(path, kind, schema, storage)


@contextmanager
def table_faults(path: str) -> Iterator[None]:
    """Raise the errors of reading a table as `BuildError`."""
    try:
        yield
    except MissingError as error:
        raise BuildError(f"the table {error}") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        text = str(error)
        if "straddling object" in text:
            raise BuildError(
                f"cannot read the table {path}: a row is longer than {show_bytes(BLOCK_BYTES)}, or "
                "a quote is never closed: shorten the row, or save the table as Parquet"
            ) from error
        if "Empty CSV file" in text or "Empty JSON file" in text:
            raise BuildError(f"the table {path} is empty: it has no rows") from error
        if isinstance(error, UnicodeDecodeError) or re.search("utf-?8", text, re.IGNORECASE):
            raise BuildError(f"the table {path} is not UTF-8: save it as UTF-8 ({text})") from error
        raise BuildError(f"cannot read the table {path}: {text}") from error


def read_json_lines(
    path: str, storage: StorageOptions, schema: pa.Schema | None = None
) -> pa.Table:
    with open_file(path, storage) as file:
        table = pa_json.read_json(
            _BoundedLines(file, path),
            read_options=pa_json.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=pa_json.ParseOptions(explicit_schema=schema),
        )
    if not table.num_columns:
        raise BuildError(f"the table {path} is empty: it has no rows")
    return table


class _BoundedLines(io.RawIOBase):
    """A file of JSON lines for Arrow, whose parser recurses, and so crashes on deep nesting."""

    def __init__(self, file: pa.NativeFile, path: str) -> None:
        self._file, self._path, self._rest = file, path, b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(size)
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop() if data else b""
        # A value that ends with its line needs a long line to be deep.
        whole = all(line[:1] == b"{" and line.endswith(_LINE_ENDS) for line in lines if line)
        for text in lines if whole else [b"\n".join(lines)]:
            if len(text) > _SHORT_LINE:
                self._check(text)
        return data

    def _check(self, text: bytes) -> None:
        try:
            check_depth(text)
        except ValueError as error:
            shown = redact(text.decode(errors="replace"))[:80]
            raise BuildError(f"cannot read the table {self._path}: {error}: {shown!r}") from error


class _Utf8(io.RawIOBase):
    """A file of UTF-8 for Arrow, which prints a traceback for a bad line that is not UTF-8."""

    def __init__(self, file: pa.NativeFile) -> None:
        self._file, self._decoder = file, codecs.getincrementaldecoder("utf-8")()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(size)
        self._decoder.decode(data, final=not data)
        return data


def find_delimiter(path: str, kind: str, storage: StorageOptions) -> str:
    """Return the delimiter of a CSV or TSV: the usual one unless its first line has another only.

    Spreadsheets of many countries write semicolons.
    """
    with open_file(path, storage) as file:
        header = file.read(_HEADER_BYTES).partition(b"\n")[0].decode(errors="replace")
    found = [each for each in DELIMITERS if each in re.sub(r'"[^"]*"', "", header)]
    usual = USUAL_DELIMITERS[kind]
    return usual if usual in found or not found else found[0]


def open_csv(
    path: str,
    delimiter: str,
    types: dict[str, pa.DataType],
    bad_lines: list[Reject],
    storage: StorageOptions,
) -> pa_csv.CSVStreamingReader:
    """Open a CSV; a line with a wrong number of fields is skipped, and added to `bad_lines`."""

    def skip(line: pa_csv.InvalidRow) -> str:
        found = (
            f"a line of {path} has {line.actual_columns} fields "
            f"where {line.expected_columns} are expected: "
        )
        bad_lines.append(
            Reject("", path, RejectReason.BAD_VALUE, found + repr(redact(line.text)[:200]))
        )
        return "skip"

    return pa_csv.open_csv(
        _Utf8(open_file(path, storage)),
        read_options=pa_csv.ReadOptions(block_size=BLOCK_BYTES),
        parse_options=pa_csv.ParseOptions(
            delimiter=delimiter,
            newlines_in_values=True,
            invalid_row_handler=skip,
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types=types,
            strings_can_be_null=False,
            null_values=[""],
            true_values=TRUE_TEXTS,
            false_values=FALSE_TEXTS,
        ),
    )


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of one file with the columns and types of all files."""
    return pa.RecordBatch.from_arrays(
        [as_plain(batch.column(field.name)).cast(field.type) for field in schema], schema=schema
    )


def as_plain(column: pa.Array) -> pa.Array:
    """Return a column without dictionary encoding."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _read_csv(
    path: str, kind: str, schema: pa.Schema, storage: StorageOptions
) -> Iterator[pa.RecordBatch | Reject]:
    bad_lines: list[Reject] = []
    types = dict(zip(schema.names, schema.types, strict=True))
    delimiter = find_delimiter(path, kind, storage)
    with open_csv(path, delimiter, types, bad_lines, storage) as reader:
        for block in reader:
            for start in range(0, block.num_rows, BATCH_ROWS):
                yield block.slice(start, BATCH_ROWS)
    yield from bad_lines
