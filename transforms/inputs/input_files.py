"""Find the files of INPUT: a single file, those that a wildcard matches, or those in a folder."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from shardwright.errors import MissingError, UsageError
from shardwright.storage.addresses import is_remote, parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.listing import first_page, list_folder, list_pages
from shardwright.storage.objects import head_object
from shardwright.storage.options import StorageOptions
from transforms.inputs.file_rules import SPLIT_FOLDERS, etag_of, has_image_name, is_litter
from transforms.inputs.folder_contents import has_folders_of_images, look_into
from transforms.inputs.source import SourceRequest

_WILDCARD = re.compile(r"[*?\[]|\{[^{}]*(\.\.|,)[^{}]*\}")
_HIDDEN = re.compile(r"(^|/)\.")
_BRACES = re.compile(r"\{(?:(?P<first>\d+)\.\.(?P<last>\d+)|(?P<words>[^{}]*,[^{}]*))\}")
# A wildcard that also matches such files is an error; a README.md or a list is skipped.
_HOLDS_RECORDS = re.compile(
    r"\.(tar(\.\w+)?|tgz|tbz2?|txz|tzst|zip|parquet|arrow|feather)$|\.tfrecords?\b", re.IGNORECASE
)
# File names of TFDS and of this project: flowers-train.tfrecord-00000-of-00012.
_TFDS_NAME = re.compile(r"[A-Za-z]\w*-(?P<split>\w+)\.\w+-\d{5,}-of-\d{5,}")


class InputFile(NamedTuple):
    """One file of INPUT.

    Attributes:
        uri: Absolute path or address.
        name: Path below INPUT, or below its last folder without a wildcard; for one file, its name.
    """

    uri: str
    name: str

    @property
    def split(self) -> str | None:
        """The split that the name states, or None.

        Taken from a split folder, from a TFDS file name, or from a single split name among the
        words of the name, as in `val-00003-of-00010`.
        """
        *folders, base = self.name.split("/")
        if folders and folders[0].lower() in SPLIT_FOLDERS:
            return SPLIT_FOLDERS[folders[0].lower()]
        if match := _TFDS_NAME.fullmatch(base):
            return match["split"]
        words = {
            SPLIT_FOLDERS[word]
            for word in re.split(r"[-_.]", base.lower())
            if word in SPLIT_FOLDERS
        }
        return words.pop() if len(words) == 1 else None


class FileState(NamedTuple):
    """A file's length in bytes, and an etag that changes with its content."""

    num_bytes: int
    etag: str | None


def has_wildcard(uri: str) -> bool:
    """Return whether an address has a wildcard: `*`, `?`, `[...]`, `{000..012}` or `{a,b}`.

    An existing local path with such a name has none.
    """
    return _WILDCARD.search(uri) is not None and (is_remote(uri) or not os.path.lexists(uri))


def find_files(
    request: SourceRequest, is_one: Callable[[str], bool], *, alone: bool = False
) -> tuple[InputFile, ...]:
    """Return the files of INPUT with the wanted kind of name, in name order; () if it has none.

    In a folder, these are the files directly in it, in its split folders and in `data`.

    Args:
        request: The request for INPUT.
        is_one: A test of a file's name for the wanted kind.
        alone: Return () for a folder that also holds images.

    Raises:
        UsageError: A file of a brace pattern is missing, or a wildcard matches several kinds.
        StorageError: The store does not respond, or a folder cannot be listed.
    """
    uri = request.uri
    if has_wildcard(uri):
        found = iter(_of_one_kind(request, _matching(request), is_one))
    elif is_one(os.path.basename(uri)) and request.is_file:
        return (InputFile(uri, os.path.basename(uri)),)
    elif is_remote(uri) and not _may_hold(uri, request.storage, is_one):
        return ()
    else:
        found = iter(_below(uri, request.storage, is_one, alone))
    return tuple(sorted(file for file in found if is_one(os.path.basename(file.uri))))


def state_of(uri: str, storage: StorageOptions) -> FileState:
    """Return a file's length and etag without reading it.

    Raises:
        MissingError: The file does not exist.
        StorageError: The store does not respond.
    """
    if is_remote(uri):
        found = head_object(uri, storage)
        if found is None:
            raise MissingError(f"{uri}: there is no such object")
        return FileState(found.num_bytes, found.etag)
    try:
        status = os.stat(uri)
    except OSError as error:
        raise MissingError(f"{uri}: {error.strerror or error}") from error
    return FileState(status.st_size, etag_of(status))


def base_of(files: Sequence[InputFile]) -> str:
    """Return the folder that the names of files are relative to, with a trailing slash."""
    return files[0].uri.removesuffix(files[0].name)


def common_split_names(files: Sequence[InputFile]) -> bool:
    """Return whether every file's name states a split."""
    return bool(files) and all(file.split for file in files)


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


def _matching(request: SourceRequest) -> list[InputFile]:
    """Return the files that a wildcard matches; raise `UsageError` if one in braces is missing."""
    uri = request.uri
    found = _matching_objects(uri, request.storage) if is_remote(uri) else _matching_paths(uri)
    if not re.search(r"[*?\[]", uri):  # braces only: they name each file
        wanted, there = expand_braces(uri), {file.uri for file in found}
        missing = [name for name in wanted if name not in there]
        if missing:
            raise UsageError(
                f"{request.argument} {uri} names {len(wanted)} files, "
                f"but {len(missing)} are missing, such as {missing[0]}"
            )
    return found


def _of_one_kind(
    request: SourceRequest, found: Sequence[InputFile], is_one: Callable[[str], bool]
) -> list[InputFile]:
    """Return the wanted files of a wildcard; raise `UsageError` rather than skip other kinds."""
    files = [file for file in found if not is_litter(os.path.basename(file.uri))]
    wanted = [file for file in files if is_one(os.path.basename(file.uri))]
    others = [
        file.name
        for file in files
        if file not in wanted and (has_image_name(file.name) or _HOLDS_RECORDS.search(file.name))
    ]
    if wanted and others:
        raise UsageError(
            f"{request.argument} {request.uri} matches files of several kinds, "
            f"such as {wanted[0].name} and {min(others)}: use a wildcard that matches one kind"
        )
    return wanted


def _matching_paths(uri: str) -> list[InputFile]:
    start = len(_fixed_part(uri)[0]) + 1
    paths = {
        path
        for pattern in expand_braces(uri)
        for path in glob.iglob(pattern)
        if os.path.isfile(path)
    }
    return [InputFile(path, path[start:]) for path in paths]


def _matching_objects(uri: str, storage: StorageOptions) -> list[InputFile]:
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
            found.append(InputFile(f"{store}/{row.key}", row.key[start:]))
    return found


def _fixed_part(uri: str) -> tuple[str, str]:
    """Split an address into the folder above the first part with a wildcard, and the rest."""
    found = _WILDCARD.search(uri)
    assert found is not None  # has_wildcard
    folder = uri[: found.start()].rpartition("/")[0]
    return folder, uri[len(folder) + 1 :]


def _may_hold(uri: str, storage: StorageOptions, is_one: Callable[[str], bool]) -> bool:
    """Return whether a prefix, perhaps of millions of images, may hold wanted files."""
    store, prefix = parse_address(uri)
    client = client_for(store, storage)
    if client.scheme in ("http", "https"):
        return False  # a web server does not list its files
    # The first page decides, because listing millions of images to find no wanted file is slow.
    names = [os.path.basename(row.key) for row in first_page(client, prefix)]
    return any(map(is_one, names)) or not any(map(has_image_name, names))


def _below(
    root: str, storage: StorageOptions, is_one: Callable[[str], bool], alone: bool
) -> list[InputFile]:
    top = look_into(root, storage, is_one)
    if alone and (top.has_images or (top.files and has_folders_of_images(root, storage))):
        return []
    found = [InputFile(f"{root.rstrip('/')}/{name}", name) for name in top.files]
    for folder in top.folders:
        below = f"{root.rstrip('/')}/{folder}"
        found += [
            InputFile(f"{below}/{name}", f"{folder}/{name}")
            for name in look_into(below, storage, is_one).files
        ]
    return found
