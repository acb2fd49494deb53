"""Recognize tables, and find their files, formats and columns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from shardwright.errors import UsageError
from shardwright.storage import NO_OPTIONS, StorageOptions, files_of, parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.listing import first_page
from transforms.inputs.detection import has_wildcard
from transforms.inputs.file_rules import is_litter
from transforms.inputs.input_files import find_files
from transforms.inputs.source import SourceRequest
from transforms.inputs.tables.table_files import TABLE_EXTENSIONS, table_format
from transforms.inputs.tables.table_layout import TableLayout
from transforms.inputs.tables.table_roles import check_roles, find_roles, roles_as_text
from transforms.inputs.tables.table_schemas import read_table_schema

_ENDINGS = ", ".join(sorted(TABLE_EXTENSIONS))
_PACKED = 4  # Parquet and gzip shrink tables of paths to about a quarter


def is_table(request: SourceRequest) -> bool:
    """Return whether INPUT is made of tables; a folder must hold nothing else."""
    uri = request.uri
    if has_wildcard(uri):
        return table_format(uri) is not None or bool(find_files(request, _is_table_name))
    if not request.is_remote:
        return os.path.isfile(uri) or _holds_tables(files_of(uri, request.storage).names_in(uri))
    if table_format(uri) and request.is_file:
        return True
    store, prefix = parse_address(uri)
    client = client_for(store, request.storage)
    if client.scheme in ("http", "https"):  # a web server does not list its files
        return False
    return _holds_tables([row.key[len(prefix) :].lstrip("/") for row in first_page(client, prefix)])


def _holds_tables(names: Sequence[str]) -> bool:
    """Return whether a folder's files are one table; names with a leading "_" are markers."""
    kinds = {
        table_format(name) for name in names if not is_litter(name) and not name.startswith("_")
    }
    return len(kinds) == 1 and None not in kinds and not any("/" in name for name in names)


def _is_table_name(name: str) -> bool:
    return table_format(name) is not None and not name.startswith("_")


def open_table(request: SourceRequest, *, needs_image: bool) -> TableLayout:
    """Return the layout of INPUT's table; arguments and errors as for `detect_table`."""
    if not has_wildcard(request.uri) and (
        request.is_file if request.is_remote else os.path.isfile(request.uri)
    ):
        source = detect_table(
            request.uri,
            request.columns,
            argument=request.argument,
            storage=request.storage,
            needs_image=needs_image,
        )
        return replace(source, image_root=request.image_root)
    found = find_files(request, _is_table_name)
    if not found:
        raise UsageError(
            f"{request.argument} {request.uri} holds no table; a table's name ends in {_ENDINGS}"
        )
    kinds = {table_format(file.uri) for file in found}
    if len(kinds) > 1:
        raise UsageError(
            f"{request.argument} {request.uri} matches tables of several formats "
            f"({', '.join(sorted(map(str, kinds)))}): choose one, such as *.parquet"
        )
    source = _detect(
        [file.uri for file in found],
        request.columns,
        argument=request.argument,
        storage=request.storage,
        needs_image=needs_image,
    )
    folder = found[0].uri.removesuffix(found[0].name).rstrip("/") or "/"
    return replace(
        source, path=folder, files=tuple(file.name for file in found), image_root=request.image_root
    )


def detect_table(
    path: str,
    columns: Mapping[str, str | None],
    *,
    argument: str = "INPUT",
    storage: StorageOptions = NO_OPTIONS,
    needs_image: bool = True,
) -> TableLayout:
    """Read a table's columns and types, and assign columns to roles.

    Args:
        columns: Role -> column given by an option, or None to look for a usual name.
        argument: The argument's name in messages.
        storage: Options of its store.
        needs_image: Require a column of image paths; if False, one of ids is enough.

    Raises:
        UsageError: A given column is missing, or no column can be the image's.
        BuildError: The file cannot be read as a table, or a column's type does not suit its role.
    """
    return _detect([path], columns, argument=argument, storage=storage, needs_image=needs_image)


def detect_tables(
    root: str,
    names: Sequence[str],
    columns: Mapping[str, str | None],
    *,
    argument: str = "INPUT",
    storage: StorageOptions = NO_OPTIONS,
) -> TableLayout:
    """Do the same as `detect_table` for several files below a folder that form one table."""
    paths = [f"{root.rstrip('/')}/{name}" for name in names]
    return replace(
        _detect(paths, columns, argument=argument, storage=storage, needs_image=True),
        path=root,
        files=tuple(names),
    )


def _detect(
    paths: Sequence[str],
    columns: Mapping[str, str | None],
    *,
    argument: str,
    storage: StorageOptions,
    needs_image: bool,
) -> TableLayout:
    """Return a source of the first file, with the columns and types of all."""
    kind = table_format(paths[0])
    if kind is None:
        hint = (
            "; a .json must be COCO's, with a list of `images`"
            if paths[0].lower().endswith(".json")
            else ""
        )
        raise UsageError(
            f"{argument} {paths[0]} is a file without a table's extension ({_ENDINGS}); "
            f"give a folder or a table{hint}"
        )
    schema = read_table_schema(paths, kind, storage)
    roles = find_roles(paths[0], schema, columns, needs_image=needs_image)
    if kind in ("csv", "tsv"):
        schema = roles_as_text(schema, roles)
    check_roles(schema, roles)
    return TableLayout(
        path=paths[0],
        format=kind,
        columns=schema,
        image=roles["image"] or "",  # never None here: `find_roles` raises
        label=roles["label"],
        id=roles["id"],
        split=roles["split"],
        group=roles["group"],
        size=roles["size"],
        storage=storage,
        num_bytes=sum(_num_bytes(path, kind, storage) for path in paths),
    )


def _num_bytes(path: str, kind: str, storage: StorageOptions) -> int:
    """Return the approximate bytes of a table's rows in memory, where compressed files grow."""
    packed = kind == "parquet" or path.lower().endswith(".gz")
    return (files_of(path, storage).num_bytes_of(path) or 0) * (_PACKED if packed else 1)
