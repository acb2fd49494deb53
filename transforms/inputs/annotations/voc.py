"""Pascal VOC as input: images, each with an xml of its boxes.

Either VOC's own folders (`JPEGImages/`, `Annotations/`, `ImageSets/Main/{train,val,test}.txt` for
the splits; several of them in `VOCdevkit/`), or images with an xml of the same name beside them or
in `annotations/`. An image whose xml is missing or invalid is rejected; a box without area is
dropped (`boxes`). Masks in `SegmentationClass/` and `SegmentationObject/` become the columns
`segmentation` and `segmentation_object`, for schemas that use them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.schema import Feature, FeatureKind
from shardwright.storage import NO_OPTIONS, StorageOptions
from transforms.inputs.annotations import boxes
from transforms.inputs.annotations.label_trees import Shallow, look_in, read_start, split_of
from transforms.inputs.annotations.voc_listing import MASKS, SPLIT_LISTS, list_voc
from transforms.inputs.source import InputSource, SourceFormat, SourceRequest
from transforms.references import PICTURE_TYPE, REFERENCE_SCHEMA, extra_name
from transforms.rejects import Reject

_START_BYTES = 4096
_PROBES = 3  # xml files read for detection
_XML_FOLDERS = frozenset({"annotations", "xmls"})


@dataclass(frozen=True, slots=True)
class VocSource(InputSource):
    """A tree of images and xml files.

    Attributes:
        root: The tree's folder.
        has_lists: True if `ImageSets/Main` assigns images to splits; unlisted images are rejected.
        has_split_folders: True if the first folder of each path is a split.
        has_masks: True if there are folders of masks.
        storage: Options of the tree's store.
    """

    root: str
    has_lists: bool = False
    has_split_folders: bool = False
    has_masks: bool = False
    storage: StorageOptions = NO_OPTIONS

    def describe(self) -> str:
        splits = (
            ", splits from ImageSets/Main"
            if self.has_lists
            else ", split folders"
            if self.has_split_folders
            else ""
        )
        return (
            f"Pascal VOC at {self.root}: images with an xml of boxes for each{splits}"
            f"{', masks' if self.has_masks else ''}"
        )

    @property
    def schema(self) -> pa.Schema:
        fields = [
            (boxes.BOX, boxes.BOX_TYPE),
            (boxes.LABEL, pa.string()),
            (boxes.POSE, pa.string()),
        ]
        fields += [(boxes.IS_TRUNCATED, pa.int64()), (boxes.IS_DIFFICULT, pa.int64())]
        extras = [(name, pa.list_(kind)) for name, kind in fields] + [
            (name, PICTURE_TYPE) for name in MASKS.values() if self.has_masks
        ]
        return pa.schema(
            [*REFERENCE_SCHEMA, *(pa.field(extra_name(name), kind) for name, kind in extras)]
        )

    @property
    def features(self) -> tuple[Feature, ...]:
        pose = Feature(boxes.POSE, FeatureKind.CLASS_LABEL, shape=(None,), sequence="objects")
        return (
            *boxes.box_features(()),
            pose,
            boxes.flag_feature(boxes.IS_TRUNCATED),
            boxes.flag_feature(boxes.IS_DIFFICULT),
        )

    @property
    def states_splits(self) -> bool:
        return self.has_lists or self.has_split_folders

    def list_part(self, part: str) -> Iterator[pa.RecordBatch | Reject]:
        del part  # the only one
        yield from list_voc(self)


class VocFormat(SourceFormat):
    """A folder of images, each with an xml."""

    name: ClassVar[str] = "voc"
    summary: ClassVar[str] = "Pascal VOC: images and an .xml for each"
    rank: ClassVar[int] = 51

    def open(self, request: SourceRequest, *, forced: bool) -> VocSource | None:
        root, storage = request.uri, request.storage
        if (not request.is_remote and not os.path.isdir(root)) or not (
            bases := _bases(root, storage)
        ):
            if forced:
                raise UsageError(
                    f"{request.argument} {root} has no xml annotations: "
                    "give a folder with JPEGImages/ and Annotations/ in it"
                )
            return None
        request.refuse_columns("Pascal VOC")
        insides = {base: look_in(base, storage).folders for base in bases}
        has_masks = any(
            folder.lower() in MASKS for folders in insides.values() for folder in folders
        )
        first = insides[bases[0]]
        has_split_folders = bool(first) and all(map(_is_split, first))
        return VocSource(
            root,
            any(map(_has_lists, _main_folders(insides, storage))),
            has_split_folders,
            has_masks,
            storage,
        )


def _bases(root: str, storage: StorageOptions) -> list[str]:
    """Return the folders of VOC's layout, or of images and xmls: INPUT, or those in `VOCdevkit`."""
    found = look_in(root, storage)
    if _holds_annotations(root, found, storage, deeper=2):
        return [root]
    kits = [f"{root}/{folder}" for folder in found.folders if folder.lower().startswith("voc")]
    return [
        kit for kit in kits if _holds_annotations(kit, look_in(kit, storage), storage, deeper=1)
    ]


def _holds_annotations(
    folder: str, found: Shallow, storage: StorageOptions, *, deeper: int
) -> bool:
    """Return whether the first xmls are annotations, here or up to `deeper` folder levels below."""
    first = islice((name for name in found.files if name.lower().endswith(".xml")), _PROBES)
    if any(
        b"<annotation" in read_start(f"{folder}/{name}", storage, _START_BYTES) for name in first
    ):
        return True
    below = (
        [
            f"{folder}/{name}"
            for name in found.folders
            if name.lower() in _XML_FOLDERS or _is_split(name)
        ]
        if deeper
        else []
    )
    return any(
        _holds_annotations(place, look_in(place, storage), storage, deeper=deeper - 1)
        for place in below
    )


def _is_split(folder: str) -> bool:
    return split_of([folder]) is not None


def _main_folders(
    insides: Mapping[str, Sequence[str]], storage: StorageOptions
) -> Iterator[Sequence[str]]:
    for base, folders in insides.items():
        for folder in folders:
            if folder.lower() == "imagesets":
                yield look_in(f"{base}/{folder}/Main", storage).files


def _has_lists(names: Sequence[str]) -> bool:
    return any(name.lower() in SPLIT_LISTS for name in names)
