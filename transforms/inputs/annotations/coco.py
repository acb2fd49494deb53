"""COCO json files as input: boxes, segmentations and captions of images beside them.

Each part is one set of images, such as `instances_train2017.json` with `captions_train2017.json`.
An annotation that cannot be read rejects its image; a box without area is dropped (`boxes`).

Memory per part: the boxes, and twice the text of segmentations and captions. That is 0.28 GB for a
json of 92 MB with 140,000 polygons, so about 1 GB for the 450 MB of COCO's train2017.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.schema import Feature, FeatureKind
from shardwright.storage import NO_OPTIONS, StorageOptions, is_remote
from transforms.inputs.annotations import boxes
from transforms.inputs.annotations.coco_files import look_at_coco, merge_categories
from transforms.inputs.annotations.coco_listing import CAPTIONS, IMAGE_ID, list_set
from transforms.inputs.annotations.label_trees import look_in, read_start, split_of
from transforms.inputs.detection import has_wildcard
from transforms.inputs.input_files import find_files
from transforms.inputs.source import InputSource, SourceFormat, SourceRequest
from transforms.references import REFERENCE_SCHEMA, extra_name
from transforms.rejects import Reject

_ENDING = ".json"
_SECTIONS = re.compile(rb'"(images|annotations|categories)"\s*:')
_START_BYTES = 1 << 16
# Prefixes of COCO's own file names. Roboflow writes `_BESIDE` next to the images.
_KINDS = ("instances", "person_keypoints", "stuff", "panoptic", "image_info", "captions")
_NAME = re.compile(rf"(?:(?P<kind>{'|'.join(_KINDS)})_)?(?P<set>.+)\.json", re.IGNORECASE)
_BESIDE = "_annotations.coco.json"


class CocoSet(NamedTuple):
    """Json files that annotate the same images.

    Attributes:
        name: The common part of their names, such as "train2017"; often the images' folder.
        files: Their addresses.
        split: The split that the name states, or None.
        folders: The folders that may hold the images, most likely first.
    """

    name: str
    files: tuple[str, ...]
    split: str | None
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CocoSource(InputSource):
    """Json files and the images that they list.

    Attributes:
        uri: INPUT.
        sets: The parts.
        root: The folder that ids, which are paths, are relative to.
        names: Category names in label order.
        has_boxes: True if a file has boxes.
        has_captions: True if a file has captions.
        left_out: Names of skipped files, which annotate the same images again.
        storage: Options of the stores that hold the files.
    """

    uri: str
    sets: tuple[CocoSet, ...]
    root: str
    names: tuple[str, ...]
    has_boxes: bool
    has_captions: bool
    left_out: tuple[str, ...] = ()
    storage: StorageOptions = NO_OPTIONS

    def describe(self) -> str:
        what = [f"boxes of {len(self.names)} classes"] * self.has_boxes + [
            "captions"
        ] * self.has_captions
        files = ", ".join(
            file.rpartition("/")[2] for found in self.sets[:3] for file in found.files
        )
        more = f" and those of {len(self.sets) - 3} more sets" if len(self.sets) > 3 else ""
        ignored = f"; {', '.join(self.left_out)} left out" if self.left_out else ""
        return (
            f"COCO json at {self.uri} ({files}{more}) "
            f"with {' and '.join(what) or 'images only'}{ignored}"
        )

    def parts(self) -> Iterator[str]:
        yield from map(str, range(len(self.sets)))

    @property
    def schema(self) -> pa.Schema:
        fields = [(IMAGE_ID, pa.int64())]
        if self.has_boxes:
            numbers = (boxes.AREA, pa.float64()), (boxes.IS_CROWD, pa.int64())
            fields += [(boxes.BOX, pa.list_(boxes.BOX_TYPE)), (boxes.LABEL, pa.list_(pa.string()))]
            fields += [(name, pa.list_(kind)) for name, kind in numbers] + [
                (boxes.SEGMENTATION, pa.list_(pa.large_string()))
            ]
        if self.has_captions:
            fields.append((CAPTIONS, pa.list_(pa.large_string())))
        return pa.schema(
            [*REFERENCE_SCHEMA, *(pa.field(extra_name(name), kind) for name, kind in fields)]
        )

    @property
    def features(self) -> tuple[Feature, ...]:
        found: tuple[Feature, ...] = ()
        if self.has_boxes:
            area = Feature(boxes.AREA, FeatureKind.FLOAT32, shape=(None,), sequence="objects")
            found = (
                *boxes.box_features(self.names),
                area,
                boxes.flag_feature(boxes.IS_CROWD),
                boxes.SEGMENTATION_FEATURE,
            )
        return (
            (*found, Feature(CAPTIONS, FeatureKind.TEXT, shape=(None,)))
            if self.has_captions
            else found
        )

    @property
    def states_splits(self) -> bool:
        return len(self.sets) > 1 and all(found.split for found in self.sets)

    def list_part(self, part: str) -> Iterator[pa.RecordBatch | Reject]:
        yield from list_set(self, self.sets[int(part)])


class CocoFormat(SourceFormat):
    """A COCO json, a wildcard, or a folder with them in `annotations/` or beside the images."""

    name: ClassVar[str] = "coco"
    summary: ClassVar[str] = "a COCO .json, or a folder with annotations/*.json"
    rank: ClassVar[int] = 20

    def open(self, request: SourceRequest, *, forced: bool) -> CocoSource | None:
        files = _find(request, forced=forced)
        if not forced:
            files = [
                uri
                for uri in files
                if _SECTIONS.search(read_start(uri, request.storage, _START_BYTES))
            ]
        if not files:
            if forced:
                raise UsageError(
                    f"{request.argument} {request.uri} has no COCO json: "
                    "give the .json, or a folder with annotations/*.json"
                )
            return None
        request.refuse_columns("COCO json")
        return _source(request, files)


def _find(request: SourceRequest, *, forced: bool) -> list[str]:
    """Return the addresses of the json files that may be COCO's, in name order."""
    uri, storage = request.uri, request.storage
    if has_wildcard(uri) or uri.lower().endswith(_ENDING):
        return [
            file.uri for file in find_files(request, lambda name: name.lower().endswith(_ENDING))
        ]
    root = look_in(uri, storage)
    for folder in root.folders:
        if folder.lower() == "annotations":
            below = look_in(f"{uri}/{folder}", storage).files
            return [f"{uri}/{folder}/{name}" for name in below if name.lower().endswith(_ENDING)]
    beside = [
        name
        for name in root.files
        if _is_named(name) or (forced and name.lower().endswith(_ENDING))
    ]
    splits = [folder for folder in root.folders if split_of([folder])]
    inside = [
        f"{folder}/{name}"
        for folder in splits
        for name in look_in(f"{uri}/{folder}", storage).files
        if _is_named(name)
    ]
    return [f"{uri}/{name}" for name in beside or inside]


def _is_named(name: str) -> bool:
    match = _NAME.fullmatch(name) if name.lower().endswith(_ENDING) else None
    return match is not None and (bool(match["kind"]) or name.lower() == _BESIDE)


def _source(request: SourceRequest, files: Sequence[str]) -> CocoSource:
    by_set: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for uri in files:
        folder, kind, name = _named(uri)
        by_set[folder, name][kind] = uri
    chosen, left_out = {}, []
    # Of a set, the first file in the order of `_KINDS` is read, and its captions.
    for key, kinds in by_set.items():
        objects = next((kind for kind in ("", *_KINDS[:-1]) if kind in kinds), None)
        read = [kinds[kind] for kind in (objects, "captions") if kind is not None and kind in kinds]
        chosen[key] = tuple(read)
        left_out += [os.path.basename(uri) for uri in kinds.values() if uri not in read]
    folders = [_home(folder) for folder, _ in chosen]
    has_root = not (has_wildcard(request.uri) or request.uri.lower().endswith(_ENDING))
    root = request.image_root or (request.uri if has_root else _common(folders))
    sets = tuple(
        CocoSet(
            name,
            read,
            split_of(re.split(r"[^A-Za-z0-9]+", name)),
            _image_folders(folder, name, request.image_root),
        )
        for (folder, name), read in chosen.items()
    )
    looks = [look_at_coco(uri, request.storage) for found in sets for uri in found.files]
    names = merge_categories(look.categories for look in looks)
    has_boxes, has_captions = (
        any(look.has_boxes for look in looks),
        any(look.has_captions for look in looks),
    )
    if has_boxes and not names:
        raise UsageError(
            f"{request.uri} has boxes and no categories: "
            "add the section `categories` with an id and a name for each class"
        )
    return CocoSource(
        request.uri, sets, root, names, has_boxes, has_captions, tuple(left_out), request.storage
    )


def _named(uri: str) -> tuple[str, str, str]:
    """Return (folder, kind, name of the set) of a json file."""
    folder, _, base = uri.rpartition("/")
    match = _NAME.fullmatch(base)
    if base.lower() == _BESIDE or match is None:
        return folder, "", folder.rpartition("/")[2]
    return folder, (match["kind"] or "").lower(), match["set"]


def _home(folder: str) -> str:
    """Return the data set's folder, given the folder of a json."""
    above, _, base = folder.rpartition("/")
    return above if base.lower() == "annotations" else folder


def _image_folders(folder: str, name: str, image_root: str | None) -> tuple[str, ...]:
    """Return the folders that may hold a set's images, most likely first."""
    if image_root is not None:
        return f"{image_root}/{name}", image_root
    home = _home(folder)
    return tuple(
        dict.fromkeys(
            (
                f"{home}/{name}",
                f"{home}/images/{name}",
                f"{home}/images",
                home,
                f"{folder}/{name}",
                folder,
            )
        )
    )


def _common(folders: Iterable[str]) -> str:
    """Return the innermost folder that contains all of them."""
    found = sorted(set(folders))
    if len(found) == 1:
        return found[0]
    if any(is_remote(folder) for folder in found):
        parts = [folder.split("/") for folder in found]
        same = next(
            (place for place, names in enumerate(zip(*parts, strict=False)) if len(set(names)) > 1),
            min(map(len, parts)),
        )
        return "/".join(parts[0][:same])
    return os.path.commonpath(found)
