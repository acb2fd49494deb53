"""Pascal VOC as input: images, each with an xml of its boxes.

Either VOC's own folders (`JPEGImages/`, `Annotations/`, `ImageSets/Main/{train,val,test}.txt` for
the splits; several of them in `VOCdevkit/`), or images with an xml of the same name beside them or
in `annotations/`. An image whose xml is missing or invalid is rejected; a box without area is
dropped (`boxes`). Masks in `SegmentationClass/` and `SegmentationObject/` become the columns
`segmentation` and `segmentation_object`, for schemas that use them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn
from xml.etree.ElementTree import XML, Element, ParseError, TreeBuilder, XMLParser

import pyarrow as pa

from shardwright.format.schema import Feature, FeatureKind
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs import boxes
from shardwright.transforms.inputs.boxes import ImageObject, ImageSize, stated_size
from shardwright.transforms.inputs.companions import KIND_FOLDERS, LABEL_FOLDERS, image_key, probes
from shardwright.transforms.inputs.file_rules import Problem, has_image_name, split_of
from shardwright.transforms.inputs.folder_contents import read_starts
from shardwright.transforms.inputs.foreign_text import decode_text, peek_text
from shardwright.transforms.inputs.formats.label_trees import (
    by_kind,
    has_split_folders,
    list_labelled,
    list_tree,
    listed_splits,
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
from shardwright.transforms.rejects import RejectReason

_EDGES = ("ymin", "xmin", "ymax", "xmax")
_NO_POSE = "unspecified"
_IMAGES, _LABELS, _LISTS, _OTHERS = "images", "labels", "lists", "others"
_START_BYTES = 4096
_IS_ANNOTATION = re.compile(r"<annotation[\s>]")  # CVAT has <annotations>
# Folder of masks, in lower case -> the column of its images.
MASKS: Mapping[str, str] = {
    "segmentationclass": "segmentation",
    "segmentationobject": "segmentation_object",
}
_WHOLE_LIST = "trainval.txt"
# List in ImageSets/Main -> its split.
SPLIT_LISTS: Mapping[str, str] = {
    "train.txt": "train",
    "val.txt": "validation",
    "test.txt": "test",
    _WHOLE_LIST: "train",
}
_OBJECT_TYPES = {
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


class BadLabel(Exception):  # noqa: N818 - a fault of the file, not of the program
    """An invalid label file; the message is one line."""


def parse_voc(data: bytes) -> Iterator[ImageObject]:
    """Yield the objects of a file as TFDS does, with boxes in pixels.

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
    return _objects(root, stated_size(*sides))


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


def _objects(root: Element, size: ImageSize | None) -> Iterator[ImageObject]:
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
        yield ImageObject(number, tuple(edges), (name, pose, *map(int, flags)), size)


def _number(element: Element, path: str) -> float | None:
    try:
        return float(element.findtext(path, ""))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class VocSource(InputSource):
    """A tree of images and xml files.

    Attributes:
        root: The tree's folder.
        has_lists: True if `ImageSets/Main` assigns images to splits; unlisted images are rejected.
        has_split_folders: True if a folder of each path is a split.
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
        bases = _bases(request)
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
                    (boxes.BOX, pa.list_(boxes.BOX_TYPE)),
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
        found = by_kind(files, _kind_of)
        keys = {_key(image.id) for image in found[_IMAGES]}
        splits: dict[str, str] = {}
        if self.has_lists:
            lists = [(file, SPLIT_LISTS[_name_of(file)]) for file in found[_LISTS]]
            whole = [one for one in lists if _name_of(one[0]) == _WHOLE_LIST]
            rest = [one for one in lists if one not in whole]
            splits, faults = listed_splits(rest, keys, _listed_key, self.storage)
            more, others = listed_splits(whole, keys, _listed_key, self.storage)
            # It counts only for images in no other list.
            yield from (*faults, *(reject for reject in others if reject.id not in splits))
            splits = more | splits
        for label in found[_LABELS]:
            if _key(label.id) not in keys:
                yield label.reject(RejectReason.MISSING_FILE, "there is no image of this name")
        for file in found[_OTHERS]:
            yield file.reject(RejectReason.OTHER_FILE, "neither an image nor an annotation")
        of_folder = self.has_split_folders and not self.has_lists
        masks = {
            name: {_key(_image_of(file.id)): file for file in found[name]}
            for name in MASKS.values()
        }

        def split_of_path(path: str) -> str | None:
            return split_of(path.split("/")[:-1]) if of_folder else splits.get(_key(path))

        def masks_of(images: Sequence[ImageRow]) -> dict[str, pa.Array]:
            columns: dict[str, pa.Array] = {}
            for name, files in masks.items() if self.has_masks else ():
                found = (files.get(_key(image.id)) for image in images)
                places = [
                    one and ImagePlace(one.uri, None, one.num_bytes, one.etag) for one in found
                ]
                columns[extra_name(name)] = pa.array(places, PICTURE_TYPE)
            return columns

        unlisted = RejectReason.OTHER_FILE, "in none of the lists of ImageSets/Main"
        yield from list_labelled(
            found[_IMAGES],
            found[_LABELS],
            self.storage,
            _objects_of,
            _OBJECT_TYPES,
            split_of_path,
            kind="xml files",
            without_split=unlisted if self.has_lists else None,
            without_label=(RejectReason.MISSING_LABEL, "it has no xml file"),
            in_pixels=True,
            extras=masks_of,
        )


def _objects_of(path: str, data: bytes) -> list[ImageObject] | Problem:
    try:
        return list(parse_voc(data))
    except BadLabel as fault:
        return RejectReason.BAD_VALUE, f"{path}: {fault}"


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


def _kind_of(path: str) -> str:
    """Return what a file is; a mask is of the kind of its column."""
    *folders, name = path.lower().split("/")
    if "imagesets" in folders:
        return _LISTS if folders[-1] == "main" and name in SPLIT_LISTS else ""
    if not has_image_name(name):
        return _LABELS if name.endswith(".xml") else _OTHERS
    return next((MASKS[folder] for folder in folders if folder in MASKS), _IMAGES)


def _name_of(file: ImageRow) -> str:
    return file.id.rpartition("/")[2].lower()


def _key(path: str) -> str:
    """Return the `image_key` that an image shares with its xml and its lines of lists."""
    return "/".join(image_key(path))


def _image_of(mask: str) -> str:
    """Return the path that a mask's image may have."""
    return "/".join(part for part in mask.split("/") if part.lower() not in MASKS)


def _listed_key(file: ImageRow, line: str) -> str:
    """Return the key of a line of BASE/ImageSets/Main/train.txt; most lines have no extension."""
    base = file.id.split("/")[:-3]
    return _key("/".join([*base, line if has_image_name(line) else f"{line}."]))
