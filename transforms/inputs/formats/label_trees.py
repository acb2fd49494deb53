"""List folders of images with a label file each (VOC, YOLO), and match labels to images."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from shardwright.errors import BuildError, StorageError
from shardwright.storage.addresses import is_remote
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.inputs.boxes import ImageObject, object_rows, sizes_of, with_objects
from shardwright.transforms.inputs.companions import image_key
from shardwright.transforms.inputs.file_rules import Problem, has_image_name, split_of
from shardwright.transforms.inputs.foreign_text import decode_text
from shardwright.transforms.inputs.formats.folders import listed_below
from shardwright.transforms.inputs.image_rows import ImageRow, image_references
from shardwright.transforms.inputs.source import Rows, SourceRequest
from shardwright.transforms.inputs.top_folders import names_state_splits
from shardwright.transforms.references import BATCH_ROWS
from shardwright.transforms.rejects import Reject, RejectReason, reason_of

MAX_LABEL_BYTES = 16 << 20


def list_tree(
    root: str, storage: StorageOptions, folders: tuple[str, ...] = ()
) -> tuple[list[ImageRow], list[Reject]]:
    """Return the files below a folder by path, without litter, and rejects of bad ones.

    Args:
        root: The folder.
        storage: Options of its store.
        folders: As for `folders.listed_below`.

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


def by_kind(
    files: Iterable[ImageRow], kind_of: Callable[[str], str]
) -> Mapping[str, list[ImageRow]]:
    """Return files by their kind; `kind_of` returns that of a path."""
    found: dict[str, list[ImageRow]] = defaultdict(list)
    for file in files:
        found[kind_of(file.id)].append(file)
    return found


def listed_splits(
    lists: Iterable[tuple[ImageRow, str]],
    known: Container[str],
    name_of: Callable[[ImageRow, str], str],
    storage: StorageOptions,
) -> tuple[dict[str, str], list[Reject]]:
    """Return the split of each listed name, and a reject for one in two splits or without image.

    Args:
        lists: Files with an image a line, each with its split.
        known: The names of images.
        name_of: Returns the name of an image, given its list and line.
        storage: Options of the lists' store.

    Raises:
        BuildError: A list cannot be read: its images would be in another split, or in none.
    """
    splits: dict[str, str] = {}
    rejects = []
    for file, split in lists:
        try:
            text = decode_text(files_of(file.uri, storage).read_bytes(file.uri))
        except StorageError as error:
            raise BuildError(f"cannot read the split list {file.uri}: {error}") from error
        except UnicodeError as error:
            raise BuildError(f"the split list {file.uri} is {error}") from error
        for line in filter(None, map(str.strip, text.splitlines())):
            name = name_of(file, line)
            first = splits.setdefault(name, split)
            if first != split:
                detail = f"listed in two splits; it stays in {first}"
                rejects.append(Reject(name, file.uri, RejectReason.DUPLICATE_ID, detail))
            elif name not in known:
                detail = f"listed as a {split} image, but there is no image of this name"
                rejects.append(Reject(name, file.uri, RejectReason.MISSING_FILE, detail))
    return splits, rejects


def list_labelled(
    images: Sequence[ImageRow],
    labels: Iterable[ImageRow],
    storage: StorageOptions,
    parse: Callable[[str, bytes], Sequence[ImageObject] | Problem],
    columns: Mapping[str, pa.DataType],
    split_of_path: Callable[[str], str | None],
    *,
    kind: str,
    without_split: Problem | None,
    without_label: Problem | None = None,
    in_pixels: bool = False,
    extras: Callable[[Sequence[ImageRow]], Mapping[str, pa.Array]] = lambda _: {},
) -> Rows:
    """Yield images with their objects, and a reject for each bad label file and bad box.

    Args:
        images: The images.
        labels: Their label files, which share the `image_key`.
        storage: Options of their store.
        parse: Returns the objects of a label file, given its path and content, or why there are
            none.
        columns: Name and type of each of `ImageObject.values`.
        split_of_path: Returns the split of an image's path.
        kind: The label files in words.
        without_split: Why an image without a split is a reject; None if it is none.
        without_label: Why an image without a label file is a reject; None if it has no objects.
        in_pixels: True if boxes are in pixels.
        extras: Returns further columns of images.
    """
    labels_of: dict[tuple[str, ...], list[ImageRow]] = defaultdict(list)
    for label in labels:
        labels_of[image_key(label.id)].append(label)
    pairs: list[tuple[ImageRow, ImageRow | None]] = []
    for row in images:
        image = row._replace(split=split_of_path(row.id))
        found = labels_of.get(image_key(image.id), [])
        if without_split and image.split is None:
            yield image.reject(*without_split)
        elif len(found) > 1:
            detail = f"it has several {kind}: {', '.join(file.id for file in found)}"
            yield image.reject(RejectReason.BAD_VALUE, detail)
        elif without_label and not found:
            yield image.reject(*without_label)
        else:
            pairs.append((image, found[0] if found else None))
    for start in range(0, len(pairs), BATCH_ROWS):
        batch = pairs[start : start + BATCH_ROWS]
        # A batch at a time: the label files of millions of images do not fit into memory.
        contents = dict(read_labels([label for _, label in batch if label], storage))
        kept: list[ImageRow] = []
        rows: list[int] = []
        objects: list[ImageObject] = []
        for image, file in batch:
            content = contents[file] if file else b""
            parsed = (
                parse(file.id if file else "", content) if isinstance(content, bytes) else content
            )
            if isinstance(parsed, tuple):
                yield image.reject(*parsed)
                continue
            rows += [len(kept)] * len(parsed)
            kept.append(image)
            objects += parsed
        if kept:
            sizes = None
            if in_pixels:
                stated = dict(zip(rows, (one.size for one in objects), strict=True))
                uris = [image.uri for image in kept]
                sizes = sizes_of([stated.get(row) for row in range(len(kept))], rows, uris, storage)
            ids = [image.id for image in kept]
            found_objects = object_rows(ids, rows, objects, columns, sizes)
            yield from with_objects(image_references(kept), found_objects, extras(kept))
