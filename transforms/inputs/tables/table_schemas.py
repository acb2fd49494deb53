"""Find the columns and types of a table that hold in all rows of all its files.

Parquet states its types, JSON lines are read as a whole, and a CSV is scanned once (as text, in
bounded memory) before it is read. In a table of several files, each column has the type that it
would have in one file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shardwright.errors import BuildError, UsageError
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.inputs.tables.table_files import (
    BLOCK_BYTES,
    DELIMITERS,
    FALSE_TEXTS,
    TRUE_TEXTS,
    find_delimiter,
    open_csv,
    open_file,
    read_json_lines,
    table_faults,
)

# A last line whose last value begins with a quote and does not end with one, by RFC 4180.
_OPEN_QUOTE = {
    by: re.compile(rb'(?:(?:"(?:[^"]|"")*"|[^"%b][^%b]*|)%b)*"(?:[^"]|"")*' % ((key,) * 3))
    for by, key in ((each, re.escape(each).encode()) for each in DELIMITERS)
}
MAX_COLUMNS = 16_384  # as many as spreadsheets have; each is a feature in every step of a build
_FILES_AT_A_TIME = 8  # when reading types
_TESTED_TOGETHER = 4096  # values of several columns; longer columns are tested one by one
# Numbers that a float would change: leading zeros, a plus sign, or more digits than a double holds.
_NO_FLOAT = r"^[+-]?0[0-9]|^[+]|^-?[0-9]{16,}$"
_NARROWEST_FIRST = (pa.int64(), pa.float64(), pa.bool_())


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


def check_width(path: str, names: Sequence[str]) -> None:
    """Raise `UsageError` if a table has more than `MAX_COLUMNS` columns."""
    if len(names) > MAX_COLUMNS:
        raise UsageError(
            f"{path} has {len(names):,} columns, more than the {MAX_COLUMNS:,} allowed: store the "
            "values of many columns as lists in one, or leave out columns"
        )


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


# Column -> types that can hold every value in a file, narrowest first; None without values.
_Possible = dict[str, Sequence[pa.DataType] | None]
_Column = tuple[str, pa.Array]  # name, texts


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
    with table_faults(path):
        by = find_delimiter(path, kind, storage)
        with open_csv(path, by, {}, [], storage) as reader:
            names = list(reader.schema.names)
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
    filled = [(name, values) for name, column in columns if len(values := _filled(column))]
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


def _filled(column: pa.Array) -> pa.Array:
    is_empty = pc.equal(column, "")
    return column.filter(pc.invert(is_empty)) if is_empty.true_count else column


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
    with open_file(path, storage) as file:
        while block := file.read(BLOCK_BYTES):
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
        return bool(numbers.cast(pa.string()).equals(values))
    return not pc.any(pc.match_substring_regex(values, _NO_FLOAT)).as_py()
