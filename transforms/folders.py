"""Listing a local folder of images, class folders or split folders into references."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from shardwright.errors import UsageError
from shardwright.storage import NO_OPTIONS, StorageOptions
from transforms.rejects import Reject, RejectReason

# Folder names that mean a split, in any case, and the split each stands for.
SPLIT_FOLDERS: Mapping[str, str] = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
}
IMAGE_EXTENSIONS = frozenset(
    (
        "jpg", "jpeg", "jpe", "jfif", "png", "gif", "bmp", "dib", "webp",
        "tif", "tiff", "heic", "heif", "avif", "jp2", "j2k", "ico", "psd", "svg",
    )
)  # fmt: skip
MAX_IMAGE_BYTES = 1 << 30  # a record ends at 2 GiB, and several images are in memory at once
MAGIC_BYTES = 12
_IMAGE_MAGICS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM", b"RIFF")
Problem = tuple[RejectReason, str]  # why an input can be no record, and one line for a person
_LITTER = frozenset({"thumbs.db", "desktop.ini", "__macosx"})


@dataclass(frozen=True, slots=True)
class FolderSource:
    """A folder to list.

    Attributes:
        root: Its absolute path, or a store's address.
        split_folders: First-level folder names, as they are on disk, that stand for a split; empty where there are none.
        storage: Options of the store that it is in.
    """

    root: str
    split_folders: tuple[str, ...] = ()
    storage: StorageOptions = NO_OPTIONS


class FileRow(NamedTuple):
    """What listing tells of one file: the columns of a reference batch that a folder fills."""

    id: str
    uri: str
    num_bytes: int
    etag: str | None
    split: str | None
    label: str | None


def detect_folder(root: str) -> FolderSource:
    """Look at the first level only: does it hold nothing but split names?

    Raises:
        UsageError: The folder cannot be listed.
    """
    try:
        with os.scandir(root) as entries:
            visible = [entry for entry in entries if not is_litter(entry.name)]
    except OSError as error:
        raise UsageError(f"INPUT {root} cannot be listed: {error.strerror}") from error
    folders = sorted(entry.name for entry in visible if _is_folder(entry))
    loose_images = any(not _is_folder(entry) and has_image_name(entry.name) for entry in visible)
    if folders and not loose_images and all(name.lower() in SPLIT_FOLDERS for name in folders):
        return FolderSource(root, tuple(folders))
    return FolderSource(root)


def list_folder(source: FolderSource) -> Iterator[FileRow | Reject]:
    """Every file below the root, in name order: its row, or a reject for what can be no record.

    Links are followed; a link back to a folder above itself is not walked again.
    """
    for relative, entry, problem in _walk(source.root):
        try:
            relative.encode("utf-8")
        except UnicodeEncodeError:
            shown = os.fsencode(relative).decode("utf-8", "backslashreplace")
            yield Reject("", f"{source.root}/{shown}", RejectReason.BAD_ID, "the file's name is not UTF-8: rename it")
            continue
        if problem:
            yield Reject(relative, os.path.join(source.root, relative), *problem)
        elif entry is not None:
            yield _reference(source, relative, entry)


def _reference(source: FolderSource, relative: str, entry: os.DirEntry[str]) -> FileRow | Reject:
    try:
        status = entry.stat()
    except FileNotFoundError:
        return Reject(relative, entry.path, RejectReason.MISSING_FILE, "a broken link, or a file that is gone since it was listed")
    except OSError as error:
        return Reject(relative, entry.path, RejectReason.UNREADABLE, error.strerror or str(error))
    problem = file_problem(status) or _other_file(entry)
    if problem:
        return Reject(relative, entry.path, *problem)
    split, label = place_of(source, relative)
    return FileRow(relative, entry.path, status.st_size, etag_of(status), split, label)


def place_of(source: FolderSource, relative: str) -> tuple[str | None, str | None]:
    """The split and the label that a file's folders give it."""
    parts = relative.split("/")
    split = SPLIT_FOLDERS[parts.pop(0).lower()] if source.split_folders and len(parts) > 1 else None
    return split, (parts[0].strip() or None) if len(parts) > 1 else None


def etag_of(status: os.stat_result) -> str:
    """What changes when a local file's content does: its time of change. The length is kept beside it."""
    return f"{status.st_mtime_ns:x}"


def file_problem(status: os.stat_result) -> Problem | None:
    """Why a file that exists can be no image, as far as its status tells."""
    if not stat.S_ISREG(status.st_mode):
        return RejectReason.UNREADABLE, "not a regular file"
    return size_problem(status.st_size)


def size_problem(num_bytes: int) -> Problem | None:
    """Why a file of that length can be no image."""
    if num_bytes == 0:
        return RejectReason.EMPTY_FILE, "the file has no bytes"
    if num_bytes > MAX_IMAGE_BYTES:
        return RejectReason.TOO_LARGE, f"{num_bytes} bytes; an image may have up to {MAX_IMAGE_BYTES}"
    return None


def magic_problem(magic: bytes) -> Problem | None:
    """Why a file whose name is not an image's is none, going by its first `MAGIC_BYTES`."""
    if magic.startswith(_IMAGE_MAGICS):
        return None
    return RejectReason.OTHER_FILE, "neither its name nor its first bytes are an image's"


def _other_file(entry: os.DirEntry[str]) -> Problem | None:
    """A file neither named nor made as an image is settled here, so that it takes no place in a shard."""
    if has_image_name(entry.name):
        return None
    try:
        with open(entry.path, "rb") as file:
            magic = file.read(MAGIC_BYTES)
    except OSError as error:
        return RejectReason.UNREADABLE, error.strerror or str(error)
    return magic_problem(magic)


def _walk(root: str) -> Iterator[tuple[str, os.DirEntry[str] | None, Problem | None]]:
    """(relative path, entry, problem) of every file below `root`, sorted by name in each folder.

    An explicit stack, because folders may be nested deeper than Python calls.
    """
    stack = [(_entries(root, ""), os.path.realpath(root))]
    above = {stack[0][1]}
    while stack:
        listing, real_folder = stack[-1]
        relative, entry, problem = next(listing, (None, None, None))
        if relative is None:
            stack.pop()
            above.remove(real_folder)
        elif entry is None or problem or not _is_folder(entry):
            yield relative, entry, problem
        else:
            # Asked for links only: it costs a look at every folder above.
            real = os.path.realpath(entry.path) if entry.is_symlink() else os.path.join(real_folder, entry.name)
            if real in above:
                yield relative, entry, (RejectReason.OTHER_FILE, "a link back to a folder above it")
            else:
                stack.append((_entries(entry.path, relative + "/"), real))
                above.add(real)


def _entries(folder: str, prefix: str) -> Iterator[tuple[str, os.DirEntry[str] | None, Problem | None]]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        yield prefix.rstrip("/"), None, (RejectReason.UNREADABLE, f"cannot list the folder: {error.strerror}")
        return
    for entry in entries:
        litter = is_litter(entry.name)
        yield prefix + entry.name, entry, (RejectReason.OTHER_FILE, "hidden, or left by an operating system") if litter else None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself, say; whoever asks for its status is told
        return False


def is_litter(name: str) -> bool:
    """Whether a name is hidden, or of a file that an operating system leaves."""
    return name.startswith(".") or name.lower() in _LITTER


def has_image_name(name: str) -> bool:
    """Whether a name ends as an image's does."""
    _, dot, extension = name.rpartition(".")
    return bool(dot) and extension.lower() in IMAGE_EXTENSIONS
