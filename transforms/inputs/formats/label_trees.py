"""List folders of images with a label file each (VOC, YOLO), and match labels to images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shardwright.errors import BuildError, StorageError
from shardwright.storage.addresses import is_remote
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.inputs.boxes import ImageSize, ObjectRows, with_objects
from shardwright.transforms.inputs.file_rules import Problem, has_image_name, split_of
from shardwright.transforms.inputs.foreign_text import decode_text
from shardwright.transforms.inputs.formats.folders import listed_below
from shardwright.transforms.inputs.image_rows import ImageRow, image_references
from shardwright.transforms.inputs.source import Rows, SourceRequest
from shardwright.transforms.inputs.top_folders import names_state_splits
from shardwright.transforms.references import BATCH_ROWS
from shardwright.transforms.rejects import Reject, RejectReason, reason_of

MAX_LABEL_BYTES = 16 << 20


class TreeObject(NamedTuple):
    """An object of an image.

    Attributes:
        number: Its number or line in the label file.
        box: Its box.
        values: Its other values.
        size: The height and width in pixels that its box was divided by; None for fractions.
    """

    number: int
    box: tuple[float, ...]
    values: tuple[object, ...]
    size: ImageSize | None = None


def list_tree(
    root: str, storage: StorageOptions, folders: tuple[str, ...] = ()
) -> tuple[list[ImageRow], list[Reject]]:
    """Return the files below a folder by path, without litter, and rejects of bad ones.

    Args:
        root: The folder.
        storage: Options of its store.
        folders: As for `folders.walk`.

    Raises:
        BuildError: A link leads out of `folders`.
        StorageError: The store cannot be listed.
    """
    files, rejects = [], []
    for file, problem in sorted(listed_below(root, storage, folders), key=lambda item: item[0].id):
        is_empty = problem and problem[0] == RejectReason.EMPTY_FILE
        # An empty label file means that its image has no objects.
        if problem is None or (is_empty and not has_image_name(file.id)):
            files.append(file)
        elif problem[0] == RejectReason.OUTSIDE_INPUT:
            # Without a label file or a list, images would get no objects or another split.
            raise BuildError(f"{file.uri}: {problem[1]}")
        elif problem[0] != RejectReason.OTHER_FILE:
            rejects.append(file.reject(*problem))
    return files, rejects


def read_labels(
    files: Sequence[ImageRow], storage: StorageOptions
) -> Iterator[tuple[ImageRow, bytes | Problem]]:
    """Yield each file with its bytes, or why they cannot be read; objects are read concurrently.

    Raises:
        StorageError: The store fails.
    """

    def read(file: ImageRow) -> bytes | Problem:
        if file.num_bytes > MAX_LABEL_BYTES:
            return (
                RejectReason.BAD_VALUE,
                f"the label file {file.id} has {file.num_bytes:,} bytes; "
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


def has_split_folders(request: SourceRequest, folder: str, names: Sequence[str]) -> bool:
    """Return whether the images in a folder are in folders of splits, as far as a look shows.

    Args:
        request: The request for INPUT.
        folder: The folder.
        names: Folders in it that may be splits. Those without images are none.

    Raises:
        UsageError: As `names_state_splits`.
        StorageError: A folder cannot be listed.
    """
    splits = {name: split for name in names if (split := split_of([name]))}
    if not splits:
        return False
    look_in = request.listings.look_in

    def holds_images(path: str, *, deeper: bool) -> bool:
        found = look_in(path)
        return any(map(has_image_name, found.files)) or (
            deeper and any(holds_images(f"{path}/{one}", deeper=False) for one in found.folders)
        )

    others = [
        name
        for name in names
        if name not in splits and holds_images(f"{folder}/{name}", deeper=True)
    ]
    others += ["images"] * holds_images(folder, deeper=False)
    return names_state_splits(request, {**splits, **dict.fromkeys(others)})


def read_lists(
    files: Sequence[ImageRow], storage: StorageOptions
) -> Iterator[tuple[ImageRow, list[str]]]:
    """Yield each split list with its lines.

    Raises:
        BuildError: A list cannot be read: its images would be in another split, or in none.
    """
    for file in files:
        try:
            text = decode_text(files_of(file.uri, storage).read_bytes(file.uri))
        except StorageError as error:
            raise BuildError(f"cannot read the split list {file.uri}: {error}") from error
        except UnicodeError as error:
            raise BuildError(f"the split list {file.uri} is {error}") from error
        yield file, text.splitlines()


def list_labelled(
    pairs: Sequence[tuple[ImageRow, ImageRow | None]],
    storage: StorageOptions,
    parse: Callable[[ImageRow, ImageRow | None, bytes], Sequence[TreeObject] | Problem],
    columns: Mapping[str, pa.DataType],
    split_of_path: Callable[[str], str | None],
    *,
    corners: Callable[[NDArray[np.float64]], NDArray[np.float64]] = np.asarray,
    in_pixels: bool = False,
    extras: Callable[[Sequence[ImageRow]], Mapping[str, pa.Array]] = lambda _: {},
) -> Rows:
    """Yield images with their objects, and a reject for each bad label file and bad box.

    Args:
        pairs: The images, each with its label file, or None.
        storage: Options of their store.
        parse: Returns the objects of an image, given its label file and the content, or why there
            are none.
        columns: Name and type of each of `TreeObject.values`.
        split_of_path: Returns the split of an image's path.
        corners: Returns the boxes of objects as `boxes.ObjectRows` has them, shape [n, 4].
        in_pixels: True if objects have a `size`.
        extras: Returns further columns of images.
    """
    for start in range(0, len(pairs), BATCH_ROWS):
        batch = pairs[start : start + BATCH_ROWS]
        # A batch at a time: the label files of millions of images do not fit into memory.
        contents = dict(read_labels([label for _, label in batch if label], storage))
        images: list[ImageRow] = []
        rows: list[int] = []
        objects: list[TreeObject] = []
        for image, label in batch:
            content = contents[label] if label else b""
            found = parse(image, label, content) if isinstance(content, bytes) else content
            if isinstance(found, tuple):
                yield image.reject(*found)
                continue
            rows += [len(images)] * len(found)
            images.append(image)
            objects += found
        if images:
            edges = corners(np.array([one.box for one in objects], float).reshape(-1, 4))
            found_objects = _object_rows(images, rows, objects, edges, columns, in_pixels=in_pixels)
            references = image_references(
                [image._replace(split=split_of_path(image.id)) for image in images]
            )
            yield from with_objects(references, found_objects, extras(images))


def _object_rows(
    images: Sequence[ImageRow],
    rows: Sequence[int],
    objects: Sequence[TreeObject],
    edges: NDArray[np.float64],
    columns: Mapping[str, pa.DataType],
    *,
    in_pixels: bool,
) -> ObjectRows:
    """Return the objects of images, given the row of each one's image and its corners."""
    values = {
        name: pa.array([one.values[place] for one in objects], kind)
        for place, (name, kind) in enumerate(columns.items())
    }
    names = [f"{images[row].id}#{one.number}" for row, one in zip(rows, objects, strict=True)]
    sizes = np.array([one.size for one in objects], float).reshape(-1, 2) if in_pixels else None
    return ObjectRows(np.array(rows, np.int64), edges, values, names, sizes)
