"""Read CSV, TSV, JSON lines and Parquet files as Arrow batches of one schema.

Text stays as written: "007" is not a number, "NA" is not a missing value, and a date is not a
timestamp. Text formats may be gzipped.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from shardwright.errors import BuildError, MissingError, UsageError
from shardwright.format.json_files import check_depth
from shardwright.format.parquet import ParquetRows
from shardwright.sizes import show_bytes
from shardwright.storage.addresses import redact
from shardwright.storage.folder import files_of
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.inputs.columns import check_width
from shardwright.transforms.inputs.file_rules import has_image_name
from shardwright.transforms.inputs.foreign_text import Utf8Stream
from shardwright.transforms.references import BATCH_ROWS
from shardwright.transforms.rejects import Reject, RejectReason

_FILES_AT_A_TIME = 8  # when reading types
_TESTED_TOGETHER = 4096  # values of several columns; longer columns are tested one by one
# Numbers that a float would change: leading zeros, a plus sign, or more digits than a double holds.
_NO_FLOAT = r"^[+-]?0[0-9]|^[+]|^-?[0-9]{16,}$"
_NARROWEST_FIRST = (pa.int64(), pa.float64(), pa.bool_())
# Column -> types that can hold every value in a file, narrowest first; None without values.
_Possible = dict[str, Sequence[pa.DataType] | None]
_Column = tuple[str, pa.Array]  # name, texts
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
# A last line whose last value begins with a quote and does not end with one, by RFC 4180.
_OPEN_QUOTE = {
    by: re.compile(rb'(?:(?:"(?:[^"]|"")*"|[^"%b][^%b]*|)%b)*"(?:[^"]|"")*' % ((key,) * 3))
    for by, key in ((each, re.escape(each).encode()) for each in DELIMITERS)
}
USUAL_DELIMITERS = {"csv": ",", "tsv": "\t"}
_SEPARATOR_LINE = re.compile('\ufeff?"?sep=', re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?")
_HEADER_BYTES = 64 << 10
BLOCK_BYTES = 8 << 20  # parsed at a time; a line must fit in it
_GZIP = ".gz"
_SHORT_LINE = 500  # bytes; Arrow's parser takes some 5,000 levels
_LINE_ENDS = (b"}", b"}\r")
_NULL_ROW = re.compile(rb"(\xef\xbb\xbf)?[ \t\r\n]*null")
TRUE_TEXTS, FALSE_TEXTS = ["true", "True", "TRUE"], ["false", "False", "FALSE"]


def read_table_schema(
    paths: str | Sequence[str], kind: str, storage: StorageOptions = NO_OPTIONS
) -> pa.Schema:
    """Return the columns and types of a table in one file or in several.

    Raises:
        BuildError: A file cannot be read, or its columns differ from those of the first.
    """
    paths = [paths] if isinstance(paths, str) else paths
    if kind in ("csv", "tsv"):
        return _unify_csv(
            paths,
            list(
                map_reads(
                    lambda path: _look_through_csv(path, kind, storage), paths, _FILES_AT_A_TIME
                )
            ),
        )
    schemas = list(
        map_reads(lambda path: _stated_schema(path, kind, storage), paths, _FILES_AT_A_TIME)
    )
    return schemas[0] if len(schemas) == 1 else _unify_stated(paths, kind, schemas)


def _stated_schema(path: str, kind: str, storage: StorageOptions) -> pa.Schema:
    with table_faults(path):
        if kind == "jsonl":
            schema = _dates_as_text(read_json_lines(path, storage).schema)
        else:
            with open_file(path, storage) as file:
                schema = pq.read_schema(file).remove_metadata()
    check_width(path, schema.names)
    return schema


def _dates_as_text(schema: pa.Schema) -> pa.Schema:
    """Return the schema with timestamps as text: JSON has no dates, but Arrow guesses them."""

    def as_text(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_list(kind):
            return pa.list_(as_text(kind.value_type))
        return pa.string() if pa.types.is_timestamp(kind) else kind

    return pa.schema([(field.name, as_text(field.type)) for field in schema])


def _unify_stated(paths: Sequence[str], kind: str, schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return the columns of all files; a file of JSON lines may lack some, as a line may."""
    whole = _without_dictionaries(schemas[0])
    for path, schema in zip(paths[1:], schemas[1:], strict=True):
        if kind == "parquet":
            _check_same_columns(paths[0], schemas[0].names, path, schema.names)
        try:
            whole = pa.unify_schemas(
                [whole, _without_dictionaries(schema)], promote_options="permissive"
            )
        except pa.ArrowException as error:
            raise BuildError(
                f"{path} and {paths[0]} are not one table: {error}. "
                "Cast the column to one type in all files"
            ) from error
    return whole


def _without_dictionaries(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        [
            (
                field.name,
                field.type.value_type if pa.types.is_dictionary(field.type) else field.type,
            )
            for field in schema
        ]
    )


def _check_same_columns(
    first_path: str, first: Sequence[str], path: str, names: Sequence[str]
) -> None:
    if sorted(first) != sorted(names):
        lacks, adds = sorted(set(first) - set(names)), sorted(set(names) - set(first))
        told = [
            f"it lacks {lacks}" if lacks else "",
            f"it also has {adds}" if adds else "",
            "" if lacks or adds else "one is duplicate",
        ]
        raise BuildError(
            f"{path} has other columns than {first_path} ({', '.join(filter(None, told))}): "
            "all files of a table must have the same"
        )


def _check_header(path: str, names: Sequence[str]) -> None:
    """Raise UsageError for a table whose first line holds values: the name of an image, or numbers.

    Numbers may be names if they count columns, as pandas writes them.
    """
    image = next(filter(has_image_name, names), None)
    numbers = [name for name in names if _NUMBER.fullmatch(name)]
    counting = [str(number) for start in (0, 1) for number in range(start, len(names) + start)]
    is_repeated = len(set(numbers)) < len(numbers)
    is_row = len(numbers) == len(names) and numbers not in (
        counting[: len(names)],
        counting[len(names) :],
    )
    if image is not None or is_repeated or is_row:
        pixels = "" if image else "; a table of pixels is read as NumPy arrays (.npz)"
        raise UsageError(
            f"{path} has no line of column names: its first line has {image or numbers[0]!r}. Add "
            f"a line above it, such as image,label{pixels}"
        )


def _unify_csv(paths: Sequence[str], found: Sequence[tuple[list[str], _Possible]]) -> pa.Schema:
    """Return each column's narrowest type: int64, float64, bool or string; empty is null."""
    names = found[0][0]
    for path, (others, _) in zip(paths[1:], found[1:], strict=True):
        _check_same_columns(paths[0], names, path, others)
    chosen = []
    for name in names:
        possible = [kinds for _, by_name in found if (kinds := by_name[name]) is not None]
        # A type is the table's only if the values of all files fit it.
        held = [
            kind
            for kind in _NARROWEST_FIRST
            if possible and all(kind in kinds for kinds in possible)
        ]
        chosen.append((name, held[0] if held else pa.string()))
    return pa.schema(chosen)


def _look_through_csv(path: str, kind: str, storage: StorageOptions) -> tuple[list[str], _Possible]:
    """Return a file's column names in order, and the types that can hold their values."""
    with table_faults(path):
        by = find_delimiter(path, kind, storage)
        with open_csv(path, by, {}, [], storage) as reader:
            names = list(reader.schema.names)
        _check_header(path, names)
        check_width(path, names)
        possible: _Possible = dict.fromkeys(names)
        last = ""
        with open_csv(path, by, dict.fromkeys(names, pa.string()), [], storage) as reader:
            for batch in reader:
                columns = list(zip(names, batch.columns, strict=True))
                step = max(1, _TESTED_TOGETHER // max(batch.num_rows, 1))
                for start in range(0, len(columns), step):
                    _narrow(possible, columns[start : start + step])
                if batch.num_rows and batch.num_columns:
                    last = batch.columns[-1][-1].as_py()
        _check_last_quote(path, by, last, storage)
    return names, possible


def _narrow(possible: _Possible, columns: Sequence[_Column]) -> None:
    """Leave to each column the types that also hold these values of it."""
    filled = []
    for name, column in columns:
        is_empty = pc.equal(column, "")
        values = column.filter(pc.invert(is_empty)) if is_empty.true_count else column
        if len(values):
            filled.append((name, values))
    held: dict[str, list[pa.DataType]] = {name: [] for name, _ in filled}
    for kind in _NARROWEST_FIRST:
        known = ((name, possible[name]) for name, _ in filled)
        left = {name for name, kinds in known if kinds is None or kind in kinds}
        tested = [
            (name, values)
            for name, values in filled
            if name in left and _may_hold(kind, values[0].as_py())
        ]
        for name in _holding(kind, tested):
            held[name].append(kind)
    possible.update(held)


def _may_hold(kind: pa.DataType, text: str) -> bool:
    """Return False if a text cannot be a value of a type: most texts are none of a number."""
    if pa.types.is_boolean(kind):
        return text in TRUE_TEXTS or text in FALSE_TEXTS
    try:
        float(text)  # takes all that Arrow takes but hexadecimal numbers, which change
    except ValueError:
        return False
    return True


def _holding(kind: pa.DataType, columns: Sequence[_Column]) -> list[str]:
    """Return the columns whose values are all of a type: tested together, else by halves.

    A test of one value takes as long as one of a thousand.
    """
    if not columns:
        return []
    if _holds(kind, pa.concat_arrays([values for _, values in columns])):
        return [name for name, _ in columns]
    half = len(columns) // 2
    return _holding(kind, columns[:half]) + _holding(kind, columns[half:]) if half else []


def _check_last_quote(path: str, by: str, last: str, storage: StorageOptions) -> None:
    """Check for an unclosed quote at the end of a CSV, which Arrow closes in silence.

    It takes all later lines into one value, or the file was cut within a quoted value.

    Args:
        path: The file.
        by: Its delimiter.
        last: Its last value.
        storage: Options of its store.

    Raises:
        BuildError: The last value with a line break, or the last line, has no closing quote.
    """
    end = b""
    with open_text(path, storage) as file:
        while block := file.read(BLOCK_BYTES):
            # A gzip stream cannot be read from its end.
            end = (end + block)[-BLOCK_BYTES:]
    line = end.rpartition(b"\n")[2]
    has_lines = "\n" in last or "\r" in last
    if has_lines and end.rstrip()[-1:] != b'"':
        raise BuildError(
            f"the table {path} has a quote before {last[:60]!r} that is never closed, "
            "so all lines after it are one value: close it"
        )
    if _OPEN_QUOTE[by].fullmatch(line) and not has_lines:
        raise BuildError(
            f"the table {path} ends within a quoted value, in the line {line[:60]!r}, so it may "
            "lack rows: copy it again, or close the quote"
        )


def _holds(kind: pa.DataType, values: pa.Array) -> bool:
    """Return whether every text is a value of that type; integers must convert back unchanged."""
    if pa.types.is_boolean(kind):
        return bool(pc.all(pc.is_in(values, value_set=pa.array(TRUE_TEXTS + FALSE_TEXTS))).as_py())
    try:
        numbers = values.cast(kind)
    except pa.ArrowInvalid:
        return False
    if pa.types.is_integer(kind):
        # "007" is a number that would lose its zeros.
        return bool(numbers.cast(pa.string()).equals(values))
    return not pc.any(pc.match_substring_regex(values, _NO_FLOAT)).as_py()


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


def open_text(path: str, storage: StorageOptions) -> Utf8Stream:
    return Utf8Stream(open_file(path, storage))


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
    except (pa.ArrowException, OSError, UnicodeError) as error:
        text = str(error)
        if "straddling object" in text:
            raise BuildError(
                f"cannot read the table {path}: a row is longer than {show_bytes(BLOCK_BYTES)}, or "
                "a quote is never closed: shorten the row, or save the table as Parquet"
            ) from error
        if "Empty CSV file" in text or "Empty JSON file" in text:
            raise BuildError(f"the table {path} is empty: it has no rows") from error
        if isinstance(error, UnicodeError):
            raise BuildError(f"the table {path} is {text}") from error
        if re.search("utf-?8", text, re.IGNORECASE):  # in a Parquet file, or an escape in JSON
            raise BuildError(f"the table {path} is not UTF-8 ({text})") from error
        raise BuildError(f"cannot read the table {path}: {text}") from error


def read_json_lines(
    path: str, storage: StorageOptions, schema: pa.Schema | None = None
) -> pa.Table:
    with open_text(path, storage) as file:
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

    def __init__(self, file: Utf8Stream, path: str) -> None:
        self._file, self._path, self._rest = file, path, b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(size)
        block = self._rest + data
        # Arrow crashes on a block whose first row is null.
        if _NULL_ROW.match(block):
            raise BuildError(
                f"cannot read the table {self._path}: a row is null, and must be an object: {{...}}"
            )
        lines = block.split(b"\n")
        # The last line may go on in the next read.
        self._rest = lines.pop() if data else b""
        # A value that ends with its line needs a long line to be deep.
        whole = all(line[:1] == b"{" and line.endswith(_LINE_ENDS) for line in lines if line)
        for text in lines if whole else [b"\n".join(lines)]:
            if len(text) > _SHORT_LINE:
                try:
                    check_depth(text)
                except ValueError as error:
                    shown = redact(text.decode(errors="replace"))[:80]
                    raise BuildError(
                        f"cannot read the table {self._path}: {error}: {shown!r}"
                    ) from error
        return data


def find_delimiter(path: str, kind: str, storage: StorageOptions) -> str:
    """Return the delimiter of a CSV or TSV: the usual one unless its first line has another only.

    Spreadsheets of many countries write semicolons.
    """
    with open_text(path, storage) as file:
        header = file.read(_HEADER_BYTES).partition(b"\n")[0].decode(errors="replace")
    if _SEPARATOR_LINE.match(header):
        raise UsageError(
            f"{path} begins with the line {header.strip()!r}, which is for Excel alone: remove it"
        )
    # Not those within quotes, which are text.
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
        open_text(path, storage),
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
    columns = (batch.column(field.name) for field in schema)
    plain = (
        one.dictionary_decode() if pa.types.is_dictionary(one.type) else one for one in columns
    )
    arrays = [one.cast(kind) for one, kind in zip(plain, schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


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
    # After the rows, because the parser reads ahead in threads of its own.
    yield from bad_lines
