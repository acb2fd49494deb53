"""Pascal VOC as input: images, each with an xml of its boxes.

Either VOC's own folders (`JPEGImages/`, `Annotations/`, `ImageSets/Main/{train,val,test}.txt` for
the splits; several of them in `VOCdevkit/`), or images with an xml of the same name beside them or
in `annotations/`. An image whose xml is missing or invalid is rejected; a box without area is
dropped (`boxes`). Masks in `SegmentationClass/` and `SegmentationObject/` become the columns
`segmentation` and `segmentation_object`, for schemas that use them.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple, NoReturn
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import pyarrow as pa

from shardwright.format.schema import Feature, FeatureKind
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs import boxes
from shardwright.transforms.inputs.boxes import ImageSize, read_size, stated_size
from shardwright.transforms.inputs.companions import KIND_FOLDERS, image_key, probes
from shardwright.transforms.inputs.file_rules import Problem, has_image_name, split_of
from shardwright.transforms.inputs.folder_contents import read_starts
from shardwright.transforms.inputs.foreign_text import decode_text, peek_text
from shardwright.transforms.inputs.formats.label_trees import (
    TreeObject,
    has_split_folders,
    list_labelled,
    list_tree,
    read_lists,
)
from shardwright.transforms.inputs.image_rows import ImageRow
from shardwright.transforms.inputs.source import InputSource, Rows, SourceRequest
from shardwright.transforms.references import (
    PICTURE_TYPE,
    STATED_SIZE,
    STATED_SIZE_TYPE,
    ImagePlace,
    extra_name,
    reference_schema,
)
from shardwright.transforms.rejects import Reject, RejectReason

_EDGES = ("ymin", "xmin", "ymax", "xmax")
_NO_POSE = "unspecified"
_START_BYTES = 4096
_IS_ANNOTATION = re.compile(r"<annotation[\s>]")  # CVAT has <annotations>
# Folder of masks, in lower case -> the column of its images.
MASKS: Mapping[str, str] = {
    "segmentationclass": "segmentation",
    "segmentationobject": "segmentation_object",
}
# List in ImageSets/Main -> its split.
SPLIT_LISTS: Mapping[str, str] = {
    "train.txt": "train",
    "val.txt": "validation",
    "test.txt": "test",
    "trainval.txt": "train",
}
_OBJECT_TYPES = {
    boxes.BOX: boxes.BOX_TYPE,
    boxes.LABEL: pa.string(),
    boxes.POSE: pa.string(),
    boxes.IS_TRUNCATED: pa.int64(),
    boxes.IS_DIFFICULT: pa.int64(),
}
_FEATURES = (
    *boxes.box_features(()),
    Feature(boxes.POSE, FeatureKind.CLASS_LABEL, shape=(None,), sequence="objects"),
    boxes.flag_feature(boxes.IS_TRUNCATED),
    boxes.flag_feature(boxes.IS_DIFFICULT),
)
_Key = tuple[str, ...]


class BadLabel(Exception):  # noqa: N818 - a fault of the file, not of the program
    """An invalid label file; the message is one line."""


class VocObject(NamedTuple):
    """An object: its class, its box in pixels (ymin, xmin, ymax, xmax), its pose and flags."""

    name: str
    edges: tuple[float, float, float, float]
    pose: str
    is_truncated: bool
    is_difficult: bool


class VocLabel(NamedTuple):
    """The content of an annotation file; `size` is None if the file states none."""

    size: ImageSize | None
    objects: tuple[VocObject, ...]


def parse_voc(data: bytes) -> VocLabel:
    """Parse a file as TFDS does: pixels unchanged, poses in lower case.

    A missing flag is False, a missing pose "unspecified".

    Raises:
        BadLabel: The file is not XML; it has a DOCTYPE, which no annotation needs and which can
            make a parser fill all memory; or an object has no name or box.
    """
    root = _parse_xml(data)
    if root.tag != "annotation":
        raise BadLabel(f"its root is <{root.tag[:50]}>, not <annotation>")
    sides = (_number(root.findtext(f"size/{side}")) for side in ("height", "width"))
    return VocLabel(stated_size(*sides), tuple(_objects(root)))


def _objects(root: Element) -> Iterator[VocObject]:
    for number, element in enumerate(root.findall("object"), 1):
        name = _text(element, "name")
        if not name:
            raise BadLabel(f"object {number} has no <name>")
        edges = tuple(_number(element.findtext(f"bndbox/{edge}")) for edge in _EDGES)
        missing = next(
            (edge for edge, value in zip(_EDGES, edges, strict=True) if value is None), None
        )
        if missing:
            raise BadLabel(f"object {number} ({name}) has no <bndbox> with a number as {missing}")
        flags = (_text(element, flag) == "1" for flag in ("truncated", "difficult"))
        yield VocObject(name, edges, _text(element, "pose").lower() or _NO_POSE, *flags)  # type: ignore[arg-type]  # none is None


def _text(element: Element, tag: str) -> str:
    return (element.findtext(tag) or "").strip()


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _parse_xml(data: bytes) -> Element:
    builder, parser = TreeBuilder(), expat.ParserCreate()
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        parser.Parse(data, True)
        return builder.close()
    # LookupError: an unknown encoding.
    except (expat.ExpatError, ValueError, LookupError, AssertionError) as error:
        raise BadLabel(f"it is not XML: {error}{_encoding_fault(data)}") from error


def _encoding_fault(data: bytes) -> str:
    """Return what is wrong with the encoding of a text that is not XML, "" if nothing is."""
    try:
        decode_text(data)
    except UnicodeError as error:
        return f" (it is {error})"
    return ""


def _refuse_doctype(*_: object) -> NoReturn:
    raise BadLabel("it has a DOCTYPE, which no annotation needs: remove it")


@dataclass(frozen=True, slots=True, kw_only=True)
class VocSource(InputSource):
    """A tree of images and xml files.

    Attributes:
        root: The tree's folder.
        has_lists: True if `ImageSets/Main` assigns images to splits; unlisted images are rejected.
        has_split_folders: True if the first folder of each path is a split.
        has_masks: True if there are folders of masks.
        storage: Options of the tree's store.
    """

    summary = "Pascal VOC: images and an .xml for each"
    rank = 51
    checks_links = True

    root: str
    has_lists: bool
    has_split_folders: bool
    has_masks: bool
    storage: StorageOptions

    @classmethod
    def look(cls, request: SourceRequest) -> VocSource | None:
        """Return a VOC tree as a source; None if INPUT is something else.

        Raises:
            UsageError: The format is forced and there is no xml, or an option gives a column.
            StorageError: A folder cannot be listed.
        """
        root = request.uri
        is_folder = request.is_remote or os.path.isdir(root)
        bases = _bases(request) if is_folder else []
        if not bases:
            request.refuse_if_forced(
                "has no xml annotations: give a folder with JPEGImages/ and Annotations/ in it"
            )
            return None
        request.refuse_columns("Pascal VOC")
        look_in = request.listings.look_in
        insides = {base: look_in(base).folders for base in bases}
        has_masks = any(
            folder.lower() in MASKS for folders in insides.values() for folder in folders
        )
        has_lists = any(
            name.lower() in SPLIT_LISTS
            for base, folders in insides.items()
            for folder in folders
            if folder.lower() == "imagesets"
            for name in look_in(f"{base}/{folder}/Main").files
        )
        of_folders = not has_lists and has_split_folders(request, bases[0], insides[bases[0]])
        splits = ", split folders" if of_folders else ""
        splits = ", splits from ImageSets/Main" if has_lists else splits
        masks = [(name, PICTURE_TYPE) for name in MASKS.values()] if has_masks else []
        return VocSource(
            f"Pascal VOC at {request.uri}: images with an xml of boxes for each{splits}"
            + ", masks" * has_masks,
            reference_schema(
                [
                    *((name, pa.list_(kind)) for name, kind in _OBJECT_TYPES.items()),
                    (STATED_SIZE, STATED_SIZE_TYPE),
                    *masks,
                ]
            ),
            _FEATURES,
            states_splits=has_lists or of_folders,
            labels_from="the names in the xml files",
            root=request.uri,
            has_lists=has_lists,
            has_split_folders=of_folders,
            has_masks=has_masks,
            storage=request.storage,
        )

    def references(self, part: str) -> Rows:
        """Yield the tree's images, sorted by path, and rejects; the only part is ""."""
        del part
        files, rejects = list_tree(self.root, self.storage, self.folders)
        yield from rejects
        tree = _sort(files)
        splits, faults = _listed_splits(self, tree) if self.has_lists else ({}, [])
        yield from faults
        yield from _without_image(self, tree, splits)
        wanted: list[tuple[ImageRow, ImageRow | None]] = []
        for image in tree.images:
            found = tree.labels.get(image_key(image.id), [])
            if self.has_lists and image_key(image.id) not in splits:
                yield image.reject(
                    RejectReason.OTHER_FILE, "in none of the lists of ImageSets/Main"
                )
            elif len(found) == 1:
                wanted.append((image, found[0]))
            else:
                several = f"it has several xml files: {', '.join(file.id for file in found)}"
                yield (
                    image.reject(RejectReason.BAD_VALUE, several)
                    if found
                    else image.reject(RejectReason.MISSING_LABEL, "it has no xml file")
                )
        of_folder = self.has_split_folders and not self.has_lists

        def split_of_path(path: str) -> str | None:
            return split_of(path.split("/")[:1]) if of_folder else splits.get(image_key(path))

        def masks_of(images: Sequence[ImageRow]) -> dict[str, pa.Array]:
            columns: dict[str, pa.Array] = {}
            for name, masks in tree.masks.items() if self.has_masks else ():
                files = (masks.get(image_key(image.id)) for image in images)
                places = [
                    one and ImagePlace(one.uri, None, one.num_bytes, one.etag) for one in files
                ]
                columns[extra_name(name)] = pa.array(places, PICTURE_TYPE)
            return columns

        parse = partial(_objects_of, self.storage)
        columns = dict(islice(_OBJECT_TYPES.items(), 1, None))
        yield from list_labelled(
            wanted, self.storage, parse, columns, split_of_path, in_pixels=True, extras=masks_of
        )


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
    places = (
        place
        for place, name in enumerate(folders)
        if name.lower() in KIND_FOLDERS or split_of([name])
    )
    return "/".join(folders[: next(places, 0)])


@dataclass(slots=True)
class _Tree:
    """The files of a tree by kind; labels and masks by the `image_key` shared with their image."""

    images: list[ImageRow]
    labels: dict[_Key, list[ImageRow]]
    masks: dict[str, dict[_Key, ImageRow]]
    lists: list[ImageRow]
    others: list[ImageRow]


def _without_image(source: VocSource, tree: _Tree, splits: Mapping[_Key, str]) -> Iterator[Reject]:
    """Yield a reject for each listed name and each annotation without an image, and other files."""
    keys = {image_key(image.id) for image in tree.images}
    for key, split in splits.items():
        if key not in keys:
            yield Reject(
                "/".join(key),
                source.root,
                RejectReason.MISSING_FILE,
                f"listed as a {split} image, but there is no image of this name",
            )
    for key, labels in tree.labels.items():
        if key not in keys:
            yield labels[0].reject(RejectReason.MISSING_FILE, "there is no image of this name")
    for file in tree.others:
        yield file.reject(RejectReason.OTHER_FILE, "neither an image nor an annotation")


def _sort(files: Sequence[ImageRow]) -> _Tree:
    tree = _Tree([], defaultdict(list), {column: {} for column in MASKS.values()}, [], [])
    for file in files:
        folders = [folder.lower() for folder in file.id.split("/")[:-1]]
        mask = next((MASKS[folder] for folder in folders if folder in MASKS), None)
        if "imagesets" in folders:
            if folders[-1] == "main" and file.id.rpartition("/")[2].lower() in SPLIT_LISTS:
                tree.lists.append(file)
        elif not has_image_name(file.id):
            (
                tree.labels[image_key(file.id)] if file.id.lower().endswith(".xml") else tree.others
            ).append(file)
        elif mask:
            path = "/".join(part for part in file.id.split("/") if part.lower() not in MASKS)
            tree.masks[mask][image_key(path)] = file
        else:
            tree.images.append(file)
    return tree


def _listed_splits(source: VocSource, tree: _Tree) -> tuple[dict[_Key, str], list[Reject]]:
    """Return the split of each listed image by its key, and a reject for each image in two."""
    splits: dict[_Key, str] = {}
    rejects = []
    for file, lines in read_lists(sorted(tree.lists, key=_is_sum), source.storage):
        *base, _, _, name = file.id.split("/")
        for stem in filter(None, map(str.strip, lines)):
            key = (*base, stem.rpartition(".")[0] if has_image_name(stem) else stem)
            split = splits.setdefault(key, SPLIT_LISTS[name.lower()])
            if split != SPLIT_LISTS[name.lower()] and not _is_sum(file):
                rejects.append(
                    Reject(
                        "/".join(key),
                        file.uri,
                        RejectReason.DUPLICATE_ID,
                        f"listed in two splits; it stays in {split}",
                    )
                )
    return splits, rejects


def _is_sum(file: ImageRow) -> bool:
    """Return whether a list is trainval.txt, which counts only for images in no other list."""
    return file.id.lower().endswith("/trainval.txt")


def _objects_of(
    storage: StorageOptions, image: ImageRow, file: ImageRow | None, data: bytes
) -> list[TreeObject] | Problem:
    assert file is not None  # an image without one is a reject
    try:
        label = parse_voc(data)
    except BadLabel as fault:
        return RejectReason.BAD_VALUE, f"{file.id}: {fault}"
    size = label.size or (read_size(image.uri, storage) if label.objects else ImageSize(1, 1))
    size = size or boxes.UNKNOWN_SIZE
    return [
        TreeObject(
            number,
            tuple(edge / side for edge, side in zip(found.edges, size * 2, strict=True)),
            (found.name, found.pose, int(found.is_truncated), int(found.is_difficult)),
            size,
        )
        for number, found in enumerate(label.objects, 1)
    ]
