"""Pascal VOC as input: images, each with an xml of its boxes.

Either VOC's own folders (`JPEGImages/`, `Annotations/`, `ImageSets/Main/{train,val,test}.txt` for
the splits; several of them in `VOCdevkit/`), or images with an xml of the same name beside them or
in `annotations/`. An image whose xml is missing or invalid is rejected; a box without area is
dropped (`boxes`). Masks in `SegmentationClass/` and `SegmentationObject/` are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn
from xml.etree.ElementTree import XML, Element, ParseError, TreeBuilder, XMLParser

from shardwright.transforms.inputs import boxes
from shardwright.transforms.inputs.boxes import ImageObject, stated_size
from shardwright.transforms.inputs.companions import KIND_FOLDERS, LABEL_FOLDERS, probes
from shardwright.transforms.inputs.file_rules import split_of
from shardwright.transforms.inputs.folder_contents import read_starts
from shardwright.transforms.inputs.foreign_text import decode_text, peek_text
from shardwright.transforms.inputs.formats.label_trees import (
    KNOWN,
    BadLabel,
    LabelFile,
    LabelTree,
    has_split_folders,
)
from shardwright.transforms.inputs.source import SourceRequest
from shardwright.transforms.rejects import RejectReason

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
                lists = _lists(look_in(main).files)
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


def _lists(names: Sequence[str]) -> dict[str, str]:
    """Return the lists of splits among the files of ImageSets/Main, and their splits."""
    there = {name.lower(): name for name in names}
    found = {there[name]: split for name, split in SPLIT_LISTS.items() if name in there}
    if _WHOLE_LIST in there and {*found.values()} <= {"test"}:
        found[there[_WHOLE_LIST]] = "train"
    return found


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
