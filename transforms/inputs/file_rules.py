"""What files are by their names, first bytes and status: images, splits, labels, litter. The same on disk and in stores."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from transforms.rejects import RejectReason

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
SPOOL_ETAG = "spool:"  # begins the etag of what lies in a spool file: such a file is named by its content and never changes
_IMAGE_MAGICS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM", b"RIFF")
Problem = tuple[RejectReason, str]  # why an input can be no record, and one line for a person
_LITTER = frozenset({"thumbs.db", "desktop.ini", "__macosx"})


class FileRow(NamedTuple):
    """What listing tells of one file: the columns of a reference batch that a folder fills."""

    id: str
    uri: str
    num_bytes: int
    etag: str | None
    split: str | None
    label: str | None


def place_of(split_folders: Sequence[str], relative: str) -> tuple[str | None, str | None]:
    """The split and the label that a file's folders give it."""
    parts = relative.split("/")
    split = SPLIT_FOLDERS[parts.pop(0).lower()] if split_folders and len(parts) > 1 else None
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
        return (
            RejectReason.TOO_LARGE,
            f"{num_bytes} bytes; an image may have up to {MAX_IMAGE_BYTES}",
        )
    return None


def magic_problem(magic: bytes) -> Problem | None:
    """Why a file whose name is not an image's is none, going by its first `MAGIC_BYTES`."""
    if magic.startswith(_IMAGE_MAGICS):
        return None
    return RejectReason.OTHER_FILE, "neither its name nor its first bytes are an image's"


def is_litter(name: str) -> bool:
    """Whether a name is hidden, or of a file that an operating system leaves."""
    return name.startswith(".") or name.lower() in _LITTER


def has_image_name(name: str) -> bool:
    """Whether a name ends as an image's does."""
    _, dot, extension = name.rpartition(".")
    return bool(dot) and extension.lower() in IMAGE_EXTENSIONS
