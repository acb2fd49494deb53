"""What INPUT is, found by looking at names and headers, and its listing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.storage import NO_OPTIONS, StorageOptions, absolute, files_of, is_remote
from transforms.folders import FileRow, FolderSource, detect_folder, list_folder
from transforms.object_folders import detect_prefix, list_prefix
from transforms.references import BATCH_ROWS, REFERENCE_SCHEMA
from transforms.rejects import Reject
from transforms.table_files import table_format
from transforms.table_references import list_table, reference_schema_of
from transforms.tables import TableSource, detect_table


def detect_source(
    uri: str, columns: Mapping[str, str | None], *, argument: str = "INPUT", storage: StorageOptions = NO_OPTIONS
) -> FolderSource | TableSource:
    """What INPUT is: a folder, or a table naming images.

    Args:
        uri: The INPUT argument.
        columns: role -> column named by an option, or None.
        argument: What messages call it.
        storage: Options of the store that it is in.

    Raises:
        UsageError: There is no such place, it is neither, or a column option does not fit it.
        BuildError: A table that cannot be read.
        StorageError: A store that cannot be asked.
    """
    path = absolute(uri)
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the path of {argument} {path!r} is not UTF-8: rename its folder, or link to it") from error
    if _is_table(path, storage, f"{argument} {uri}"):
        return detect_table(path, columns, argument=argument, storage=storage)
    named = [f"--{role}-column" for role, column in columns.items() if column is not None]
    if named:
        raise UsageError(f"{named[0]} is for a table, and {argument} {uri} is a folder; name the table itself as {argument}")
    return detect_prefix(path, storage) if is_remote(path) else detect_folder(path)


def _is_table(path: str, storage: StorageOptions, named: str) -> bool:
    """Whether it is a file, as opposed to a folder; messages call it `named`.

    Raises:
        UsageError: It is neither.
    """
    if is_remote(path):  # of a prefix nobody knows before it is listed
        return table_format(path) is not None and files_of(path, storage).is_file(path)
    if os.path.isdir(path):
        return False
    if not os.path.exists(path):
        raise UsageError(f"{named} does not exist")
    if not os.path.isfile(path):
        raise UsageError(f"{named} is neither a folder nor a file")
    return True


def source_schema(source: FolderSource | TableSource) -> pa.Schema:
    """The columns of the reference batches the source gives."""
    return reference_schema_of(source) if isinstance(source, TableSource) else REFERENCE_SCHEMA


def states_splits(source: FolderSource | TableSource) -> bool:
    """Whether the source itself says which split an image is in."""
    return bool(source.split_folders) if isinstance(source, FolderSource) else source.split is not None


def describe_source(source: FolderSource | TableSource) -> str:
    """One line for the log: what INPUT was taken for."""
    if isinstance(source, FolderSource):
        kind = f"split folders ({', '.join(source.split_folders)})" if source.split_folders else "a folder"
        return f"{kind} at {source.root}"
    names = ("image", "label", "id", "split", "group", "size")
    roles = [f"{role}={getattr(source, role)!r}" for role in names if getattr(source, role)]
    extras = f"; features from {', '.join(source.extra_columns)}" if source.extra_columns else ""
    return f"a {source.format} table at {source.path}, columns {', '.join(roles)}{extras}"


def list_source(source: FolderSource | TableSource) -> Iterator[pa.RecordBatch | Reject]:
    """All references of a source, in batches of up to `BATCH_ROWS`, and the rejects among them."""
    if isinstance(source, TableSource):
        yield from list_table(source)
        return
    pending: list[FileRow] = []
    for found in list_prefix(source) if is_remote(source.root) else list_folder(source):
        if isinstance(found, Reject):
            yield found
            continue
        pending.append(found)
        if len(pending) == BATCH_ROWS:
            yield _file_references(pending)
            pending = []
    if pending:
        yield _file_references(pending)


def _file_references(rows: Sequence[FileRow]) -> pa.RecordBatch:
    columns: dict[str, Sequence[object]] = dict(zip(FileRow._fields, zip(*rows, strict=True), strict=True))
    columns |= {"row": [0] * len(rows), "group": [None] * len(rows)}
    return pa.RecordBatch.from_pydict({field.name: columns[field.name] for field in REFERENCE_SCHEMA}, schema=REFERENCE_SCHEMA)
