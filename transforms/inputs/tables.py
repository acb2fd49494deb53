"""Tables that name images: which file formats, and which column has which role."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.schema import Feature
from shardwright.storage import NO_OPTIONS, StorageOptions
from transforms.inputs.source import InputSource, SourceFormat, SourceRequest
from transforms.inputs.table_columns import check_sizes, check_text, extra_feature
from transforms.inputs.table_files import TABLE_EXTENSIONS, read_table_schema, table_format
from transforms.inputs.table_references import list_table, reference_schema_of
from transforms.rejects import Reject

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
_TEXT_ROLES = ("image", "label", "id", "split", "group")


@dataclass(frozen=True, slots=True)
class TableSource(InputSource):
    """A table to read.

    Attributes:
        path: Its absolute path, or a store's address.
        format: "csv", "tsv", "jsonl" or "parquet".
        columns: Every column's type.
        image_root: Where relative image paths start; None for the table's own folder.
        image, label, id, split, group, size: The columns with a role; only `image` must be there.
        storage: Options of the store that it is in, and that its images are in.
        names_files: Its paths are those of files below its folder; if not, they are ids of another input.
    """

    path: str
    format: str
    columns: pa.Schema
    image: str
    label: str | None = None
    id: str | None = None
    split: str | None = None
    group: str | None = None
    size: str | None = None
    storage: StorageOptions = NO_OPTIONS
    names_files: bool = True
    image_root: str | None = None

    @property
    def root(self) -> str:
        """The folder that relative image paths start from."""
        return self.image_root or os.path.dirname(self.path)

    @property
    def extra_columns(self) -> list[str]:
        """The columns with no role: they become features."""
        roles = {self.image, self.label, self.id, self.split, self.group, self.size}
        return [name for name in self.columns.names if name not in roles]

    @property
    def has_integer_labels(self) -> bool:
        return self.label is not None and pa.types.is_integer(self.columns.field(self.label).type)

    @property
    def schema(self) -> pa.Schema:
        return reference_schema_of(self)

    @property
    def features(self) -> tuple[Feature, ...]:
        return tuple(extra_feature(name, self.columns.field(name).type) for name in self.extra_columns)

    @property
    def states_splits(self) -> bool:
        return self.split is not None

    def describe(self) -> str:
        names = ("image", "label", "id", "split", "group", "size")
        roles = [f"{role}={getattr(self, role)!r}" for role in names if getattr(self, role)]
        extras = f"; features from {', '.join(self.extra_columns)}" if self.extra_columns else ""
        return f"a {self.format} table at {self.path}, columns {', '.join(roles)}{extras}"

    def list_part(self, part: str) -> Iterator[pa.RecordBatch | Reject]:
        del part  # there is one
        yield from list_table(self)

    def of_labels(self) -> TableSource:
        """The same table as a `--labels` table: its paths are ids, and nobody looks whether files are there."""
        return replace(self, names_files=False)


class TableFormat(SourceFormat):
    """A file whose name ends as a table's does."""

    name: ClassVar[str] = "table"
    summary: ClassVar[str] = "a .csv, .tsv, .jsonl or .parquet table that names images"
    rank: ClassVar[int] = 30

    def open(self, request: SourceRequest, *, forced: bool) -> TableSource | None:
        if not forced and (os.path.isdir(request.uri) or (request.is_remote and not (table_format(request.uri) and request.is_file))):
            return None
        source = detect_table(request.uri, request.columns, argument=request.argument, storage=request.storage)
        return replace(source, image_root=request.image_root)


def detect_table(
    path: str, columns: Mapping[str, str | None], *, argument: str = "INPUT", storage: StorageOptions = NO_OPTIONS
) -> TableSource:
    """Learn a table's columns and types, and which column has which role.

    Args:
        columns: role -> column given by an option, or None to look for a usual name.
        argument: What messages call it.
        storage: Options of the store that it is in.

    Raises:
        UsageError: A named column is not there, or none can be the image's.
        BuildError: The file cannot be read as a table, or a column's type does not suit its role.
    """
    kind = table_format(path)
    if kind is None:
        known = ", ".join(sorted(TABLE_EXTENSIONS))
        raise UsageError(f"{argument} {path} is a file, and its name is not a table's ({known}); give a folder or a table")
    schema = read_table_schema(path, kind, storage)
    _check_names(path, schema)
    source = replace(_with_roles(path, kind, schema, columns), storage=storage)
    if kind in ("csv", "tsv"):
        source = replace(source, columns=_roles_as_text(source))
    _check_types(source)
    return source


def _with_roles(path: str, kind: str, schema: pa.Schema, columns: Mapping[str, str | None]) -> TableSource:
    roles = {role: _role_column(path, schema, role, given) for role, given in columns.items()}
    image = roles.get("image")
    if image is None:
        raise UsageError(f"{path} has the columns {_listed(schema)}: name the one with the image paths by --image-column")
    return TableSource(
        path=path,
        format=kind,
        columns=schema,
        image=image,
        label=roles.get("label"),
        id=roles.get("id"),
        split=roles.get("split"),
        group=roles.get("group"),
        size=roles.get("size"),
    )


def _check_names(path: str, schema: pa.Schema) -> None:
    doubled = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if doubled:
        raise UsageError(f"{path} has two columns called {doubled[0]!r}: rename one")
    if "" in schema.names:
        raise UsageError(
            f"column {schema.names.index('') + 1} of {path} has no name: name it, or leave it out (pandas: to_csv(index=False))"
        )


def _role_column(path: str, schema: pa.Schema, role: str, given: str | None) -> str | None:
    if given is not None:
        if given not in schema.names:
            raise UsageError(f"--{role}-column {given!r} is not in {path}, which has the columns {_listed(schema)}")
        return given
    by_lower = {name.strip().lower(): name for name in reversed(schema.names)}
    return next((by_lower[name] for name in ROLE_COLUMNS[role] if name in by_lower), None)


def _listed(schema: pa.Schema) -> str:
    return ", ".join(map(repr, schema.names))


def _roles_as_text(source: TableSource) -> pa.Schema:
    """A CSV has no types: a class "1.5" or an id "true" is text. Whole numbers stay, so that labels sort by value."""
    text = {getattr(source, role) for role in _TEXT_ROLES}
    return pa.schema(
        [
            (field.name, pa.string() if field.name in text and not pa.types.is_integer(field.type) else field.type)
            for field in source.columns
        ]
    )


def _check_types(source: TableSource) -> None:
    for role in _TEXT_ROLES:
        column = getattr(source, role)
        if column is not None:
            check_text(source.columns.field(column).type, column)
    if source.size is not None:
        check_sizes(source.columns.field(source.size).type, source.size)
