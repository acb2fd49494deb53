"""Classify input files by name and status, by the same rules on disk and in stores."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence

from shardwright.images.kinds import image_format, other_image
from shardwright.transforms.rejects import RejectReason

_SPLIT_NAMES = {
    "train": ("train", "training", "train_set", "training_set"),
    "validation": ("val", "valid", "validation", "val_set", "validation_set", "dev"),
    "test": ("test", "testing", "test_set"),
    "eval": ("eval",),
}
# Folder name in lower case -> the split that it stands for. TFX writes Split-train and Split-eval.
SPLIT_FOLDERS: Mapping[str, str] = {
    f"{before}{name}": split
    for split, names in _SPLIT_NAMES.items()
    for name in names
    for before in ("", "split-")
}
IMAGE_EXTENSIONS = frozenset(
    (
        "jpg", "jpeg", "jpe", "jfif", "png", "gif", "bmp", "dib", "webp",
        "tif", "tiff", "heic", "heif", "avif", "jp2", "j2k", "ico", "psd", "svg",
    )
)  # fmt: skip
MAX_IMAGE_BYTES = 1 << 30  # a record holds at most 2 GiB, and several images are in memory at once
# Prefix of the etag of spool files, which have content-based names and never change.
SPOOL_ETAG = "spool:"
_RAW_IMAGES = ("TIFF or camera raw", "JPEG 2000", "AVIF", "HEIC")
Problem = tuple[RejectReason, str]  # why an input cannot be a record, and one line for a person
# A request for the first bytes of each file would take longer than the build, and a sample of them
# would make the records depend on the order of the listing.
NO_IMAGE_NAME: Problem = (
    RejectReason.OTHER_FILE,
    "its name has no image's extension: add one, or name the file in a table",
)
# Files and folders that programs leave behind, in lower case: thumbnails, recycle bins, temporary
# folders; then the ends of names of downloads and editors' copies. Names with a dot in front, such
# as .DS_Store, ._a.jpg, .Trash-1000 and .a.swp, are hidden anyway.
_LEFT_BEHIND = frozenset(
    (
        "thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir", "$recycle.bin", "recycler",
        "#recycle", "@recycle", "system volume information", "lost+found", "_temporary",
    )
)  # fmt: skip
_HALF_FILES = ("~", ".part", ".partial", ".filepart", ".crdownload", ".download", ".tmp", ".swp")
LITTER: Problem = (RejectReason.OTHER_FILE, "hidden, or left behind by a program")


def place_of(split_folders: Sequence[str], relative: str) -> tuple[str | None, str | None]:
    """Return the split and the label that a file's folders give it."""
    parts = relative.split("/")
    split = None
    if split_folders and len(parts) > 1:
        folder = parts.pop(0)
        split = split_of([folder]) or folder  # "Val" is validation, and "extra" is a split, too
        while len(parts) > 1 and parts[0].lower() == folder.lower():
            del parts[0]  # an archive that was unpacked into a folder of its own name
    return split, (parts[0].strip() or None) if len(parts) > 1 else None


def split_of(words: Iterable[str]) -> str | None:
    """Return the split of the first word with one: "train2017" is train, "Val" is validation."""
    return next(
        (
            SPLIT_FOLDERS[word]
            for name in words
            if (word := name.lower().rstrip("0123456789")) in SPLIT_FOLDERS
        ),
        None,
    )


def etag_of(status: os.stat_result) -> str:
    """Return a local file's modification time (ns, hexadecimal) as its etag."""
    return f"{status.st_mtime_ns:x}"


def file_problem(status: os.stat_result) -> Problem | None:
    """Return why an existing file cannot be an image, going by its status, or None."""
    if not stat.S_ISREG(status.st_mode):
        return RejectReason.UNREADABLE, "not a regular file"
    return size_problem(status.st_size)


def size_problem(num_bytes: int) -> Problem | None:
    """Return why a file of that length cannot be an image, or None."""
    if num_bytes == 0:
        return RejectReason.EMPTY_FILE, "the file has no bytes"
    if num_bytes > MAX_IMAGE_BYTES:
        return (
            RejectReason.TOO_LARGE,
            f"{num_bytes} bytes; an image may have at most {MAX_IMAGE_BYTES}",
        )
    return None


def has_image_magic(data: bytes) -> bool:
    """Return whether bytes begin like a JPEG, PNG, GIF, BMP, WebP, TIFF, JPEG 2000, AVIF or HEIC.

    More than two letters of a BMP are compared, as a text may begin with "BM".
    """
    kind = image_format(data)
    if kind == "bmp":
        return data[6:10] == bytes(4)
    return bool(kind) or other_image(data) in _RAW_IMAGES


def is_litter(name: str) -> bool:
    """Return whether a file or folder is hidden, or left behind by a program, going by its name."""
    lower = name.lower()
    return lower.startswith((".", "~$")) or lower in _LEFT_BEHIND or lower.endswith(_HALF_FILES)


def has_image_name(name: str) -> bool:
    """Return whether a name has an image's extension."""
    return extension_of(name) in IMAGE_EXTENSIONS


def extension_of(name: str) -> str:
    """Return what follows the last dot of a name or path, in lower case; "" without a dot."""
    _, dot, extension = name.rpartition("/")[2].rpartition(".")
    return extension.lower() if dot else ""
