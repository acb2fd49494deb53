"""Reading a CSV, TSV, JSONL or Parquet table that names images, as raw Arrow batches.

Column types are the same for every row: Parquet states them, JSON lines are read as a whole, and a CSV is looked through once
(as text, in bounded memory) before it is read. Text stays as it is written: a class called "NA" or "None" is a class.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from shardwright.errors import BuildError, UsageError
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
# Columns taken for a role when no option names one; the first that is there, in any case.
ROLE_COLUMNS = {
    "image": (
        "image", "image_path", "image_file", "file_name", "filename", "filepath", "file_path", "path", "file", "uri", "img",
    ),
    "label": ("label", "class", "class_name", "category", "target"),
    "id": ("id", "image_id"),
    "split": ("split", "subset", "partition"),
    "group": (),
    "size": (),
}  # fmt: skip
_BLOCK_BYTES = 8 << 20
_TYPE_LADDER = (pa.int64(), pa.float64(), pa.bool_(), pa.string())


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table to read.

    Attributes:
        path: Its absolute path.
        format: "csv", "tsv", "jsonl" or "parquet".
        schema: Every column's type.
        image, label, id, split, group, size: The columns with a role; only `image` must be there.
        names_files: Its paths are those of files below its folder; if not, they are ids of another input.
    """

    path: str
    format: str
    schema: pa.Schema
    image: str
    label: str | None = None
    id: str | None = None
    split: str | None = None
    group: str | None = None
    size: str | None = None
    names_files: bool = True

    @property
    def root(self) -> str:
        """The folder that relative image paths start from."""
        return os.path.dirname(self.path)

    @property
    def extra_columns(self) -> list[str]:
        """The columns with no role: they become features."""
        roles = {self.image, self.label, self.id, self.split, self.group, self.size}
        return [name for name in self.schema.names if name not in roles]

    @property
    def has_integer_labels(self) -> bool:
        return self.label is not None and pa.types.is_integer(self.schema.field(self.label).type)

    def of_labels(self) -> TableSource:
        """The same table as a `--labels` table: its paths are ids, and nobody looks whether files are there."""
        return replace(self, names_files=False)


def table_format(path: str) -> str | None:
    """The format a table's file name stands for, or None."""
    return TABLE_EXTENSIONS.get(os.path.splitext(path)[1].lower())


def detect_table(path: str, columns: dict[str, str | None]) -> TableSource:
    """Learn a table's columns and types, and which column has which role.

    Args:
        columns: role -> column given by an option, or None to look for a usual name.

    Raises:
        UsageError: A named column is not there, or none can be the image's.
        BuildError: The file cannot be read as a table.
    """
    kind = table_format(path)
    if kind is None:
        known = ", ".join(sorted(TABLE_EXTENSIONS))
        raise UsageError(f"INPUT {path} is a file, and its name is not a table's ({known}); give a folder or a table")
    schema = read_table_schema(path, kind)
    doubled = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if doubled:
        raise UsageError(f"{path} has two columns called {doubled[0]!r}: rename one")
    roles = {role: _role_column(path, schema, role, given) for role, given in columns.items()}
    image = roles.pop("image")
    if image is None:
        raise UsageError(f"{path} has the columns {_listed(schema)}: name the one with the image paths by --image-column")
    return TableSource(path=path, format=kind, schema=schema, image=image, **roles)


def _role_column(path: str, schema: pa.Schema, role: str, given: str | None) -> str | None:
    if given is not None:
        if given not in schema.names:
            raise UsageError(f"--{role}-column {given!r} is not in {path}, which has the columns {_listed(schema)}")
        return given
    by_lower = {name.lower(): name for name in reversed(schema.names)}
    return next((by_lower[name] for name in ROLE_COLUMNS[role] if name in by_lower), None)


def _listed(schema: pa.Schema) -> str:
    return ", ".join(map(repr, schema.names))


def read_table_schema(path: str, kind: str) -> pa.Schema:
    """The columns and types of a table.

    Raises:
        BuildError: It cannot be read; the message says where and why.
    """
    try:
        if kind == "parquet":
            return pq.read_schema(path).remove_metadata()
        if kind == "jsonl":
            return _read_json_lines(path).schema
        return _infer_csv_schema(path, kind)
    except (pa.ArrowException, OSError) as error:
        raise BuildError(f"cannot read the table {path}: {error}") from error


def read_table(source: TableSource) -> Iterator[pa.RecordBatch | Reject]:
    """The table's rows, in order, in batches of up to `BATCH_ROWS`; a line with a wrong number of fields is a reject.

    Raises:
        BuildError: It cannot be read to its end.
    """
    try:
        if source.format == "parquet":
            with pq.ParquetFile(source.path) as file:
                yield from file.iter_batches(batch_size=BATCH_ROWS)
        elif source.format == "jsonl":
            yield from _read_json_lines(source.path).to_batches(max_chunksize=BATCH_ROWS)
        else:
            yield from _read_csv(source.path, source.format, source.schema)
    except (pa.ArrowException, OSError) as error:
        raise BuildError(f"cannot read the table {source.path}: {error}") from error


def _read_json_lines(path: str) -> pa.Table:
    if not os.path.getsize(path):
        raise BuildError(f"the table {path} is empty")
    return pa_json.read_json(path, read_options=pa_json.ReadOptions(block_size=_BLOCK_BYTES))


def _open_csv(
    path: str, kind: str, types: dict[str, pa.DataType], bad_lines: list[Reject]
) -> pa_csv.CSVStreamingReader:
    def skip(line: pa_csv.InvalidRow) -> str:
        found = f"a line of {path} has {line.actual_columns} fields where {line.expected_columns} are expected: "
        bad_lines.append(Reject("", path, RejectReason.BAD_VALUE, found + repr(line.text[:200])))
        return "skip"

    if not os.path.getsize(path):
        raise BuildError(f"the table {path} is empty: its first line must name the columns")
    return pa_csv.open_csv(
        path,
        read_options=pa_csv.ReadOptions(block_size=_BLOCK_BYTES),
        parse_options=pa_csv.ParseOptions(
            delimiter="\t" if kind == "tsv" else ",", newlines_in_values=True, invalid_row_handler=skip
        ),
        convert_options=pa_csv.ConvertOptions(
            column_types=types, strings_can_be_null=False, null_values=[""], true_values=["true", "True", "TRUE"],
            false_values=["false", "False", "FALSE"],
        ),
    )  # fmt: skip


def _csv_header(path: str, kind: str) -> list[str]:
    with _open_csv(path, kind, {}, []) as reader:
        return list(reader.schema.names)


def _infer_csv_schema(path: str, kind: str) -> pa.Schema:
    """The narrowest of int64, float64, bool and string that holds every value of a column; empty fields are nulls."""
    names = _csv_header(path, kind)
    steps = dict.fromkeys(names, 0)
    with _open_csv(path, kind, dict.fromkeys(names, pa.string()), []) as reader:
        for batch in reader:
            for name, column in zip(names, batch.columns, strict=True):
                values = column.filter(pc.not_equal(column, ""))
                while not _casts(values, _TYPE_LADDER[steps[name]]):
                    steps[name] += 1
    return pa.schema([(name, _TYPE_LADDER[steps[name]]) for name in names])


def _casts(values: pa.Array, kind: pa.DataType) -> bool:
    """Whether every text is that type's and comes back from it unchanged where that matters ("007" is no integer)."""
    if pa.types.is_string(kind):
        return True
    if pa.types.is_boolean(kind):
        return bool(pc.all(pc.is_in(pc.utf8_lower(values), value_set=pa.array(["true", "false"]))).as_py() is not False)
    try:
        numbers = values.cast(kind)
    except pa.ArrowInvalid:
        return False
    return not pa.types.is_integer(kind) or numbers.cast(pa.string()).equals(values)


def _read_csv(path: str, kind: str, schema: pa.Schema) -> Iterator[pa.RecordBatch | Reject]:
    bad_lines: list[Reject] = []
    with _open_csv(path, kind, dict(zip(schema.names, schema.types, strict=True)), bad_lines) as reader:
        for block in reader:
            for start in range(0, block.num_rows, BATCH_ROWS):
                yield block.slice(start, BATCH_ROWS)
    yield from bad_lines
