"""Find the files of INPUT, and decide what its folders and names state.

INPUT is a single file, the files that a wildcard matches, or those in a folder. Its top folders are
splits or classes, and names of its files may state splits.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from shardwright.errors import MissingError, UsageError
from shardwright.sizes import counted
from shardwright.storage.addresses import absolute, is_remote, redact
from shardwright.storage.object_reads import head_object
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.file_rules import (
    SPLIT_FOLDERS,
    etag_of,
    has_image_name,
    is_litter,
)
from shardwright.transforms.inputs.folder_contents import expand_braces, has_wildcard, is_web
from shardwright.transforms.inputs.source import InputSource, SourceRequest

# Among as many folders, one called `train` or `test` is a class like the others, such as a vehicle.
_MANY = 10
_SHOWN = 5  # names in a message
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def split_folders_of(
    request: SourceRequest,
    names: Sequence[str],
    *,
    has_loose: bool,
    is_nested: Callable[[str], bool],
) -> tuple[str, ...]:
    """Return the top folders if they are splits, () if they are classes.

    They are splits if all have names such as `train`, and classes if none has. If some have, they
    are classes only if one split alone is named among many folders, and images lie in its folder.

    Args:
        request: The request for INPUT, perhaps with `--top-folders`.
        names: The names of the top folders.
        has_loose: True if images lie beside them.
        is_nested: Returns whether a top folder has folders in it.

    Raises:
        UsageError: They may be splits or classes; or `--top-folders` is given and there are none.
    """
    if request.top_folders is not None:
        if not names:
            raise UsageError(
                f"--top-folders {request.top_folders}: {request.argument} {request.uri} has no "
                "folders with images"
            )
        return tuple(names) if request.top_folders == "splits" else ()
    exact = [name for name in names if name.lower() in SPLIT_FOLDERS]
    if len(exact) == len(names) and not has_loose:
        return tuple(names)
    is_few = len(names) < _MANY
    named = [name for name in (names if is_few else exact) if _splits_in(name)]
    splits = {split for name in named for split in _splits_in(name)}
    if len(splits) > 1 or (exact and (is_few or any(map(is_nested, exact)))):
        others = [name for name in names if name not in named]
        others += ["images"] * has_loose
        beside = f" beside {shown(others)}" if others else ""
        command = f"shardwright build {shlex.quote(redact(request.uri))} OUTPUT --top-folders"
        raise UsageError(
            f"{request.argument} {request.uri} has {shown(named)}{beside}, so its top folders may "
            f"be splits or classes. If they are splits, which hold class folders: `{command} "
            f"splits`. If they are classes: `{command} classes`"
        )
    return ()


def names_state_splits(request: SourceRequest, parts: Mapping[str, str | None]) -> bool:
    """Return whether the names of all parts of INPUT state their splits.

    Args:
        request: The request for INPUT.
        parts: Name -> the split that it states, or None.

    Raises:
        UsageError: Some names state a split other than train, and some state none, so that the
            images of all would be in one.
    """
    others = [name for name, split in parts.items() if split is None]
    if others and {*parts.values()} - {None, "train"}:
        named = [name for name, split in parts.items() if split is not None]
        raise UsageError(
            f"{request.argument} {request.uri} has {shown(named)}, whose names state splits, "
            f"beside {shown(others)}, without a split: move or rename what is in no split, or give "
            "only the others as INPUT, for example by a wildcard"
        )
    return bool(parts) and not others


def _splits_in(name: str) -> set[str]:
    """Return the splits among the words of a name, such as "seg_train", "train2017" or "testA"."""
    words = map(str.lower, _WORD.findall(name))
    return {SPLIT_FOLDERS[word] for word in words if word in SPLIT_FOLDERS}


def shown(names: Sequence[str]) -> str:
    """Return the first names for a message."""
    return ", ".join([*names[:_SHOWN], *["..."] * (len(names) > _SHOWN)])


def rule_of_labels(split_folders: Sequence[str], whole: str = "INPUT") -> str:
    """Return where labels come from: the top folders, or those below the split folders."""
    if not split_folders:
        return f"the folders of {whole}"
    *others, last = (f"{name}/" for name in split_folders)
    return f"the folders below {' and '.join([*filter(None, [', '.join(others)]), last])}"


_LOG = logging.getLogger("shardwright.inputs")
_MOST_FOLDERS = 64  # of INPUT that are looked into for files that would not be read
# Searched besides split folders: data sets on the Hugging Face hub keep their files here.
_DATA_FOLDER = "data"
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


def checked(request: SourceRequest) -> SourceRequest:
    """Return the request with absolute paths.

    Raises:
        UsageError: INPUT does not exist, or is neither a folder nor a file.
    """
    written, uri, root = request.uri, absolute(request.uri), request.image_root
    try:
        uri.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the path of {request.argument} {uri!r} is not UTF-8: rename its folder, or link to it"
        ) from error
    if not is_remote(uri) and not has_wildcard(uri):
        if not os.path.exists(uri):
            raise UsageError(f"{request.argument} {written} does not exist: check its spelling")
        if not os.path.isdir(uri) and not os.path.isfile(uri):
            raise UsageError(f"{request.argument} {written} is neither a folder nor a file")
    return replace(request, uri=uri, image_root=root and absolute(root))


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
        found = _of_one_kind(request, _matching(request), is_one)
    elif is_one(os.path.basename(uri)) and request.is_file:
        return (InputFile(uri, os.path.basename(uri)),)
    elif request.is_remote and not _may_hold(request, is_one):
        return ()
    else:
        found = _below(request, is_one, alone)
    return tuple(sorted(found))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSource(InputSource):
    """INPUT made of files, each of them a part.

    The files are found again for listing, so that a source of many stays small.

    Attributes:
        request: The request for INPUT.
        base: The folder that the files' names are relative to, with a trailing slash.
        is_part: A test of a file's name; None if parts are no files.
    """

    request: SourceRequest
    base: str
    is_part: Callable[[str], bool] | None = None

    def parts(self) -> Iterator[str]:
        found = find_files(self.request, self.is_part) if self.is_part else ()
        # Without any, INPUT is one file with another name, forced by `--input-format`.
        yield from (file.uri for file in found) if found else (self.request.uri,)

    def file_of(self, part: str) -> InputFile:
        return InputFile(part, part.removeprefix(self.base))

    def warn_of_unread(self) -> None:
        """Log the folders of INPUT with such files that are not parts.

        Raises:
            StorageError: A folder cannot be listed.
        """
        uri, listings = self.request.uri, self.request.listings
        if self.is_part is None or has_wildcard(uri):
            return
        read = {self.file_of(part).name.partition("/")[0] for part in self.parts()}
        unread = [
            folder
            for folder in listings.look_in(uri).folders[:_MOST_FOLDERS]
            if folder not in read
            and any(map(self.is_part, listings.peek_in(f"{uri}/{folder}").files))
        ]
        if unread:
            _LOG.warning(
                "%s %s has such files in %s, too, which are not read: to read all, give a "
                "wildcard, such as '%s/*/*'",
                *(self.request.argument, uri, shown(unread), uri),
            )


def base_of(files: Sequence[InputFile]) -> str:
    """Return the folder that the names of files are relative to, with a trailing slash."""
    return files[0].uri.removesuffix(files[0].name)


def describe_files(request: SourceRequest, files: Sequence[InputFile], what: str) -> str:
    """Return the start of the log line, such as "3 tar archives at /data"."""
    number = f"{len(files)} {what}s" if len(files) > 1 else f"a {what}"
    return f"{number} at {request.uri}"


def files_state_splits(request: SourceRequest, files: Sequence[InputFile]) -> bool:
    """Return whether every file's name states a split.

    Raises:
        UsageError: As `names_state_splits`.
    """
    return names_state_splits(request, {file.name: file.split for file in files})


def _matching(request: SourceRequest) -> list[InputFile]:
    """Return the files that a wildcard matches; raise `UsageError` if one in braces is missing."""
    uri = request.uri
    found = [InputFile(*pair) for pair in request.listings.matching(uri)]
    if not re.search(r"[*?\[]", uri):  # braces only: they name each file
        wanted, there = expand_braces(uri), {file.uri for file in found}
        missing = [name for name in wanted if name not in there]
        if missing:
            raise UsageError(
                f"{request.argument} {uri} names {counted(len(wanted), 'file')}, "
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


def _may_hold(request: SourceRequest, is_one: Callable[[str], bool]) -> bool:
    """Return whether a prefix, perhaps of millions of images, may hold wanted files."""
    if is_web(request.uri):
        return False
    # The first page decides, because listing millions of images to find no wanted file is slow.
    names = list(map(os.path.basename, request.listings.first_names(request.uri)))
    return any(map(is_one, names)) or not any(map(has_image_name, names))


def _below(request: SourceRequest, is_one: Callable[[str], bool], alone: bool) -> list[InputFile]:
    root = request.uri.rstrip("/")
    top = request.listings.look_in(request.uri, whole=True)
    files = list(filter(is_one, top.files))
    if alone and (top.has_images or (files and _has_folders_of_images(request))):
        return []
    found = [InputFile(f"{root}/{name}", name) for name in files]
    for folder in top.folders:
        if folder.lower() in SPLIT_FOLDERS or folder == _DATA_FOLDER:
            below = request.listings.look_in(f"{root}/{folder}", whole=True).files
            found += [
                InputFile(f"{root}/{folder}/{name}", f"{folder}/{name}")
                for name in filter(is_one, below)
            ]
    return found


def _has_folders_of_images(request: SourceRequest) -> bool:
    """Return whether folders beside the files hold images: class folders, not to be skipped."""
    if request.is_remote:
        return any(map(has_image_name, request.listings.first_names(request.uri)))
    return any(
        has_image_name(name) and not is_litter(name)
        for folder in request.listings.look_in(request.uri).folders
        for _, _, names in os.walk(f"{request.uri}/{folder}")
        for name in names
    )
