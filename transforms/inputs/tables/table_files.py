"""Read CSV, TSV, JSON lines and Parquet files as Arrow batches of one schema.

Parquet states its types, JSON lines are read as a whole, and a CSV is scanned once (as text, in
bounded memory) before it is read. Text stays as written: "007" is not a number, "NA" is not a
missing value, and a date is not a timestamp. In a table of several files, each column has the type
that it would have in one file. Text formats may be gzipped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from shardwright.errors import BuildError, MissingError
from shardwright.storage import NO_OPTIONS, StorageOptions, files_of
from shardwright.storage.reads import map_reads
from transforms.references import BATCH_ROWS
from transforms.rejects import Reject, RejectReason

TABLE_EXTENSIONS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
BLOCK_BYTES = 8 << 20  # parsed at a time; a line must fit in it
_GZIP = ".gz"
_FILES_AT_A_TIME = 8  # when reading types
_TRUE, _FALSE = ["true", "True", "TRUE"], ["false", "False", "FALSE"]
# Numbers that a float would change: leading zeros, a plus sign, or more digits than a double holds.
_NO_FLOAT = r"^[+-]?0[0-9]|^[+]|^-?[0-9]{16,}$"
_NARROWEST_FIRST = (pa.int64(), pa.float64(), pa.bool_())


def table_format(path: str) -> str | None:
    """Return the format of a table's file name, or None. Text formats may also end in .gz."""
    stem, extension = os.path.splitext(path.lower())
    if extension == _GZIP:
        kind = TABLE_EXTENSIONS.get(os.path.splitext(stem)[1])
        return None if kind == "parquet" else kind
    return TABLE_EXTENSIONS.get(extension)


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
    with _table_faults(path):
        if kind == "jsonl":
            return _dates_as_text(_read_json_lines(path, storage).schema)
        with _open(path, storage) as file:
            return pq.read_schema(file).remove_metadata()


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
    with _table_faults(path):
        for part in _read_parts(path, kind, schema, storage):
            if isinstance(part, pa.RecordBatch):
                part.validate(full=True)  # nothing else checks that text is UTF-8
            yield part


def _open(path: str, storage: StorageOptions) -> pa.NativeFile:
    file = files_of(path, storage).open_input(path)
    return pa.CompressedInputStream(file, "gzip") if path.lower().endswith(_GZIP) else file


def _read_parts(
    path: str, kind: str, schema: pa.Schema, storage: StorageOptions
) -> Iterator[pa.RecordBatch | Reject]:
    if kind == "parquet":
        with _open(path, storage) as source, pq.ParquetFile(source) as file:
            for batch in file.iter_batches(batch_size=BATCH_ROWS):
                yield batch if batch.schema.equals(schema) else _cast(batch, schema)
    elif kind == "jsonl":
        yield from _read_json_lines(path, storage, schema).to_batches(max_chunksize=BATCH_ROWS)
    else:
        yield from _read_csv(path, kind, schema, storage)


@contextmanager
def _table_faults(path: str) -> Iterator[None]:
    try:
        yield
    except MissingError as error:
        raise BuildError(f"the table {error}") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        text = str(error)
        if "Empty CSV file" in text or "Empty JSON file" in text:
            raise BuildError(f"the table {path} is empty: it has no rows") from error
        if isinstance(error, UnicodeDecodeError) or re.search("utf-?8", text, re.IGNORECASE):
            raise BuildError(f"the table {path} is not UTF-8: save it as UTF-8 ({text})") from error
        raise BuildError(f"cannot read the table {path}: {text}") from error


def _read_json_lines(
    path: str, storage: StorageOptions, schema: pa.Schema | None = None
) -> pa.Table:
    with _open(path, storage) as file:
        table = pa_json.read_json(
            file,
            read_options=pa_json.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=pa_json.ParseOptions(explicit_schema=schema),
        )
    if not table.num_columns:
        raise BuildError(f"the table {path} is empty: it has no rows")
    return table


def _dates_as_text(schema: pa.Schema) -> pa.Schema:
    """Return the schema with timestamps as text: JSON has no dates, but Arrow guesses them."""

    def as_text(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_list(kind):
            return pa.list_(as_text(kind.value_type))
        return pa.string() if pa.types.is_timestamp(kind) else kind

    return pa.schema([(field.name, as_text(field.type)) for field in schema])


def _open_csv(
    path: str,
    kind: str,
    types: dict[str, pa.DataType],
    bad_lines: list[Reject],
    storage: StorageOptions,
) -> pa_csv.CSVStreamingReader:
    def skip(line: pa_csv.InvalidRow) -> str:
        found = (
            f"a line of {path} has {line.actual_columns} fields "
            f"where {line.expected_columns} are expected: "
        )
        bad_lines.append(Reject("", path, RejectReason.BAD_VALUE, found + repr(line.text[:200])))
        return "skip"

    return pa_csv.open_csv(
        _open(path, storage),
        read_options=pa_csv.ReadOptions(block_size=BLOCK_BYTES),
        parse_options=pa_csv.ParseOptions(
            delimiter="\t" if kind == "tsv" else ",",
            newlines_in_values=True,
            invalid_row_handler=skip,
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types=types,
            strings_can_be_null=False,
            null_values=[""],
            true_values=_TRUE,
            false_values=_FALSE,
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


# Column -> types that can hold every value in a file, narrowest first; None without values.
_Possible = dict[str, Sequence[pa.DataType] | None]


def _unify_csv(paths: Sequence[str], found: Sequence[tuple[list[str], _Possible]]) -> pa.Schema:
    """Return each column's narrowest type: int64, float64, bool or string; empty is null."""
    names = found[0][0]
    for path, (others, _) in zip(paths[1:], found[1:], strict=True):
        _check_same_columns(paths[0], names, path, others)
    chosen = []
    for name in names:
        possible = [kinds for _, by_name in found if (kinds := by_name[name]) is not None]
        held = [
            kind
            for kind in _NARROWEST_FIRST
            if possible and all(kind in kinds for kinds in possible)
        ]
        chosen.append((name, held[0] if held else pa.string()))
    return pa.schema(chosen)


def _look_through_csv(path: str, kind: str, storage: StorageOptions) -> tuple[list[str], _Possible]:
    """Return a file's column names in order, and the types that can hold their values."""
    with _table_faults(path):
        with _open_csv(path, kind, {}, [], storage) as reader:
            names = list(reader.schema.names)
        possible: _Possible = dict.fromkeys(names)
        last = ""
        with _open_csv(path, kind, dict.fromkeys(names, pa.string()), [], storage) as reader:
            for batch in reader:
                for name, column in zip(names, batch.columns, strict=True):
                    values = column.filter(pc.not_equal(column, ""))
                    if len(values):
                        known = possible[name]
                        possible[name] = [
                            kind
                            for kind in (_NARROWEST_FIRST if known is None else known)
                            if _holds(kind, values)
                        ]
                if batch.num_rows and batch.num_columns:
                    last = batch.columns[-1][-1].as_py()
        _check_last_quote(path, last, storage)
    return names, possible


def _check_last_quote(path: str, last: str, storage: StorageOptions) -> None:
    """Check for an unclosed quote, which takes all later lines into one value, silently in Arrow.

    Args:
        path: The file.
        last: Its last value; only one with a line break can have swallowed lines.
        storage: Options of its store.

    Raises:
        BuildError: The file does not end with the closing quote.
    """
    if "\n" not in last and "\r" not in last:
        return
    end = b""
    with _open(path, storage) as file:
        while block := file.read(BLOCK_BYTES):
            end = (end + block).rstrip()[-1:]
    if end != b'"':
        raise BuildError(
            f"the table {path} has a quote before {last[:60]!r} that is never closed, "
            "so all lines after it are one value: close it"
        )


def _holds(kind: pa.DataType, values: pa.Array) -> bool:
    """Return whether every text is a value of that type; integers must convert back unchanged."""
    if pa.types.is_boolean(kind):
        return bool(pc.all(pc.is_in(values, value_set=pa.array(_TRUE + _FALSE))).as_py())
    try:
        numbers = values.cast(kind)
    except pa.ArrowInvalid:
        return False
    if pa.types.is_integer(kind):
        return bool(numbers.cast(pa.string()).equals(values))
    return not pc.any(pc.match_substring_regex(values, _NO_FLOAT)).as_py()


def _read_csv(
    path: str, kind: str, schema: pa.Schema, storage: StorageOptions
) -> Iterator[pa.RecordBatch | Reject]:
    bad_lines: list[Reject] = []
    with _open_csv(
        path, kind, dict(zip(schema.names, schema.types, strict=True)), bad_lines, storage
    ) as reader:
        for block in reader:
            for start in range(0, block.num_rows, BATCH_ROWS):
                yield block.slice(start, BATCH_ROWS)
    yield from bad_lines
