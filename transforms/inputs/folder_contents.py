"""Look into folders and at the first bytes of files, on disk or in a store, to detect formats."""

from __future__ import annotations

import fnmatch
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from shardwright.errors import StorageError
from shardwright.storage.addresses import is_remote, parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.folder import files_of
from shardwright.storage.listing import LONG_KEYS, first_page, list_folder
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.inputs.file_rules import (
    KIND_FOLDERS,
    Companions,
    extension_of,
    find_companions,
    has_image_name,
    is_litter,
    split_of,
)

_WILDCARD = re.compile(r"[*?\[]|\{[^{}]*(\.\.|,)[^{}]*\}")
# What `companions_in` looks at: folders, their depth, and names of each extension in a folder.
_LOOK_FOLDERS, _LOOK_DEPTH, _LOOK_NAMES = 64, 4, 1000
_BRACES = re.compile(r"\{(?:(?P<first>\d+)\.\.(?P<last>\d+)|(?P<words>[^{}]*,[^{}]*))\}")


def has_wildcard(uri: str) -> bool:
    """Return whether an address has a wildcard: `*`, `?`, `[...]`, `{000..012}` or `{a,b}`.

    An existing local path with such a name has none.
    """
    return _WILDCARD.search(uri) is not None and (is_remote(uri) or not os.path.lexists(uri))


def expand_braces(pattern: str) -> list[str]:
    """Return the names that `{000..012}` and `{a,b}` stand for, as in a shell and in WebDataset.

    Numbers keep their leading zeros.
    """
    found = _BRACES.search(pattern)
    if not found:
        return [pattern]
    if found["first"]:
        width = len(found["first"]) if found["first"].startswith("0") else 1
        numbers = range(int(found["first"]), int(found["last"]) + 1)
        middles = [f"{number:0{width}d}" for number in numbers]
    else:
        middles = found["words"].split(",")
    ends = expand_braces(pattern[found.end() :])
    return [f"{pattern[: found.start()]}{middle}{end}" for middle in middles for end in ends]


def fixed_folder(pattern: str) -> str:
    """Return the folder above the first part with a wildcard."""
    return _fixed_part(pattern) or "/"


def _fixed_part(pattern: str) -> str:
    found = _WILDCARD.search(pattern)
    assert found is not None  # has_wildcard
    return pattern[: found.start()].rpartition("/")[0]


@dataclass(frozen=True)
class FolderContents:
    """The sorted names directly in a folder, without litter.

    Attributes:
        folders: Names of folders.
        files: Names of files, or of objects.
        others: Names of broken links, pipes and the like.
        is_whole: False if there may be more.
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
        self._companions: dict[str, Companions] = {}

    def __reduce__(self) -> tuple[type[FolderListings], tuple[StorageOptions]]:
        return FolderListings, (self._storage,)

    def look_in(self, uri: str, *, whole: bool = False) -> FolderContents:
        """Return what is directly in a folder; nothing if it does not exist, or on a web server.

        Args:
            uri: The folder.
            whole: Return everything. Else the files of a folder are the first of each extension,
                and a prefix with images, where millions may follow, has the first 1,000 objects.

        Raises:
            StorageError: The folder cannot be listed.
        """
        found = self._found.get(uri)
        if found is None or (whole and not found.is_whole):
            if is_web(uri):
                found = FolderContents([], [], [])
            else:
                found = self._list_prefix(uri, whole) if is_remote(uri) else _scan(uri, whole)
            self._found[uri] = found
        return found

    def _list_prefix(self, uri: str, whole: bool) -> FolderContents:
        names = self.first_names(uri)
        found = _contents(
            {name.partition("/")[0] for name in names if "/" in name},
            (name for name in names if "/" not in name),
            is_whole=len(names) < LONG_KEYS,
        )
        if found.is_whole or (found.has_images and not whole):
            return found
        store, prefix = parse_address(uri)
        folders, rows = list_folder(client_for(store, self._storage), prefix)
        return _contents(_relative(prefix, folders), _relative(prefix, (row.key for row in rows)))

    def first_names(self, uri: str) -> list[str]:
        """Return the paths of a prefix's first 1,000 objects, relative to it.

        Raises:
            StorageError: The store cannot be listed.
        """
        if uri not in self._first:
            above, _, name = uri.rpartition("/")
            known = self._first.get(above, [])
            if 0 < len(known) < LONG_KEYS:  # they are all of the folder above
                self._first[uri] = _relative(
                    name, (key for key in known if key.startswith(f"{name}/"))
                )
            else:
                store, prefix = parse_address(uri)
                page = first_page(client_for(store, self._storage), prefix)
                self._first[uri] = _relative(prefix, (row.key for row in page))
        return self._first[uri]

    def peek_in(self, uri: str) -> FolderContents:
        """Return `look_in` of a folder, and nothing of a local one that cannot be listed.

        The listing reports it, and `--accept-partial` may accept it.
        """
        try:
            return self.look_in(uri)
        except StorageError:
            if is_remote(uri):
                raise
            return FolderContents([], [], [], is_whole=False)

    def companions_in(self, uri: str) -> Companions:
        """Return the files below a folder by their relation to images, of the first in each folder.

        Folders of images, labels and splits come first, as there may be thousands of classes.

        Raises:
            StorageError: A folder cannot be listed.
        """
        if uri not in self._companions:
            paths: list[str] = []
            level, num_folders, is_whole = [""], 0, True
            for _ in range(_LOOK_DEPTH):
                is_whole = is_whole and num_folders + len(level) <= _LOOK_FOLDERS
                level = level[: _LOOK_FOLDERS - num_folders]
                num_folders += len(level)
                looks = map_reads(lambda path: self.peek_in(f"{uri}/{path}".rstrip("/")), level)
                deeper = []
                for folder, found in zip(level, looks, strict=True):
                    few, is_all = _first_names(found.files)
                    paths += [f"{folder}{name}" for name in few]
                    deeper += [f"{folder}{name}/" for name in found.folders]
                    is_whole = is_whole and found.is_whole and is_all
                level = sorted(deeper, key=lambda path: (not _is_known(path), path))
            is_whole = is_whole and not level
            self._companions[uri] = find_companions(paths, is_whole=is_whole)
        return self._companions[uri]

    def matching(self, pattern: str) -> list[tuple[str, str]]:
        """Return (address, path below the last folder without a wildcard) of each matching file.

        Raises:
            StorageError: A folder, or the store, cannot be listed.
        """
        root = _fixed_part(pattern)
        if is_web(pattern):
            self.first_names(root)  # says that a web server cannot be listed
        found: set[str] = set()  # alternatives in braces may match the same file
        for expanded in expand_braces(pattern[len(root) + 1 :]):
            level, parts = [root], expanded.split("/")
            for depth, part in enumerate(parts, 1):
                looks = map_reads(lambda path: self.look_in(path or "/", whole=True), level)
                level = [
                    f"{path}/{name}"
                    for path, look in zip(level, looks, strict=True)
                    for name in fnmatch.filter(
                        look.files if depth == len(parts) else look.folders, part
                    )
                ]
            found.update(level)
        return [(path, path[len(root) + 1 :]) for path in sorted(found)]


def _is_known(path: str) -> bool:
    name = path[:-1].rpartition("/")[2].lower()
    return name in KIND_FOLDERS or split_of([name]) is not None


def _first_names(names: Iterable[str]) -> tuple[list[str], bool]:
    """Return the first names of each extension, in bounded memory, and whether they are all.

    So images and their labels are both among them, also if they are in different folders.
    """
    kept: dict[str, list[str]] = defaultdict(list)
    is_all = True
    for name in names:
        extension = extension_of(name)
        some = kept[extension if extension.isalpha() else ""]
        some.append(name)
        if len(some) > 2 * _LOOK_NAMES:
            some.sort()
            del some[_LOOK_NAMES:]
            is_all = False
    is_all = is_all and all(len(some) <= _LOOK_NAMES for some in kept.values())
    return sorted(name for some in kept.values() for name in sorted(some)[:_LOOK_NAMES]), is_all


def is_web(uri: str) -> bool:
    """Return whether an address is that of a web server, which does not list its files."""
    return uri.startswith(("http://", "https://"))


def _scan(uri: str, whole: bool) -> FolderContents:
    """Return what is in a local folder."""
    beside: dict[str, list[str]] = {"folder": [], "other": []}

    def files() -> Iterator[str]:
        # One pass, because an image folder may hold millions of files.
        with os.scandir(uri) as entries:
            for entry in entries:
                try:
                    kind = "folder" if entry.is_dir() else "file" if entry.is_file() else "other"
                except OSError:  # such as a link to itself
                    kind = "other"
                if kind == "file":
                    yield entry.name
                else:
                    beside[kind].append(entry.name)

    kept: list[str] = []
    is_whole = True
    try:
        kept, is_whole = ([*files()], True) if whole else _first_names(files())
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise StorageError(f"cannot list {uri}: {error.strerror or error}") from error
    return _contents(beside["folder"], kept, beside["other"], is_whole=is_whole)


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


def read_starts(
    root: str, paths: Iterable[str], storage: StorageOptions, num_bytes: int
) -> Iterator[bytes]:
    """Yield the first bytes of files below a folder, read concurrently; b"" for unreadable ones."""
    return map_reads(lambda path: read_start(f"{root}/{path}", storage, num_bytes), paths)
