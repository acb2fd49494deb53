"""Recognize tables, and find their files, formats and columns."""

from __future__ import annotations

import os
from collections.abc import Sequence

from shardwright.errors import UsageError
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.input_files import checked, find_files
from shardwright.transforms.inputs.source import SourceRequest
from shardwright.transforms.inputs.tables.table_files import TABLE_EXTENSIONS, table_format
from shardwright.transforms.inputs.tables.table_layout import TableFacts, TableLayout
from shardwright.transforms.inputs.tables.table_roles import (
    TableOf,
    check_roles,
    find_roles,
    roles_as_text,
)
from shardwright.transforms.inputs.tables.table_schemas import read_table_schema
from shardwright.transforms.inputs.wildcards import has_wildcard

_ENDINGS = ", ".join(sorted(TABLE_EXTENSIONS))
_PACKED = 4  # Parquet and gzip shrink tables of paths to about a quarter


def look(request: SourceRequest) -> TableFacts | None:
    """Return the facts about a table; None if INPUT is something else. Raises as `open_table`."""
    if not request.forced and not is_table(request):
        return None
    rows = TableOf.IMAGES if request.image else TableOf.RECORDS
    return open_table(request, rows).facts


def open_label_table(
    request: SourceRequest, *, key: str, root: str | None, folders: tuple[str, ...] = ()
) -> TableFacts:
    """Return the facts about a `--labels` table; without image paths, it is joined by its ids.

    Args:
        request: The request for the table.
        key: "id", "path" or "stem".
        root: The folder of the other input's paths; None for the table's own.
        folders: As for `TableLayout.of_labels`.

    Raises:
        UsageError: It does not exist, is not a table, or lacks a column.
        BuildError: It cannot be read.
    """
    request = checked(request)
    if not is_table(request) and not has_wildcard(request.uri) and not request.is_file:
        raise UsageError(
            f"{request.argument} {request.uri} is a folder; "
            "give a .csv, .tsv, .jsonl or .parquet table"
        )
    return open_table(request, TableOf.LABELS).of_labels(key, root, folders).facts


def is_table(request: SourceRequest) -> bool:
    """Return whether INPUT is made of tables; a folder must hold nothing else."""
    uri = request.uri
    if has_wildcard(uri):
        return table_format(uri) is not None or bool(find_files(request, _is_table_name))
    if not request.is_remote and os.path.isfile(uri):
        return True
    if request.is_remote and table_format(uri) and request.is_file:
        return True
    found = request.listings.look_in(uri)
    return _holds_tables([*found.folders, *found.files, *found.others])


def _holds_tables(names: Sequence[str]) -> bool:
    """Return whether a folder's files are one table; names with a leading "_" are markers."""
    kinds = {table_format(name) for name in names if not name.startswith("_")}
    return len(kinds) == 1 and None not in kinds


def _is_table_name(name: str) -> bool:
    return table_format(name) is not None and not name.startswith("_")


def open_table(request: SourceRequest, rows: TableOf) -> TableLayout:
    """Return the layout of INPUT's table.

    Args:
        request: The request for INPUT.
        rows: The contents of its rows.

    Raises:
        UsageError: There is no table, there are several formats, or as for `table_of`.
        BuildError: As for `table_of`.
    """
    uri = request.uri
    if not has_wildcard(uri) and (request.is_file if request.is_remote else os.path.isfile(uri)):
        return table_of(request, uri, rows=rows)
    found = find_files(request, _is_table_name)
    if not found:
        raise UsageError(
            f"{request.argument} {uri} holds no table; a table's name ends in {_ENDINGS}"
        )
    kinds = {table_format(file.uri) for file in found}
    if len(kinds) > 1:
        raise UsageError(
            f"{request.argument} {uri} matches tables of several formats "
            f"({', '.join(sorted(map(str, kinds)))}): choose one, such as *.parquet"
        )
    folder = found[0].uri.removesuffix(found[0].name).rstrip("/") or "/"
    return table_of(request, folder, [file.name for file in found], rows=rows)


def table_of(
    request: SourceRequest,
    path: str,
    files: Sequence[str] = (),
    *,
    rows: TableOf = TableOf.IMAGES,
) -> TableLayout:
    """Read a table's columns and types, and assign columns to roles.

    Args:
        request: The request for INPUT.
        path: The table's file, or the common folder of several.
        files: The names of several files below `path`; () for a table in one file.
        rows: The contents of its rows.

    Raises:
        UsageError: A given column is missing, or no column can be the image's.
        BuildError: A file cannot be read as a table, or a column's type does not suit its role.
    """
    paths = [f"{path.rstrip('/')}/{name}" for name in files] or [path]
    kind = _format_of(request, paths[0])
    schema = read_table_schema(paths, kind, request.storage)
    is_text = kind in ("csv", "tsv")  # in which every type can have a role
    roles = find_roles(paths[0], schema, request.columns, rows, () if is_text else request.kinds)
    if is_text:
        schema = roles_as_text(schema, roles)
    check_roles(schema, roles)
    return TableLayout(
        path,
        kind,
        schema,
        image=roles["image"],
        label=roles["label"],
        id=roles["id"],
        split=roles["split"],
        group=roles["group"],
        size=roles["size"],
        storage=request.storage,
        image_root=request.image_root,
        may_lack_images=request.may_lack_images,
        files=tuple(files),
        num_bytes=sum(_num_bytes(path, kind, request.storage) for path in paths),
    )


def _format_of(request: SourceRequest, path: str) -> str:
    kind = table_format(path)
    if kind is not None:
        return kind
    is_json = path.lower().endswith(".json")
    hint = "; a .json must be COCO's, with a list of `images`" if is_json else ""
    raise UsageError(
        f"{request.argument} {path} is a file without a table's extension ({_ENDINGS}); "
        f"give a folder or a table{hint}"
    )


def _num_bytes(path: str, kind: str, storage: StorageOptions) -> int:
    """Return the approximate bytes of a table's rows in memory, where compressed files grow."""
    packed = kind == "parquet" or path.lower().endswith(".gz")
    return (files_of(path, storage).num_bytes_of(path) or 0) * (_PACKED if packed else 1)
