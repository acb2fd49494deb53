"""List folders of images with a label file each (VOC, YOLO), and match labels to images."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import pyarrow as pa

from shardwright.errors import BuildError, StorageError
from shardwright.storage.addresses import is_remote
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.inputs.boxes import ImageObject, ImageSize, ObjectRows, with_objects
from shardwright.transforms.inputs.companions import KIND_FOLDERS, LABEL_FOLDERS, image_key
from shardwright.transforms.inputs.file_rules import Problem, has_image_name, split_of
from shardwright.transforms.inputs.foreign_text import decode_text
from shardwright.transforms.inputs.formats.folders import listed_below
from shardwright.transforms.inputs.image_rows import ImageRow, image_references
from shardwright.transforms.inputs.source import InputSource, Rows, SourceRequest
from shardwright.transforms.inputs.top_folders import names_state_splits
from shardwright.transforms.references import BATCH_ROWS
from shardwright.transforms.rejects import Reject, RejectReason, reason_of

MAX_LABEL_BYTES = 16 << 20
IMAGES, LABELS, LISTS, OTHERS, KNOWN = "images", "labels", "lists", "others", "known"
LIST_FOLDER = "imagesets/"
Key = tuple[str, ...]


class BadLabel(Exception):  # noqa: N818 - a fault of the file, not of the program
    """An invalid label file; the message is one line."""


class LabelFile(NamedTuple):
    """The objects of a label file, the size that it states of its image, and why it is invalid."""

    objects: list[ImageObject]
    size: ImageSize | None = None
    problem: Problem | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelTree(InputSource):
    """A tree of images and label files, which share the `image_key`.

    Class attributes:
        ending: The ending of label files, in lower case.
        needs_label: True if an image without a label file is a reject; else it has no objects.
        in_pixels: True if boxes are in pixels.
        unlisted: The reason of an image without a split.

    Attributes:
        root: The tree's folder.
        storage: Options of its store.
        types: Name -> type of each of `ImageObject.values`.
        places: Folder or list of images below the root -> its split. Images elsewhere are rejects.
        places_from: What states the places, for messages.
        of_folders: True if a folder of each path is a split.
    """

    ending: ClassVar[str]
    needs_label: ClassVar[bool]
    in_pixels: ClassVar[bool] = False
    unlisted: ClassVar[RejectReason]
    checks_links = True

    root: str
    storage: StorageOptions
    types: Mapping[str, pa.DataType]
    places: Mapping[str, str]
    places_from: str
    of_folders: bool

    def parse(self, data: bytes) -> LabelFile:
        """Return the content of a label file.

        Raises:
            BadLabel: The file is invalid.
        """
        raise NotImplementedError

    def kind_of(self, path: str) -> str:
        """Return what a file is: one of `IMAGES`, `LABELS`, `LISTS`, `OTHERS`, or `KNOWN`."""
        if has_image_name(path):
            return IMAGES
        if path in self.places:
            return LISTS
        return LABELS if path.lower().endswith(self.ending) else OTHERS

    def references(self, part: str) -> Rows:
        """Yield the tree's images, sorted by path, and rejects; the only part is ""."""
        del part
        found: dict[str, list[ImageRow]] = defaultdict(list)
        for file in list_tree(self.root, self.storage, self.folders):
            if isinstance(file, Reject):
                yield file
            else:
                found[self.kind_of(file.id)].append(file)
        keys = {image_key(image.id) for image in found[IMAGES]}
        splits, faults = self._listed_splits(found[LISTS], found[IMAGES], keys)
        yield from faults
        labels: dict[Key, list[ImageRow]] = defaultdict(list)
        for label in found[LABELS]:
            key, folders = image_key(label.id), label.id.lower().split("/")[:-1]
            if key in keys:
                labels[key].append(label)
            elif self.needs_label or not LABEL_FOLDERS.isdisjoint(folders):
                yield label.reject(RejectReason.MISSING_FILE, "there is no image of this name")
            else:
                found[OTHERS].append(label)
        for file in found[OTHERS]:
            yield file.reject(RejectReason.OTHER_FILE, "neither an image nor the labels of one")
        pairs: list[tuple[ImageRow, ImageRow | None]] = []
        for row in found[IMAGES]:
            key = image_key(row.id)
            image = row._replace(split=splits.get(key) or self._split_of(row.id))
            own = labels.get(key, [])
            if problem := self._problem(image, own):
                yield image.reject(*problem)
            else:
                pairs.append((image, own[0] if own else None))
        for start in range(0, len(pairs), BATCH_ROWS):
            # A batch at a time: the label files of millions of images do not fit into memory.
            yield from self._batch(pairs[start : start + BATCH_ROWS])

    def _split_of(self, path: str) -> str | None:
        """Return the split that an image's folders state; of several, the innermost place."""
        folders = path.split("/")[:-1]
        if not self.places:
            return split_of(folders) if self.of_folders else None
        above = ("/".join(folders[:depth]) for depth in range(len(folders), 0, -1))
        return next((self.places[folder] for folder in above if folder in self.places), None)

    def _problem(self, image: ImageRow, labels: Sequence[ImageRow]) -> Problem | None:
        if self.places and image.split is None:
            places = (f"{split}: {self.root}/{path}" for path, split in self.places.items())
            detail = f"in none of the places of {self.places_from} ({', '.join(places)})"
            return self.unlisted, f"{detail}: correct them, or move it"
        if len(labels) > 1:
            files = ", ".join(file.id for file in labels)
            return RejectReason.BAD_VALUE, f"it has several {self.ending} files: {files}"
        if self.needs_label and not labels:
            return RejectReason.MISSING_LABEL, f"it has no {self.ending} file"
        return None

    def _batch(self, pairs: Sequence[tuple[ImageRow, ImageRow | None]]) -> Rows:
        """Yield images with the objects of their label files, and rejects."""
        labels = [label for _, label in pairs if label]
        read = map_reads if is_remote(self.root) else map
        found = dict(zip(labels, read(self._read, labels), strict=True))
        images: list[ImageRow] = []
        sizes: list[ImageSize | None] = []
        objects: list[tuple[int, ImageObject]] = []
        for image, label in pairs:
            content = found[label] if label else LabelFile([])
            if content.problem:
                yield image.reject(*content.problem)
                continue
            objects += [(len(images), one) for one in content.objects]
            images.append(image)
            sizes.append(content.size)
        if images:
            its, stated = ObjectRows.of(objects, self.types), sizes if self.in_pixels else None
            yield from with_objects(image_references(images), its, stated, self.storage)

    def _read(self, label: ImageRow) -> LabelFile:
        """Return a label file, or why it cannot be read; raise as the store if that fails."""
        if label.num_bytes > MAX_LABEL_BYTES:
            detail = f"the label file {label.id} has {label.num_bytes:,} bytes"
            detail = f"{detail}; the limit is {MAX_LABEL_BYTES:,}"
            return LabelFile([], problem=(RejectReason.BAD_VALUE, detail))
        try:
            return self.parse(files_of(label.uri, self.storage).read_bytes(label.uri))
        except BadLabel as fault:
            return LabelFile([], problem=(RejectReason.BAD_VALUE, f"{label.id}: {fault}"))
        except StorageError as error:
            if (reason := reason_of(error)) is None:
                raise
            return LabelFile([], problem=(reason, f"its label file cannot be read: {error}"))

    def _listed_splits(
        self, lists: Sequence[ImageRow], images: Sequence[ImageRow], known: Container[Key]
    ) -> tuple[dict[Key, str], list[Reject]]:
        """Return the split of each listed image, and rejects for one in two, or without a file.

        Raises:
            BuildError: A list cannot be read: its images would be in another split, or in none.
        """
        splits: dict[Key, str] = {}
        rejects = []
        tops = {image.id.partition("/")[0] for image in images}
        # In the order of places: an image of two splits stays in the first.
        order = [*self.places]
        for file in sorted(lists, key=lambda file: order.index(file.id)):
            split = self.places[file.id]
            try:
                text = decode_text(files_of(file.uri, self.storage).read_bytes(file.uri))
            except StorageError as error:
                raise BuildError(f"cannot read the split list {file.uri}: {error}") from error
            except UnicodeError as error:
                raise BuildError(f"the split list {file.uri} is {error}") from error
            for line in filter(None, map(str.strip, text.splitlines())):
                name = _listed_name(file.id, line.removeprefix(f"{self.root}/"), tops)
                key = image_key(name if has_image_name(name) else f"{name}.")
                first = splits.setdefault(key, split)
                if first != split:
                    detail = f"listed in two splits; it stays in {first}"
                    rejects.append(Reject(name, file.uri, RejectReason.DUPLICATE_ID, detail))
                elif key not in known:
                    detail = f"listed as a {split} image, but there is no image of this name"
                    rejects.append(Reject(name, file.uri, RejectReason.MISSING_FILE, detail))
        return splits, rejects


def _listed_name(path: str, line: str, tops: Container[str]) -> str:
    """Return the path of a line of a list, without folders that INPUT lacks, as CVAT's data/.

    Lines of VOC's lists have no folders, and are relative to that of ImageSets/.
    """
    base, has_base, _ = path.lower().partition(LIST_FOLDER)
    if has_base:
        return path[: len(base)] + line
    parts = [part for part in line.split("/") if part not in ("", ".", "..")]
    while len(parts) > 1 and parts[0] not in tops:
        del parts[0]
    return "/".join(parts)


def list_tree(
    root: str, storage: StorageOptions, folders: tuple[str, ...] = ()
) -> Iterator[ImageRow | Reject]:
    """Yield the files below a folder by path, without litter, and rejects of bad ones.

    Args:
        root: The folder.
        storage: Options of its store.
        folders: As for `folders.listed_below`.

    Raises:
        BuildError: A link leads out of `folders`.
        StorageError: The store cannot be listed.
    """
    for file, problem in sorted(listed_below(root, storage, folders), key=lambda item: item[0].id):
        is_empty = problem and problem[0] == RejectReason.EMPTY_FILE
        # An empty label file means that its image has no objects.
        if problem is None or (is_empty and not has_image_name(file.id)):
            yield file
        elif problem[0] == RejectReason.OUTSIDE_INPUT:
            # Without a label file or a list, images would get no objects or another split.
            raise BuildError(f"{file.uri}: {problem[1]}")
        elif problem[0] != RejectReason.OTHER_FILE:
            yield file.reject(*problem)


def has_split_folders(request: SourceRequest, root: str) -> bool:
    """Return whether images are in folders of splits, in `root` or in its folders of images.

    Raises:
        UsageError: As `names_state_splits`.
        StorageError: A folder cannot be listed.
    """
    look_in = request.listings.look_in

    def holds_images(path: str, depth: int) -> bool:
        found = look_in(path)
        below = found.folders if depth else ()
        return found.has_images or any(holds_images(f"{path}/{one}", depth - 1) for one in below)

    names = look_in(root).folders
    kinds = [name for name in names if name.lower() in KIND_FOLDERS - LABEL_FOLDERS]
    for folder in (root, *(f"{root}/{name}" for name in kinds)):
        splits = {name: split_of([name]) for name in look_in(folder).folders}
        if any(splits.values()):
            # A folder without images, such as docs/, is in no split.
            parts = {
                name: split
                for name, split in splits.items()
                if split or holds_images(f"{folder}/{name}", 1)
            }
            loose = {"images": None} if look_in(folder).has_images else {}
            return names_state_splits(request, {**parts, **loose})
    return False
