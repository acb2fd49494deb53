"""List files with their lengths and modification times: the state of a folder that others write."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import obstore

from shardwright.errors import MissingError, StorageError
from shardwright.storage.addresses import is_remote, parse_address
from shardwright.storage.clients import Client, client_for
from shardwright.storage.options import StorageOptions

_PAGE_KEYS = 1000


class FileStamp(NamedTuple):
    """A file's length in bytes, and when it was last modified, in seconds since 1970 (UTC).

    Stores state whole seconds for single objects, and some do in listings.
    """

    num_bytes: int
    modified: float


def stamp_of(uri: str, options: StorageOptions) -> FileStamp | None:
    """Return the stamp of one file, or None if it does not exist. Raises `StorageError`."""
    if not is_remote(uri):
        return _local_stamp(uri)
    store, key = parse_address(uri)
    client = client_for(store, options)
    try:
        found = client.call(
            uri,
            "read",
            lambda: obstore.head(client.objects, key),
            explain=lambda: obstore.get(client.objects, key, options={"range": (0, 1)}),
        )
    except MissingError:
        return None
    return _stamp(found)


def list_stamps(uri: str, options: StorageOptions, after: str = "") -> dict[str, FileStamp]:
    """Return name -> stamp of the files directly in a folder, without links; {} if it is missing.

    Args:
        uri: The folder.
        options: Storage options.
        after: Names up to this one may be missing from the result, which saves requests to a
            store: one instead of one per 1,000 names. Names with a leading dot come first, so those
            among the first 1,000 are always there.

    Raises:
        StorageError: The folder cannot be listed.
    """
    if not is_remote(uri):
        return _local_stamps(uri)
    store, key = parse_address(uri)
    start = f"{key}/" if key else ""
    rows = _list_objects(client_for(store, options), uri, key, start + after)
    names = ((row["path"][len(start) :], row) for row in rows if row["path"] != key)
    return {name: _stamp(row) for name, row in names if name and "/" not in name}


def first_names(uri: str, options: StorageOptions) -> list[str]:
    """Return sorted names in a folder; in a store those of its first 1,000 objects, in one request.

    Raises:
        StorageError: The folder cannot be listed.
    """
    if not is_remote(uri):
        try:
            return sorted(os.listdir(uri))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StorageError(f"cannot list {uri}: {error.strerror or error}") from error
    store, key = parse_address(uri)
    rows = _first_page(client_for(store, options), uri, key)
    start = f"{key}/" if key else ""
    names = {row["path"][len(start) :].partition("/")[0] for row in rows if row["path"] != key}
    return sorted(names - {""})


def _local_stamps(path: str) -> dict[str, FileStamp]:
    found = {}
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_symlink() or entry.is_dir():
                    continue
                if (stamp := _local_stamp(entry.path)) is not None:  # else it was removed meanwhile
                    found[entry.name] = stamp
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise StorageError(f"cannot list {path}: {error.strerror or error}") from error
    return found


def _local_stamp(path: str) -> FileStamp | None:
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageError(f"cannot access {path}: {error.strerror or error}") from error
    return FileStamp(found.st_size, found.st_mtime)


def _stamp(meta: Any) -> FileStamp:
    return FileStamp(meta["size"], meta["last_modified"].timestamp())


def _first_page(client: Client, uri: str, key: str) -> list[Any]:
    def read() -> list[Any]:
        pages = obstore.list(client.objects, key or None, chunk_size=_PAGE_KEYS)
        return list(next(pages, []))

    return client.call(uri, "list", read)


def _list_objects(client: Client, uri: str, key: str, after: str) -> list[Any]:
    """Return the objects below a prefix: its first page, and those after `after`."""
    rows = _first_page(client, uri, key)
    if len(rows) < _PAGE_KEYS:
        return rows
    last = max(rows[-1]["path"], after)

    def read() -> list[Any]:
        return list(obstore.list(client.objects, key or None, offset=last).collect())

    return rows + client.call(uri, "list", read)
