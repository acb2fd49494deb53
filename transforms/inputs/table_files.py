"""Reading CSV, TSV, JSON lines and Parquet files as Arrow batches whose types are the same from the first row to the last.

Parquet states its types, JSON lines are read as a whole, and a CSV is looked through once (as text, in bounded memory)
before it is read. Text stays as it is written: "007" is no number, "NA" no missing value, and a date no timestamp.
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
BLOCK_BYTES = 8 << 20  # what is parsed at a time; a line must fit in it
_TRUE, _FALSE = ["true", "True", "TRUE"], ["false", "False", "FALSE"]
# Whole numbers that a float would change: leading zeros, a plus sign, or more digits than a double holds.
_NO_FLOAT = r"^[+-]?0[0-9]|^[+]|^-?[0-9]{16,}$"
_NARROWEST_FIRST = (pa.int64(), pa.float64(), pa.bool_())


def table_format(path: str) -> str | None:
    """The format a table's file name stands for, or None."""
    return TABLE_EXTENSIONS.get(os.path.splitext(path)[1].lower())


def read_table_schema(path: str, kind: str, storage: StorageOptions = NO_OPTIONS) -> pa.Schema:
    """The columns and types of a table.

    Raises:
        BuildError: It cannot be read; the message says where and why.
    """
    with _table_faults(path):
        if kind == "parquet":
            with _open(path, storage) as file:
                return pq.read_schema(file).remove_metadata()
        if kind == "jsonl":
            return _dates_as_text(_read_json_lines(path, storage).schema)
        return _infer_csv_schema(path, kind, storage)


def read_table_file(path: str, kind: str, schema: pa.Schema, storage: StorageOptions = NO_OPTIONS) -> Iterator[pa.RecordBatch | Reject]:
    """The table's rows, in order, in batches of up to `BATCH_ROWS`; a line with a wrong number of fields is a reject.

    Args:
        schema: The columns and types to read text formats with.

    Raises:
        BuildError: It cannot be read to its end.
    """
    with _table_faults(path):
        for part in _read_parts(path, kind, schema, storage):
            if isinstance(part, pa.RecordBatch):
                part.validate(full=True)  # nobody else looks whether text is UTF-8
            yield part


def _open(path: str, storage: StorageOptions) -> pa.NativeFile:
    return files_of(path, storage).open_input(path)


def _read_parts(path: str, kind: str, schema: pa.Schema, storage: StorageOptions) -> Iterator[pa.RecordBatch | Reject]:
    if kind == "parquet":
        with _open(path, storage) as source, pq.ParquetFile(source) as file:
            yield from file.iter_batches(batch_size=BATCH_ROWS)
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


def _read_json_lines(path: str, storage: StorageOptions, schema: pa.Schema | None = None) -> pa.Table:
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
    """JSON has no dates: what Arrow takes for one is a text that looks like it."""

    def as_text(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_list(kind):
            return pa.list_(as_text(kind.value_type))
        return pa.string() if pa.types.is_timestamp(kind) else kind

    return pa.schema([(field.name, as_text(field.type)) for field in schema])


def _open_csv(
    path: str, kind: str, types: dict[str, pa.DataType], bad_lines: list[Reject], storage: StorageOptions
) -> pa_csv.CSVStreamingReader:
    def skip(line: pa_csv.InvalidRow) -> str:
        found = f"a line of {path} has {line.actual_columns} fields where {line.expected_columns} are expected: "
        bad_lines.append(Reject("", path, RejectReason.BAD_VALUE, found + repr(line.text[:200])))
        return "skip"

    return pa_csv.open_csv(
        _open(path, storage),
        read_options=pa_csv.ReadOptions(block_size=BLOCK_BYTES),
        parse_options=pa_csv.ParseOptions(delimiter="\t" if kind == "tsv" else ",", newlines_in_values=True, invalid_row_handler=skip),
        convert_options=pa_csv.ConvertOptions(
            column_types=types, strings_can_be_null=False, null_values=[""], true_values=_TRUE, false_values=_FALSE
        ),
    )


def _infer_csv_schema(path: str, kind: str, storage: StorageOptions) -> pa.Schema:
    """The narrowest of int64, float64 and bool that holds every value of a column, else string; empty fields are nulls."""
    with _open_csv(path, kind, {}, [], storage) as reader:
        names = list(reader.schema.names)
    possible: dict[str, Sequence[pa.DataType]] = dict.fromkeys(names, _NARROWEST_FIRST)
    filled = set()
    with _open_csv(path, kind, dict.fromkeys(names, pa.string()), [], storage) as reader:
        for batch in reader:
            for name, column in zip(names, batch.columns, strict=True):
                values = column.filter(pc.not_equal(column, ""))
                if len(values):
                    filled.add(name)
                    possible[name] = [kind for kind in possible[name] if _holds(kind, values)]
    chosen = {name: possible[name][0] if name in filled and possible[name] else pa.string() for name in names}
    return pa.schema([(name, chosen[name]) for name in names])


def _holds(kind: pa.DataType, values: pa.Array) -> bool:
    """Whether every text is one of that type, and an integer comes back from it as it was written."""
    if pa.types.is_boolean(kind):
        return bool(pc.all(pc.is_in(values, value_set=pa.array(_TRUE + _FALSE))).as_py())
    try:
        numbers = values.cast(kind)
    except pa.ArrowInvalid:
        return False
    if pa.types.is_integer(kind):
        return bool(numbers.cast(pa.string()).equals(values))
    return not pc.any(pc.match_substring_regex(values, _NO_FLOAT)).as_py()


def _read_csv(path: str, kind: str, schema: pa.Schema, storage: StorageOptions) -> Iterator[pa.RecordBatch | Reject]:
    bad_lines: list[Reject] = []
    with _open_csv(path, kind, dict(zip(schema.names, schema.types, strict=True)), bad_lines, storage) as reader:
        for block in reader:
            for start in range(0, block.num_rows, BATCH_ROWS):
                yield block.slice(start, BATCH_ROWS)
    yield from bad_lines
