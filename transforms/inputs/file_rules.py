"""Classify input files by name, first bytes and status, by the same rules on disk and in stores."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence

from shardwright.transforms.rejects import RejectReason

# Folder name in lower case -> the split that it stands for.
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
# Files beside images. In a store, not even their first bytes are read, which costs a request each.
OTHER_EXTENSIONS = frozenset(
    (
        "txt", "md", "rst", "csv", "tsv", "json", "jsonl", "ndjson", "geojson", "xml", "html",
        "htm", "css", "js", "yaml", "yml", "toml", "ini", "cfg", "conf", "log", "lst", "parquet",
        "arrow", "feather", "avro", "orc", "npy", "npz", "mat", "pkl", "pickle", "pt", "pth",
        "ckpt", "onnx", "safetensors", "h5", "hdf5", "lmdb", "mdb", "db", "sqlite", "tfrecord",
        "tfrecords", "idx", "cls", "zip", "tar", "gz", "tgz", "bz2", "xz", "zst", "7z", "rar",
        "mp4", "m4v", "mov", "avi", "mkv", "webm", "mpg", "mpeg", "mp3", "m4a", "wav", "flac",
        "ogg", "pdf", "doc", "docx", "xls", "xlsx", "ppt", "pptx", "py", "ipynb", "sh", "md5",
        "sha1", "sha256", "crc", "lock", "ply", "pcd", "obj", "srt", "vtt",
    )
)  # fmt: skip
MAX_IMAGE_BYTES = 1 << 30  # a record holds at most 2 GiB, and several images are in memory at once
MAGIC_BYTES = 12
# Prefix of the etag of spool files, which have content-based names and never change.
SPOOL_ETAG = "spool:"
_IMAGE_MAGICS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM", b"RIFF")
_STARTS = (
    b"\xff\xd8\xff",
    b"\x89PNG\r\n\x1a\n",
    b"GIF87a",
    b"GIF89a",
    b"II*\0",
    b"MM\0*",
    b"\0\0\0\x0cjP  ",
)
Problem = tuple[RejectReason, str]  # why an input cannot be a record, and one line for a person
_LITTER = frozenset({"thumbs.db", "desktop.ini", "__macosx"})


def place_of(split_folders: Sequence[str], relative: str) -> tuple[str | None, str | None]:
    """Return the split and the label that a file's folders give it."""
    parts = relative.split("/")
    split = None
    if split_folders and len(parts) > 1:
        folder = parts.pop(0)
        split = split_of([folder]) or folder  # "Val" is validation, and "extra" is a split, too
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


def magic_problem(magic: bytes) -> Problem | None:
    """Return why a file is not an image, going by its first `MAGIC_BYTES`, or None."""
    if magic.startswith(_IMAGE_MAGICS):
        return None
    return RejectReason.OTHER_FILE, "neither its name nor its first bytes are those of an image"


def has_image_magic(data: bytes) -> bool:
    """Return whether bytes begin like a JPEG, PNG, GIF, BMP, WebP, TIFF, JPEG 2000, AVIF or HEIC.

    Stricter than `magic_problem`: a text value may begin with "BM" or "RIFF".
    """
    if data.startswith(_STARTS) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP"):
        return True
    return (data[:2] == b"BM" and data[6:10] == bytes(4)) or (
        data[4:8] == b"ftyp" and data[8:12] in (b"avif", b"heic", b"mif1")
    )


def name_problem(name: str) -> Problem | None:
    """Return why a file is not an image, going by its extension, or None if that does not say."""
    extension = extension_of(name)
    if extension not in OTHER_EXTENSIONS:
        return None
    return RejectReason.OTHER_FILE, f"a .{extension} file, which is no image by its name"


def is_litter(name: str) -> bool:
    """Return whether a name is hidden, or that of a file left by an operating system."""
    return name.startswith(".") or name.lower() in _LITTER


def has_image_name(name: str) -> bool:
    """Return whether a name has an image's extension."""
    return extension_of(name) in IMAGE_EXTENSIONS


def extension_of(name: str) -> str:
    """Return what follows the last dot of a name or path, in lower case; "" without a dot."""
    _, dot, extension = name.rpartition("/")[2].rpartition(".")
    return extension.lower() if dot else ""
