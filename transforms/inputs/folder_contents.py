"""Look into folders and at the first bytes of files, on disk or in a store, to detect formats."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from shardwright.errors import StorageError
from shardwright.storage.addresses import is_remote, parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.folder import files_of
from shardwright.storage.listing import first_page, list_folder
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.file_rules import has_image_name, is_litter
from shardwright.transforms.inputs.wildcards import matching


@dataclass(frozen=True)
class FolderContents:
    """The sorted names directly in a folder, without litter.

    Attributes:
        folders: Names of folders.
        files: Names of files, or of objects.
        others: Names of broken links, pipes and the like.
        is_whole: False for the first objects of a prefix that may hold more.
    """

    folders: list[str]
    files: list[str]
    others: list[str]
    is_whole: bool = True

    @cached_property
    def has_images(self) -> bool:
        """True if a file here has an image's name."""
        return any(map(has_image_name, self.files))


class FolderListings:
    """The contents of folders, each listed once, however many formats look into it.

    A pickled copy is empty: workers list again, and the listing may be long.
    """

    def __init__(self, storage: StorageOptions) -> None:
        self._storage = storage
        self._found: dict[str, FolderContents] = {}
        self._first: dict[str, list[str]] = {}
        self._matching: dict[str, list[tuple[str, str]]] = {}

    def __reduce__(self) -> tuple[type[FolderListings], tuple[StorageOptions]]:
        return FolderListings, (self._storage,)

    def look_in(self, uri: str, *, whole: bool = False) -> FolderContents:
        """Return what is directly in a folder; nothing if it does not exist, or on a web server.

        Args:
            uri: The folder.
            whole: Return everything, even of a prefix with images, where millions may follow the
                first 1,000 objects.

        Raises:
            StorageError: The folder cannot be listed.
        """
        found = self._found.get(uri)
        if found is None or (whole and not found.is_whole):
            found = self._list_prefix(uri, whole) if is_remote(uri) else _scan(uri)
            self._found[uri] = found
        return found

    def first_names(self, uri: str) -> list[str]:
        """Return the paths of a prefix's first 1,000 objects, relative to it.

        Raises:
            StorageError: The store cannot be listed.
        """
        if uri not in self._first:
            store, prefix = parse_address(uri)
            page = first_page(client_for(store, self._storage), prefix)
            self._first[uri] = _relative(prefix, (row.key for row in page))
        return self._first[uri]

    def matching(self, pattern: str) -> list[tuple[str, str]]:
        """Return `wildcards.matching` of a pattern.

        Raises:
            StorageError: The store cannot be listed.
        """
        if pattern not in self._matching:
            self._matching[pattern] = matching(pattern, self._storage)
        return self._matching[pattern]

    def _list_prefix(self, uri: str, whole: bool) -> FolderContents:
        if is_web(uri):
            return FolderContents([], [], [])
        names = self.first_names(uri)
        found = _contents(
            {name.partition("/")[0] for name in names if "/" in name},
            (name for name in names if "/" not in name),
            is_whole=not names,
        )
        if found.is_whole or (found.has_images and not whole):
            return found
        store, prefix = parse_address(uri)
        folders, rows = list_folder(client_for(store, self._storage), prefix)
        return _contents(_relative(prefix, folders), _relative(prefix, (row.key for row in rows)))


def is_web(uri: str) -> bool:
    """Return whether an address is that of a web server, which does not list its files."""
    return uri.startswith(("http://", "https://"))


def _scan(uri: str) -> FolderContents:
    names: dict[str, list[str]] = {"folder": [], "file": [], "other": []}
    try:
        # One pass, because an image folder may hold millions of files.
        with os.scandir(uri) as entries:
            for entry in entries:
                names[_kind_of(entry)].append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise StorageError(f"cannot list {uri}: {error.strerror or error}") from error
    return _contents(*names.values())


def _kind_of(entry: os.DirEntry[str]) -> str:
    try:
        return "folder" if entry.is_dir() else "file" if entry.is_file() else "other"
    except OSError:  # such as a link to itself
        return "other"


def _contents(
    folders: Iterable[str],
    files: Iterable[str],
    others: Iterable[str] = (),
    *,
    is_whole: bool = True,
) -> FolderContents:
    kinds = (folders, files, others)
    names = [sorted(name for name in kind if name and not is_litter(name)) for kind in kinds]
    return FolderContents(names[0], names[1], names[2], is_whole)


def _relative(prefix: str, keys: Iterable[str]) -> list[str]:
    return [key[len(prefix) + 1 if prefix else 0 :] for key in keys]


def read_start(uri: str, storage: StorageOptions, num_bytes: int) -> bytes:
    """Return a file's first bytes; b"" if it cannot be read."""
    try:
        return files_of(uri, storage).read_range(uri, 0, num_bytes)
    except StorageError:
        return b""
