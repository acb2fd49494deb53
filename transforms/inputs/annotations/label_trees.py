"""List folders of images with a label file each (VOC, YOLO), and match labels to images."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from shardwright.errors import BuildError, StorageError
from shardwright.storage.addresses import is_remote, key_problem, parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.folder import files_of
from shardwright.storage.listing import list_pages
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.inputs.annotations.boxes import ObjectRows, object_columns
from shardwright.transforms.inputs.file_rules import (
    Problem,
    etag_of,
    file_problem,
    has_image_name,
    is_litter,
    size_problem,
)
from shardwright.transforms.inputs.folders.local_folders import walk
from shardwright.transforms.inputs.image_rows import ImageRow, image_references
from shardwright.transforms.rejects import Reject, RejectReason, reason_of

MAX_LABEL_BYTES = 16 << 20
# Folders that only separate images from labels: images/train/a.jpg belongs to labels/train/a.txt.
_KIND_FOLDERS = frozenset({"annotations", "images", "jpegimages", "labels", "xmls"})


class TreeFile(NamedTuple):
    """A file of a tree: its path below the root, its address, its length in bytes, its etag."""

    path: str
    uri: str
    num_bytes: int
    etag: str | None

    def reject(self, reason: RejectReason, detail: str) -> Reject:
        return Reject(self.path, self.uri, reason, detail)


def list_tree(
    root: str, storage: StorageOptions, folders: tuple[str, ...] = ()
) -> tuple[list[TreeFile], list[Reject]]:
    """Return the files below a folder by path, without litter, and rejects of bad ones.

    Args:
        root: The folder.
        storage: Options of its store.
        folders: As for `local_folders.walk`.

    Raises:
        BuildError: A link leads out of `folders`.
        StorageError: The store cannot be listed.
    """
    found = sorted(
        _objects(root, storage) if is_remote(root) else _files(root, folders),
        key=lambda item: item[0].path,
    )
    files = [file for file, problem in found if problem is None]
    return files, [file.reject(*problem) for file, problem in found if problem is not None]


def _files(root: str, folders: tuple[str, ...]) -> Iterator[tuple[TreeFile, Problem | None]]:
    for relative, entry, problem in walk(root, folders):
        name = os.fsencode(relative).decode("utf-8", "backslashreplace")
        file = TreeFile(name, f"{root}/{name}", 0, None)
        if name != relative:
            yield file, (RejectReason.BAD_ID, "the file's name is not UTF-8: rename it")
        elif problem and problem[0] == RejectReason.OUTSIDE_INPUT:
            # Without a label file or a list, images would get no objects or another split.
            raise BuildError(f"{file.uri}: {problem[1]}")
        elif problem or entry is None:
            if problem and problem[0] != RejectReason.OTHER_FILE:
                yield file, problem
        else:
            try:
                status = entry.stat()
            except OSError as error:
                yield (
                    file,
                    (
                        RejectReason.MISSING_FILE,
                        f"a broken link, or deleted after it was listed ({error.strerror})",
                    ),
                )
                continue
            yield (
                TreeFile(relative, entry.path, status.st_size, etag_of(status)),
                _named_problem(relative, file_problem(status)),
            )


def _objects(root: str, storage: StorageOptions) -> Iterator[tuple[TreeFile, Problem | None]]:
    store, prefix = parse_address(root)
    start = len(prefix) + 1 if prefix else 0
    for page in list_pages(client_for(store, storage), prefix):
        for row in page:
            relative = row.key[start:]
            if any(is_litter(part) for part in relative.split("/") if part not in (".", "..")):
                continue
            if not row.num_bytes and "." not in relative.rpartition("/")[2]:
                continue  # a folder marker
            odd = key_problem(row.key)
            problem = (
                (RejectReason.BAD_ID, f"the object {odd}")
                if odd
                else _named_problem(relative, size_problem(row.num_bytes))
            )
            yield TreeFile(relative, f"{store}/{row.key}", row.num_bytes, row.etag or None), problem


def _named_problem(path: str, problem: Problem | None) -> Problem | None:
    """Ignore EMPTY_FILE for label files: an empty one means that its image has no objects."""
    return (
        None
        if problem and problem[0] == RejectReason.EMPTY_FILE and not has_image_name(path)
        else problem
    )


def label_key(path: str) -> tuple[str, ...]:
    """Return what an image and its label file share: folders, without `_KIND_FOLDERS`, and stem."""
    *folders, name = path.split("/")
    return (
        *(folder for folder in folders if folder.lower() not in _KIND_FOLDERS),
        name.rpartition(".")[0] or name,
    )


def read_labels(
    files: Sequence[TreeFile], storage: StorageOptions
) -> Iterator[tuple[TreeFile, bytes | Problem]]:
    """Yield each file with its bytes, or why they cannot be read; objects are read concurrently.

    Raises:
        StorageError: The store fails.
    """

    def read(file: TreeFile) -> bytes | Problem:
        if file.num_bytes > MAX_LABEL_BYTES:
            return (
                RejectReason.BAD_VALUE,
                f"the label file {file.path} has {file.num_bytes:,} bytes; "
                f"the limit is {MAX_LABEL_BYTES:,}",
            )
        try:
            return files_of(file.uri, storage).read_bytes(file.uri)
        except StorageError as error:
            reason = reason_of(error)
            if reason is None:
                raise
            return reason, f"its label file cannot be read: {error}"

    remote = bool(files) and is_remote(files[0].uri)
    return zip(files, map_reads(read, files) if remote else map(read, files), strict=True)


def read_lists(
    files: Sequence[TreeFile], storage: StorageOptions
) -> Iterator[tuple[TreeFile, list[str]]]:
    """Yield each split list with its lines.

    Raises:
        BuildError: A list cannot be read: its images would be in another split, or in none.
    """
    for file in files:
        try:
            data = files_of(file.uri, storage).read_bytes(file.uri)
        except StorageError as error:
            raise BuildError(f"cannot read the split list {file.uri}: {error}") from error
        yield file, data.decode("utf-8-sig", "replace").splitlines()


def tree_batch(
    images: Sequence[TreeFile],
    splits: Sequence[str | None],
    objects: ObjectRows,
    extras: Mapping[str, pa.Array],
) -> Iterator[pa.RecordBatch | Reject]:
    """Yield a reject for each box without area, and the images with their objects and `extras`."""
    columns, empty = object_columns(objects, [image.uri for image in images])
    yield from empty
    yield tree_references(images, splits, {**columns, **extras})


def tree_references(
    images: Sequence[TreeFile], splits: Sequence[str | None], extras: Mapping[str, pa.Array]
) -> pa.RecordBatch:
    """Return a tree's images as a reference batch, followed by the columns of `extras`."""
    rows = [
        ImageRow(image.path, image.uri, image.num_bytes, image.etag, split, None)
        for image, split in zip(images, splits, strict=True)
    ]
    batch = image_references(rows)
    return pa.RecordBatch.from_arrays(
        [*batch.columns, *extras.values()], [*batch.schema.names, *extras]
    )
