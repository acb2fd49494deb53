"""Pascal VOC as input: images, each with an xml of its boxes.

Either VOC's own folders (`JPEGImages/`, `Annotations/`, `ImageSets/Main/{train,val,test}.txt` for
the splits; several of them in `VOCdevkit/`), or images with an xml of the same name beside them or
in `annotations/`. An image whose xml is missing or invalid is rejected; a box without area is
dropped (`boxes`). Masks in `SegmentationClass/` and `SegmentationObject/` are left out.

The first half lists any folder of images with a label file each, also for YOLO, and matches labels
to images.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, NoReturn
from xml.etree.ElementTree import XML, Element, ParseError, TreeBuilder, XMLParser

import pyarrow as pa

from shardwright.errors import BuildError, StorageError
from shardwright.storage.addresses import is_remote
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.inputs import boxes
from shardwright.transforms.inputs.boxes import (
    ImageObject,
    ImageSize,
    ObjectRows,
    stated_size,
    with_objects,
)
from shardwright.transforms.inputs.file_rules import (
    KIND_FOLDERS,
    LABEL_FOLDERS,
    Problem,
    decode_text,
    has_image_name,
    image_key,
    peek_text,
    probes,
    split_of,
)
from shardwright.transforms.inputs.folder_contents import read_starts
from shardwright.transforms.inputs.formats.folders import listed_below
from shardwright.transforms.inputs.input_files import names_state_splits
from shardwright.transforms.inputs.source import (
    ImageRow,
    InputSource,
    Rows,
    SourceRequest,
    image_references,
)
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


_EDGES = ("ymin", "xmin", "ymax", "xmax")
_NO_POSE = "unspecified"
_START_BYTES = 4096
_IS_ANNOTATION = re.compile(r"<annotation[\s>]")  # CVAT has <annotations>
_LISTS = "imagesets"
_MASKS = frozenset({"segmentationclass", "segmentationobject"})
_OWN_FOLDERS = {_LISTS, *_MASKS}
# List in ImageSets/Main -> its split.
SPLIT_LISTS: Mapping[str, str] = {"train.txt": "train", "val.txt": "validation", "test.txt": "test"}
_WHOLE_LIST = "trainval.txt"  # counts without the first two
_TYPES = boxes.value_types(boxes.LABEL, boxes.POSE, boxes.IS_TRUNCATED, boxes.IS_DIFFICULT)


def parse_voc(data: bytes) -> LabelFile:
    """Return the objects of a file as TFDS does, with boxes in pixels, and the image's size.

    The values of an object are its class, pose in lower case, and the flags truncated and difficult
    as 0 or 1. A missing flag is 0, a missing pose "unspecified".

    Raises:
        BadLabel: The file is not XML; it has a DOCTYPE, which no annotation needs and which can
            make a parser fill all memory; or an object has no name or box.
    """
    try:
        root = XML(data, XMLParser(target=_Builder()))
    # LookupError: an unknown encoding.
    except (ParseError, ValueError, LookupError) as error:
        raise BadLabel(f"it is not XML: {error}{_encoding_fault(data)}") from error
    if root.tag != "annotation":
        raise BadLabel(f"its root is <{root.tag[:50]}>, not <annotation>")
    sides = (_number(root, f"size/{side}") for side in ("height", "width"))
    return LabelFile([*_objects(root)], stated_size(*sides))


class _Builder(TreeBuilder):
    def doctype(self, *_: object) -> NoReturn:
        raise BadLabel("it has a DOCTYPE, which no annotation needs: remove it")


def _encoding_fault(data: bytes) -> str:
    """Return what is wrong with the encoding of a text that is not XML, "" if nothing is."""
    try:
        decode_text(data)
    except UnicodeError as error:
        return f" (it is {error})"
    return ""


def _objects(root: Element) -> Iterator[ImageObject]:
    for number, element in enumerate(root.findall("object"), 1):
        name = element.findtext("name", "").strip()
        if not name:
            raise BadLabel(f"object {number} has no <name>")
        edges = []
        for edge in _EDGES:
            value = _number(element, f"bndbox/{edge}")
            if value is None:
                raise BadLabel(f"object {number} ({name}) has no <bndbox> with a number as {edge}")
            edges.append(value)
        pose = element.findtext("pose", "").strip().lower() or _NO_POSE
        flags = (element.findtext(flag, "").strip() == "1" for flag in ("truncated", "difficult"))
        yield ImageObject(number, tuple(edges), (name, pose, *map(int, flags)))


def _number(element: Element, path: str) -> float | None:
    try:
        return float(element.findtext(path, ""))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class VocSource(LabelTree):
    """A tree of images and xml files."""

    summary = "Pascal VOC: images and an .xml for each"
    rank = 51
    ending = ".xml"
    needs_label = True
    in_pixels = True
    unlisted = RejectReason.OTHER_FILE

    @classmethod
    def look(cls, request: SourceRequest) -> VocSource | None:
        """Return a VOC tree as a source; None if INPUT is something else.

        Raises:
            UsageError: The format is forced and there is no xml, or an option gives a column.
            StorageError: A folder cannot be listed.
        """
        bases = _bases(request)
        if not bases:
            request.refuse_if_forced(
                "has no xml annotations: give a folder with JPEGImages/ and Annotations/ in it"
            )
            return None
        request.refuse_columns("Pascal VOC")
        look_in = request.listings.look_in
        inside = [(base, folder) for base in bases for folder in look_in(base).folders]
        places: dict[str, str] = {}
        for base, folder in inside:
            if folder.lower() == _LISTS:
                main = f"{base}/{folder}/Main"
                there = {name.lower(): name for name in look_in(main).files}
                lists = {there[one]: split for one, split in SPLIT_LISTS.items() if one in there}
                if _WHOLE_LIST in there and {*lists.values()} <= {"test"}:
                    lists[there[_WHOLE_LIST]] = "train"
                below = main.removeprefix(request.uri).lstrip("/")
                places |= {f"{below}/{name}": split for name, split in lists.items()}
        of_folders = not places and has_split_folders(request, bases[0])
        splits = ", split folders" if of_folders else ""
        splits = ", splits from ImageSets/Main" if places else splits
        has_masks = any(folder.lower() in _MASKS for _, folder in inside)
        left_out = "; masks left out, which --schema segmentation takes from a table" * has_masks
        return VocSource(
            f"Pascal VOC at {request.uri}: images with an xml of boxes for each{splits}{left_out}",
            boxes.objects_schema(_TYPES),
            boxes.value_features(_TYPES),
            states_splits=bool(places) or of_folders,
            labels_from="the names in the xml files",
            root=request.uri,
            storage=request.storage,
            types=_TYPES,
            places=places,
            places_from="ImageSets/Main",
            of_folders=of_folders,
        )

    def parse(self, data: bytes) -> LabelFile:
        return parse_voc(data)

    def kind_of(self, path: str) -> str:
        """Return what a file is; a mask is no image."""
        is_own = not _OWN_FOLDERS.isdisjoint(path.lower().split("/")[:-1])
        return KNOWN if is_own and path not in self.places else super(VocSource, self).kind_of(path)


def _bases(request: SourceRequest) -> list[str]:
    """Return the folders of VOC's layout, or of images and xmls: INPUT, or those in `VOCdevkit`."""
    xmls = request.listings.companions_in(request.uri).labels("xml")
    starts = read_starts(request.uri, probes(xmls), request.storage, _START_BYTES)
    if not request.forced and not any(map(_IS_ANNOTATION.search, map(peek_text, starts))):
        return []
    return sorted({f"{request.uri}/{_base(path)}".rstrip("/") for path in xmls})


def _base(path: str) -> str:
    """Return the folder above that of annotations or of a split; "" without one."""
    folders = path.split("/")[:-1]
    # In data/VOC2007/Annotations, `data` is no folder of images.
    kinds = {folder.lower() for folder in folders} & LABEL_FOLDERS or KIND_FOLDERS
    places = (
        place for place, name in enumerate(folders) if name.lower() in kinds or split_of([name])
    )
    return "/".join(folders[: next(places, 0)])
