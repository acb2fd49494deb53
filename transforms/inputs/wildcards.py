"""Find the files that a wildcard matches, on disk or in a store."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Iterator, Sequence

from shardwright.errors import StorageError
from shardwright.storage.addresses import is_remote, parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.listing import list_folder, list_pages
from shardwright.storage.options import StorageOptions

_WILDCARD = re.compile(r"[*?\[]|\{[^{}]*(\.\.|,)[^{}]*\}")
_HIDDEN = re.compile(r"(^|/)\.")
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
        first, last, width = (
            int(found["first"]),
            int(found["last"]),
            len(found["first"]) if found["first"].startswith("0") else 1,
        )
        middles = [f"{number:0{width}d}" for number in range(first, last + 1)]
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
    found = fnmatch.filter(names, pattern)
    return found if pattern.startswith(".") else [one for one in found if one[0] != "."]


def _matching_objects(uri: str, storage: StorageOptions) -> list[tuple[str, str]]:
    folder, pattern = _fixed_part(uri)
    store, prefix = parse_address(folder)
    client = client_for(store, storage)
    pages = list_pages(client, prefix) if "/" in pattern else [list_folder(client, prefix)[1]]
    start = len(prefix) + 1 if prefix else 0
    wanted = [
        re.compile("|".join(map(fnmatch.translate, expand_braces(part))))
        for part in pattern.split("/")
    ]
    found = []
    for row in (row for page in pages for row in page):
        parts = row.key[start:].split("/")
        # As in a shell, a wildcard matches hidden names only if it has a leading dot itself.
        if _HIDDEN.search(row.key[start:]) and not _HIDDEN.search(pattern):
            continue
        if len(parts) == len(wanted) and all(
            one.match(part) for one, part in zip(wanted, parts, strict=True)
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
