"""Look into folders and at the first bytes of files, on disk or in a store, to detect formats."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from shardwright.errors import StorageError
from shardwright.storage.addresses import is_remote, parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.folder import files_of
from shardwright.storage.listing import LONG_KEYS, first_page, list_folder, list_pages
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.inputs.companions import KIND_FOLDERS, Companions, find_companions
from shardwright.transforms.inputs.file_rules import (
    extension_of,
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


def matching(uri: str, storage: StorageOptions) -> list[tuple[str, str]]:
    """Return (address, path below the last folder without a wildcard) of each matching file.

    Raises:
        StorageError: A folder, or the store, cannot be listed.
    """
    return _matching_objects(uri, storage) if is_remote(uri) else _matching_paths(uri)


def _matching_paths(uri: str) -> list[tuple[str, str]]:
    start = len(_fixed_part(uri)[0]) + 1
    # A set: alternatives in braces may match the same file.
    paths = {
        path
        for pattern in expand_braces(uri)
        for path in _paths_in("", pattern.split("/")[1:])
        if os.path.isfile(path)
    }
    return [(path, path[start:]) for path in paths]


def _paths_in(folder: str, parts: Sequence[str]) -> Iterator[str]:
    """Yield the paths below a folder that match, as `glob.glob`, which skips unreadable folders."""
    first, rest = parts[0], parts[1:]
    names = _names_in(folder, first) if glob.has_magic(first) else [first]
    for name in names:
        path = f"{folder}/{name}"
        if rest:
            yield from _paths_in(path, rest)
        else:
            yield path


def _names_in(folder: str, pattern: str) -> list[str]:
    try:
        names = os.listdir(folder or "/")
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StorageError(f"cannot list {folder}: {error.strerror or error}") from error
    return list(filter(_matcher(pattern), names))


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Return a test of a name for a wildcard.

    As in a shell, it matches hidden names only if it has a leading dot itself.
    """
    wanted = re.compile("|".join(map(fnmatch.translate, expand_braces(pattern))))
    takes_litter = is_litter(pattern)
    return lambda name: bool(wanted.match(name)) and (takes_litter or not is_litter(name))


def _matching_objects(uri: str, storage: StorageOptions) -> list[tuple[str, str]]:
    folder, pattern = _fixed_part(uri)
    store, prefix = parse_address(folder)
    client = client_for(store, storage)
    # Without a slash only the folder's own objects can match: those below it are not listed.
    pages = list_pages(client, prefix) if "/" in pattern else [list_folder(client, prefix)[1]]
    start = len(prefix) + 1 if prefix else 0
    wanted = [_matcher(part) for part in pattern.split("/")]
    found = []
    for row in (row for page in pages for row in page):
        parts = row.key[start:].split("/")
        if len(parts) == len(wanted) and all(
            matches(part) for matches, part in zip(wanted, parts, strict=True)
        ):
            found.append((f"{store}/{row.key}", row.key[start:]))
    return found


def fixed_folder(pattern: str) -> str:
    """Return the folder above the first part with a wildcard."""
    return _fixed_part(pattern)[0] or "/"


def _fixed_part(uri: str) -> tuple[str, str]:
    """Split an address into the folder above the first part with a wildcard, and the rest."""
    found = _WILDCARD.search(uri)
    assert found is not None  # has_wildcard
    folder = uri[: found.start()].rpartition("/")[0]
    return folder, uri[len(folder) + 1 :]


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
        self._companions: dict[str, Companions] = {}

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
                looks = map_reads(lambda folder: self.first_in(f"{uri}/{folder}"), level)
                deeper = []
                for folder, found in zip(level, looks, strict=True):
                    few = _first_names(found.files)
                    paths += [f"{folder}{name}" for name in few]
                    deeper += [f"{folder}{name}/" for name in found.folders]
                    most = max(Counter(map(extension_of, few)).values(), default=0)
                    is_whole = is_whole and found.is_whole and most <= _LOOK_NAMES
                level = sorted(deeper, key=lambda path: (not _is_known(path), path))
            is_whole = is_whole and not level
            self._companions[uri] = find_companions(paths, is_whole=is_whole)
        return self._companions[uri]

    def first_in(self, uri: str) -> FolderContents:
        """Return folders in a folder, and the first files; of a short prefix, all files below.

        Raises:
            StorageError: The store cannot be listed.
        """
        uri = uri.rstrip("/")
        if is_web(uri):
            return FolderContents([], [], [])
        if is_remote(uri):
            names = self.first_names(uri)
            here = [name for name in names if "/" not in name]
            if len(names) >= LONG_KEYS and not here:
                return replace(self.look_in(uri), is_whole=False)
            is_short = len(names) < LONG_KEYS
            folders = () if is_short else {name.partition("/")[0] for name in names} - {*here}
            shown = (name for name in names if not any(map(is_litter, name.split("/"))))
            return _contents(folders, shown if is_short else here, is_whole=is_short)
        found = self._found.get(uri)
        try:
            return _scan(uri, _first_names) if found is None else found
        except StorageError:  # the listing reports it, and `--accept-partial` may accept it
            return FolderContents([], [], [], is_whole=False)

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


def _is_known(path: str) -> bool:
    name = path[:-1].rpartition("/")[2].lower()
    return name in KIND_FOLDERS or split_of([name]) is not None


def _first_names(names: Iterable[str]) -> list[str]:
    """Return the first names of each extension, in bounded memory, whatever their order.

    So images and their labels are both among them, also if they are in different folders.
    """
    kept: dict[str, list[str]] = defaultdict(list)
    for name in names:
        extension = extension_of(name)
        some = kept[extension if extension.isalpha() else ""]
        some.append(name)
        if len(some) > 2 * _LOOK_NAMES:
            some.sort()
            del some[_LOOK_NAMES + 1 :]
    return sorted(name for some in kept.values() for name in sorted(some)[: _LOOK_NAMES + 1])


def is_web(uri: str) -> bool:
    """Return whether an address is that of a web server, which does not list its files."""
    return uri.startswith(("http://", "https://"))


def _scan(uri: str, keep: Callable[[Iterable[str]], list[str]] = list) -> FolderContents:
    """Return what is in a local folder, with the files that `keep` returns of all."""
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
    try:
        kept = keep(files())
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise StorageError(f"cannot list {uri}: {error.strerror or error}") from error
    return _contents(beside["folder"], kept, beside["other"])


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
