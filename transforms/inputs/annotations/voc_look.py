"""Recognize Pascal VOC: which folders hold its files, its splits and its masks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from shardwright.format.schema import Feature, FeatureKind
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.annotations import boxes
from shardwright.transforms.inputs.file_rules import split_of
from shardwright.transforms.inputs.folder_contents import read_start
from shardwright.transforms.inputs.source import SourceFacts, SourceRequest
from shardwright.transforms.references import PICTURE_TYPE, reference_schema

_START_BYTES = 4096
_PROBES = 3  # xml files read for detection
_XML_FOLDERS = frozenset({"annotations", "xmls"})
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


@dataclass(frozen=True, slots=True, kw_only=True)
class VocFacts(SourceFacts):
    """The facts about a tree of images and xml files.

    Attributes:
        root: The tree's folder.
        has_lists: True if `ImageSets/Main` assigns images to splits; unlisted images are rejected.
        has_split_folders: True if the first folder of each path is a split.
        has_masks: True if there are folders of masks.
        storage: Options of the tree's store.
    """

    root: str
    has_lists: bool
    has_split_folders: bool
    has_masks: bool
    storage: StorageOptions


def look(request: SourceRequest) -> VocFacts | None:
    """Return the facts about a VOC tree; None if INPUT is something else.

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
    return _facts_of(request, bases)


def _facts_of(request: SourceRequest, bases: Sequence[str]) -> VocFacts:
    look_in = request.listings.look_in
    insides = {base: look_in(base).folders for base in bases}
    has_masks = any(folder.lower() in MASKS for folders in insides.values() for folder in folders)
    first = insides[bases[0]]
    has_split_folders = bool(first) and all(map(_is_split, first))
    has_lists = any(
        name.lower() in SPLIT_LISTS
        for base, folders in insides.items()
        for folder in folders
        if folder.lower() == "imagesets"
        for name in look_in(f"{base}/{folder}/Main").files
    )
    return VocFacts(
        _describe(request.uri, has_lists, has_split_folders, has_masks),
        reference_schema(_columns(has_masks)),
        _FEATURES,
        states_splits=has_lists or has_split_folders,
        labels_from="the names in the xml files",
        root=request.uri,
        has_lists=has_lists,
        has_split_folders=has_split_folders,
        has_masks=has_masks,
        storage=request.storage,
    )


def _describe(root: str, has_lists: bool, has_split_folders: bool, has_masks: bool) -> str:
    splits = ", split folders" if has_split_folders else ""
    splits = ", splits from ImageSets/Main" if has_lists else splits
    masks = ", masks" if has_masks else ""
    return f"Pascal VOC at {root}: images with an xml of boxes for each{splits}{masks}"


def _columns(has_masks: bool) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the name and type of each extra column."""
    for name, kind in _OBJECT_TYPES.items():
        yield name, pa.list_(kind)
    if has_masks:
        yield from ((name, PICTURE_TYPE) for name in MASKS.values())


def _bases(request: SourceRequest) -> list[str]:
    """Return the folders of VOC's layout, or of images and xmls: INPUT, or those in `VOCdevkit`."""
    root = request.uri
    if _holds_annotations(request, root, deeper=2):
        return [root]
    folders = request.listings.look_in(root).folders
    kits = [f"{root}/{folder}" for folder in folders if folder.lower().startswith("voc")]
    return [kit for kit in kits if _holds_annotations(request, kit, deeper=1)]


def _holds_annotations(request: SourceRequest, folder: str, *, deeper: int) -> bool:
    """Return whether the first xmls are annotations, here or up to `deeper` folder levels below."""
    found = request.listings.look_in(folder)
    first = islice((name for name in found.files if name.lower().endswith(".xml")), _PROBES)
    if any(
        b"<annotation" in read_start(f"{folder}/{name}", request.storage, _START_BYTES)
        for name in first
    ):
        return True
    return deeper > 0 and any(
        _holds_annotations(request, f"{folder}/{name}", deeper=deeper - 1)
        for name in found.folders
        if name.lower() in _XML_FOLDERS or _is_split(name)
    )


def _is_split(folder: str) -> bool:
    return split_of([folder]) is not None
