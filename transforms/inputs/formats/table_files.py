"""Read CSV, TSV, JSON lines and Parquet files as Arrow batches of one schema.

Text stays as written: "007" is not a number, "NA" is not a missing value, and a date is not a
timestamp. Text formats may be gzipped.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardwright.errors import BuildError, MissingError, UsageError
from shardwright.format.json_files import check_depth, load_json
from shardwright.format.parquet import ParquetRows
from shardwright.sizes import show_bytes
from shardwright.storage.addresses import redact
from shardwright.storage.folder import files_of
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.features.lists import null_where, plain
from shardwright.transforms.inputs.columns import check_names, check_width
from shardwright.transforms.inputs.file_rules import NOT_UTF8, has_image_name, open_text
from shardwright.transforms.references import BATCH_ROWS
from shardwright.transforms.rejects import Reject, RejectReason

_FILES_AT_A_TIME = 8  # when reading types
# Numbers that a float would change: leading zeros, a plus sign, or more digits than a double holds.
_NO_FLOAT = r"^[+-]?0[0-9]|^[+]|^-?[0-9]{16,}$"
_NARROWEST_FIRST = (pa.null(), pa.int64(), pa.float64(), pa.bool_(), pa.string())
TABLE_EXTENSIONS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_DELIMITERS = ",;\t|"
_USUAL_DELIMITERS = {"csv": ",", "tsv": "\t"}
_ODD_VALUES = (pa.ArrowException, OverflowError)
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?")
MAX_ROW_BYTES = 8 << 20  # of a line or a value, and about as many of a batch
_ROWS_AT_A_TIME = 100
_VALUE_BYTES = 50  # of a Python text without its characters
_GZIP = ".gz"
_BOOL_TEXTS = pa.array(["true", "True", "TRUE", "false", "False", "FALSE"])
_ROW = msgspec.json.Decoder(dict[str, Any])
T = TypeVar("T")
# Column -> the types that hold all its values in a file, the narrowest first.
Kinds = dict[str, Sequence[pa.DataType]]


def read_table_schema(
    paths: Sequence[str], kind: str, storage: StorageOptions = NO_OPTIONS
) -> pa.Schema:
    """Return the columns and types of a table in one file or in several.

    Raises:
        UsageError: Two columns have one name, there are too many, or their names are missing.
        BuildError: A file cannot be read, or its columns differ from those of the first.
    """
    look = {"jsonl": _json_kinds, "parquet": _parquet_kinds}.get(kind, _csv_kinds)

    def look_into(path: str) -> Kinds:
        with table_faults(path):
            return look(path, kind, storage)

    files = [*map_reads(look_into, paths, _FILES_AT_A_TIME)]
    whole = files[0]
    for path, file in zip(paths[1:], files[1:], strict=True):
        lacks, adds = sorted(whole.keys() - file.keys()), sorted(file.keys() - whole.keys())
        if kind != "jsonl" and (lacks or adds):  # a file of JSON lines may lack some, as a line may
            raise BuildError(
                f"{path} has other columns than {paths[0]} (it lacks {lacks}, it also has {adds}): "
                "all files of a table must have the same"
            )
        whole = {
            name: _common(name, path, whole.get(name), file.get(name)) for name in [*whole, *adds]
        }
    types = {name: kinds[0] for name, kinds in whole.items()}
    if kind in _USUAL_DELIMITERS:  # a column without any value is text
        types = {name: pa.string() if one == pa.null() else one for name, one in types.items()}
    return pa.schema([*types.items()])


def _common(
    name: str, path: str, these: Sequence[pa.DataType] | None, those: Sequence[pa.DataType] | None
) -> Sequence[pa.DataType]:
    """Return the types that hold the values of a column in earlier files and in this one."""
    if these is None or those is None:
        return these or those or ()
    if both := [kind for kind in these if kind in those]:
        return both
    schemas = [
        pa.schema([(name, one.value_type if pa.types.is_dictionary(one) else one)])
        for one in (these[0], those[0])
    ]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").types
    except pa.ArrowException as error:
        raise BuildError(
            f"{path} and the rows before it are not one table: {error}. "
            "Cast the column to one type in all files"
        ) from error


def _checked(path: str, names: Sequence[str]) -> Sequence[str]:
    check_width(path, names)
    check_names(path, names)
    return names


def _parquet_kinds(path: str, _: str, storage: StorageOptions) -> Kinds:
    with open_file(path, storage) as file:
        schema = pq.read_schema(file)
    return {name: [schema.field(name).type] for name in _checked(path, schema.names)}


def _json_kinds(path: str, _: str, storage: StorageOptions) -> Kinds:
    kinds: Kinds = {}
    for rows in _json_rows(path, storage):
        names = dict.fromkeys(chain.from_iterable(rows))
        check_width(path, [*kinds.keys() | names.keys()])
        for name in names:
            try:
                found = [pa.array([row.get(name) for row in rows]).type]
            except _ODD_VALUES as error:
                raise BuildError(
                    f"cannot read the table {path}: column {name!r}: {error}"
                ) from error
            kinds[name] = _common(name, path, kinds.get(name), found)
    if not kinds:
        raise BuildError(f"the table {path} is empty: it has no rows")
    return kinds


def _csv_kinds(path: str, kind: str, storage: StorageOptions) -> Kinds:
    kinds: Kinds = {}
    for batch in _csv_texts(path, kind, storage, []):
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            left = kinds.get(name, _NARROWEST_FIRST)
            values = column.filter(pc.not_equal(column, "")) if len(left) > 1 else ()
            kinds[name] = [one for one in left if _holds(one, values)] if len(values) else left
    return kinds


def _holds(kind: pa.DataType, values: pa.Array) -> bool:
    """Return whether every text is a value of that type; integers must convert back unchanged."""
    if pa.types.is_boolean(kind):
        return bool(pc.all(pc.is_in(values, value_set=_BOOL_TEXTS)).as_py())
    try:
        numbers = values.cast(kind)
    except pa.ArrowException:
        return False
    if pa.types.is_integer(kind):
        # "007" is a number that would lose its zeros.
        return bool(numbers.cast(pa.string()).equals(values))
    is_float = pa.types.is_floating(kind)
    return not (is_float and pc.any(pc.match_substring_regex(values, _NO_FLOAT)).as_py())


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
    bad_lines: list[Reject] = []
    with table_faults(path):
        if kind == "parquet":
            with open_file(path, storage) as source, ParquetRows(source, path) as file:
                for batch in file.batches(BATCH_ROWS):
                    batch.validate(full=True)  # nothing else checks that text is UTF-8
                    yield batch if batch.schema.equals(schema) else _cast(batch, schema)
        elif kind == "jsonl":
            for rows in _json_rows(path, storage):
                arrays = [pa.array([row.get(one.name) for row in rows], one.type) for one in schema]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        else:
            for batch in _csv_texts(path, kind, storage, bad_lines):
                yield _cast(batch, schema)
    yield from bad_lines


def read_first_rows(
    path: str, kind: str, schema: pa.Schema, storage: StorageOptions
) -> pa.RecordBatch | None:
    """Return the first rows of a table, to look at their values; None if it has none.

    Raises:
        BuildError: As `read_table_file`.
    """
    parts = read_table_file(path, kind, schema, storage)
    return next((part for part in parts if isinstance(part, pa.RecordBatch)), None)


def open_file(path: str, storage: StorageOptions) -> pa.NativeFile:
    file = files_of(path, storage).open_input(path)
    return pa.CompressedInputStream(file, "gzip") if path.lower().endswith(_GZIP) else file


@contextmanager
def table_faults(path: str) -> Iterator[None]:
    """Raise the errors of reading a table as `BuildError`."""
    try:
        yield
    except MissingError as error:
        raise BuildError(f"the table {error}") from error
    except UnicodeError as error:
        raise BuildError(f"the table {path} is {NOT_UTF8} ({error})") from error
    except (pa.ArrowException, OSError) as error:
        raise BuildError(f"cannot read the table {path}: {error}") from error


def _json_rows(path: str, storage: StorageOptions) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of JSON lines in lists of at most `BATCH_ROWS`."""
    with open_file(path, storage) as file:
        for lines in _in_batches(filter(str.strip, _lines(file, path)), _num_chars):
            yield [_json_row(line, path) for line in lines]


def _json_row(line: str, path: str) -> dict[str, Any]:
    try:
        # JSON lacks NaN and Infinity, which Python writes.
        if "NaN" in line or "Infinity" in line:
            return msgspec.convert(load_json(line.encode()), dict)
        check_depth(line.encode())
        row = _ROW.decode(line)
        # Each key has a colon: with no more of them, no key comes twice.
        if line.count(":") > len(row):
            load_json(line.encode())
        return row
    except (msgspec.MsgspecError, ValueError) as error:
        shown = redact(line)[:80]
        raise BuildError(
            f"cannot read the table {path}: {error}, in a row that must be an object: {shown!r}"
        ) from error


def _lines(file: pa.NativeFile, path: str) -> Iterator[str]:
    """Yield the lines of a text, with their ends."""
    text = open_text(file)
    while line := text.readline(MAX_ROW_BYTES):
        if len(line) == MAX_ROW_BYTES:
            raise BuildError(
                f"cannot read the table {path}: a line is longer than {show_bytes(MAX_ROW_BYTES)}: "
                "shorten it, or save the table as Parquet"
            )
        yield line


def _in_batches(rows: Iterator[T], num_bytes: Callable[[list[T]], int]) -> Iterator[list[T]]:
    """Yield rows in lists of at most `BATCH_ROWS`, and of about `MAX_ROW_BYTES` bytes."""
    some: list[T] = []
    size = 0
    while more := list(islice(rows, _ROWS_AT_A_TIME)):
        some += more
        size += num_bytes(more)
        if len(some) == BATCH_ROWS or size > MAX_ROW_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _csv_texts(
    path: str, kind: str, storage: StorageOptions, bad_lines: list[Reject]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a CSV as text; a line with a wrong number of fields is a bad line."""
    with open_file(path, storage) as file:
        lines = _lines(file, path)
        first = next(filter(str.strip, lines), "")
        if not first:
            raise BuildError(f"the table {path} is empty: it has no rows")
        by = _delimiter(first, kind, path)
        csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW_BYTES))
        reader = csv.reader(chain([first], lines), delimiter=by, strict=True)
        try:
            names = next(reader)
            _check_header(path, names)
            _checked(path, names)
            batches = _in_batches(filter(None, reader), _size_of)
            for rows in chain([next(batches, [])], batches):
                bad = [row for row in rows if len(row) != len(names)]
                for row in bad:
                    told = f"a line of {path} has {len(row)} fields where {len(names)} are expected"
                    detail = f"{told}: {redact(by.join(row))[:200]!r}"
                    bad_lines.append(Reject("", path, RejectReason.BAD_VALUE, detail))
                fitting = [row for row in rows if len(row) == len(names)] if bad else rows
                texts = zip(*fitting, strict=True) if fitting else [()] * len(names)
                yield pa.RecordBatch.from_arrays([pa.array(t, pa.string()) for t in texts], names)
        except csv.Error as error:
            raise BuildError(
                f"cannot read the table {path}: {error}, in the row that ends in line "
                f"{reader.line_num}: close its quotes, or save the table as Parquet"
            ) from error


def _num_chars(texts: Iterable[str]) -> int:
    return sum(map(len, texts))


def _size_of(rows: Sequence[Sequence[str]]) -> int:
    """Return the approximate bytes of rows of Python texts."""
    return _num_chars(chain.from_iterable(rows)) + _VALUE_BYTES * len(rows) * len(rows[0])


def _delimiter(header: str, kind: str, path: str) -> str:
    """Return the delimiter of a CSV or TSV: the usual one unless its first line has another only.

    Spreadsheets of many countries write semicolons.
    """
    if header.strip('"').lower().startswith("sep="):
        raise UsageError(
            f"{path} begins with the line {header.strip()!r}, which is for Excel alone: remove it"
        )
    # Not those within quotes, which are text.
    found = [each for each in _DELIMITERS if each in re.sub(r'"[^"]*"', "", header)]
    usual = _USUAL_DELIMITERS[kind]
    return usual if usual in found or not found else found[0]


def _check_header(path: str, names: Sequence[str]) -> None:
    """Raise UsageError for a table whose first line holds values: the name of an image, or numbers.

    Numbers may be names if they count columns, as pandas writes them.
    """
    image = next(filter(has_image_name, names), None)
    numbers = [name for name in names if _NUMBER.fullmatch(name)]
    counts = [str(number) for number in range(len(names) + 1)]
    is_row = numbers == names and names not in (counts[:-1], counts[1:])
    if image or is_row or len({*numbers}) < len(numbers):
        raise UsageError(
            f"{path} has no line of column names: its first line has {image or numbers[0]!r}. Add "
            "a line above it, such as image,label. Pixels are read from Python (`sw.write`)"
        )


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of one file with the columns and types of all files."""
    arrays = [_typed(batch.column(one.name), one.type) for one in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _typed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column with a type; a text of CSV that is no text is null if it is empty."""
    if column.type == kind:
        return column
    column = plain(column)
    if column.type != pa.string():
        return column.cast(kind)
    # A bool's texts are true and false in any case.
    return null_where(column, pc.equal(column, "")).cast(kind)
