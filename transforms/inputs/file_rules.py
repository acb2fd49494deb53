"""Classify input files by name and status, decode their text, and find the companions of images.

Files on disk and in stores follow the same rules.

Text that other programs wrote is UTF-8 with or without its byte order mark, or UTF-16 with. Any
other encoding is an error, because a guess gives wrong class names without a word.

The companions of images are files and masks with an image's name, and the files beside them.
Formats with a label file for each image are detected by them, and formats of images alone report
them (`detection.refuse_unread`), so that no format takes for class folders what another would read
as labels.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import stat
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

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


NOT_UTF8 = "not UTF-8: save it as UTF-8"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_START_BYTES = 16


def decode_text(data: bytes) -> str:
    """Return a text without its byte order mark.

    Raises:
        UnicodeError: It is in another encoding: "not UTF-8", and the fix.
    """
    try:
        _check_start(data)
        return data.decode(_codec_of(data))
    except UnicodeError as error:
        raise UnicodeError(f"{NOT_UTF8} ({error})") from error


def open_text(file: Any) -> io.TextIOWrapper:
    """Return an open file, from its start, as text without its byte order mark.

    Raises:
        UnicodeError: It is in another encoding, now or when it is read.
    """
    buffered = io.BufferedReader(file)
    start = buffered.peek(_START_BYTES)
    _check_start(start)
    return io.TextIOWrapper(buffered, _codec_of(start), newline="")


def utf8_of(data: bytes) -> bytes:
    """Return a text as UTF-8 without its byte order mark, for parsers that check UTF-8 themselves.

    Raises:
        UnicodeError: It is invalid UTF-16.
    """
    if data.startswith(_UTF16):
        return decode_text(data).encode()
    return data.removeprefix(codecs.BOM_UTF8)


def peek_text(start: bytes) -> str:
    """Return the first bytes of a file as text, to detect its format; nothing is an error."""
    return start.decode(_codec_of(start), "replace")


def _codec_of(start: bytes) -> str:
    return "utf-16" if start.startswith(_UTF16) else "utf-8-sig"


def _check_start(data: bytes) -> None:
    """Raise UnicodeError if a text is UTF-16 or UTF-32 without a mark."""
    if "\0" in peek_text(data[:_START_BYTES])[:4]:
        raise UnicodeError("it begins with NUL characters")


# Folders that only separate images from labels: images/train/a.jpg belongs to labels/train/a.txt.
_IMAGE_FOLDERS = frozenset({"data", "image", "images", "img", "imgs", "jpegimages"})
LABEL_FOLDERS = frozenset(
    {"annotation", "annotations", "label", "labels", "labeltxt", "xml", "xmls"}
)
KIND_FOLDERS = _IMAGE_FOLDERS | LABEL_FOLDERS
_MASK_FOLDERS = frozenset(
    {"gt", "groundtruth", "ground_truth", "label", "labels", "mask", "masks", "annotations"}
    | {"segmentation", "segmentationclass", "segmentationobject", "segmentations"}
)
_MASK_ENDING = re.compile(r"[-_ .](mask|masks|seg|segmentation)$", re.IGNORECASE)
_PROBES = 32  # label files read in detection
_FEW_MASKS = 10  # one image in so many may end in _mask by chance


class Companions(NamedTuple):
    """The files of INPUT by their relation to images, as far as detection looks.

    Attributes:
        images: Paths of images.
        named: Extension -> paths of files that have the name of an image.
        masks: Paths of images with the name of another image, in a folder of masks or with "_mask"
            after it.
        others: Paths of files without the name of an image.
        is_whole: False if INPUT may hold more.
    """

    images: Sequence[str]
    named: Mapping[str, Sequence[str]]
    masks: Sequence[str]
    others: Sequence[str]
    is_whole: bool

    def labels(self, extension: str) -> list[str]:
        """Return the paths of files that may be the labels of one image each.

        They have an image's name, or are in a folder of labels, whose images may be elsewhere.
        """
        in_folders = (
            path
            for path in self.others
            if extension_of(path) == extension
            and not LABEL_FOLDERS.isdisjoint(path.lower().split("/")[:-1])
        )
        return sorted({*self.named.get(extension, ()), *in_folders})


def image_key(path: str, left_out: Collection[str] = KIND_FOLDERS) -> tuple[str, ...]:
    """Return what an image and its label file share: folders, but those left out, and stem."""
    *folders, name = path.split("/")
    return (
        *(folder for folder in folders if folder.lower() not in left_out),
        name.rpartition(".")[0] or name,
    )


def find_companions(paths: Iterable[str], *, is_whole: bool) -> Companions:
    """Sort the paths of INPUT's files, or of the first ones, by their relation to images."""
    images: list[str] = []
    rest: list[str] = []
    for path in paths:
        (images if has_image_name(path) else rest).append(path)
    keys = set(map(image_key, images))
    named: dict[str, list[str]] = defaultdict(list)
    others: list[str] = []
    for path in rest:
        # A program may add its own extension to the whole name: a.jpg.json.
        has_name = image_key(path) in keys or has_image_name(path.rpartition(".")[0])
        (named[extension_of(path)] if has_name else others).append(path)
    return Companions(images, named, _masks_of(images), others, is_whole)


def _masks_of(images: Sequence[str]) -> list[str]:
    left_out = KIND_FOLDERS | _MASK_FOLDERS
    found, plain = [], set()
    for path in images:
        *folders, stem = image_key(path, left_out)
        bare = _MASK_ENDING.sub("", stem)
        in_folder = not _MASK_FOLDERS.isdisjoint(path.lower().split("/")[:-1])
        if in_folder or bare != stem:
            found.append((path, {(*folders, stem), (*folders, bare)}))
        else:
            plain.add((*folders, stem))
    masks = [path for path, keys in found if not keys.isdisjoint(plain)]
    return masks if _FEW_MASKS * len(masks) >= len(images) else []


def probes(paths: Sequence[str]) -> Sequence[str]:
    """Return some of many files, evenly: the first ones may be those of images without objects."""
    return paths[:: max(1, len(paths) // _PROBES)]
