"""Recognize COCO json files, and sort them into sets that annotate the same images."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.schema import Feature, FeatureKind
from shardwright.sizes import counted
from shardwright.storage.addresses import is_remote
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.annotations import boxes
from shardwright.transforms.inputs.annotations.coco_files import look_at_coco, merge_categories
from shardwright.transforms.inputs.file_rules import split_of
from shardwright.transforms.inputs.folder_contents import read_start
from shardwright.transforms.inputs.input_files import find_files
from shardwright.transforms.inputs.source import SourceFacts, SourceRequest
from shardwright.transforms.inputs.wildcards import has_wildcard
from shardwright.transforms.references import reference_schema

CAPTIONS, IMAGE_ID = "captions", "image_id"
_ENDING = ".json"
_SECTIONS = re.compile(rb'"(images|annotations|categories)"\s*:')
_START_BYTES = 1 << 16
# Prefixes of COCO's own file names. Roboflow writes `_BESIDE` next to the images.
_KINDS = ("instances", "person_keypoints", "stuff", "panoptic", "image_info", "captions")
_NAME = re.compile(rf"(?:(?P<kind>{'|'.join(_KINDS)})_)?(?P<set>.+)\.json", re.IGNORECASE)
_BESIDE = "_annotations.coco.json"
_OBJECT_TYPES = {
    boxes.BOX: boxes.BOX_TYPE,
    boxes.LABEL: pa.string(),
    boxes.AREA: pa.float64(),
    boxes.IS_CROWD: pa.int64(),
    boxes.SEGMENTATION: pa.large_string(),
}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CocoFacts(SourceFacts):
    """The facts about json files and the images that they list.

    Attributes:
        uri: INPUT.
        sets: The parts.
        root: The folder that ids, which are paths, are relative to.
        names: Category names in label order.
        has_boxes: True if a file has boxes.
        has_captions: True if a file has captions.
        storage: Options of the stores that hold the files.
    """

    uri: str
    sets: tuple[CocoSet, ...]
    root: str
    names: tuple[str, ...]
    has_boxes: bool
    has_captions: bool
    storage: StorageOptions

    def parts(self) -> Iterator[str]:
        yield from map(str, range(len(self.sets)))


def look(request: SourceRequest) -> CocoFacts | None:
    """Return the facts about COCO json files; None if INPUT is something else.

    Raises:
        UsageError: The format is forced and there is no json, an option gives a column, or there
            are boxes without categories.
        BuildError: A file is not JSON, or its categories are invalid.
        StorageError: A folder cannot be listed, or a file cannot be read.
    """
    files = _find(request)
    if not request.forced:
        files = [
            uri for uri in files if _SECTIONS.search(read_start(uri, request.storage, _START_BYTES))
        ]
    if not files:
        request.refuse_if_forced(
            "has no COCO json: give the .json, or a folder with annotations/*.json"
        )
        return None
    request.refuse_columns("COCO json")
    return _facts_of(request, files)


def _find(request: SourceRequest) -> list[str]:
    """Return the addresses of the json files that may be COCO's, in name order."""
    uri, look_in = request.uri, request.listings.look_in
    if has_wildcard(uri) or uri.lower().endswith(_ENDING):
        return [
            file.uri for file in find_files(request, lambda name: name.lower().endswith(_ENDING))
        ]
    root = look_in(uri)
    for folder in root.folders:
        if folder.lower() == "annotations":
            below = look_in(f"{uri}/{folder}").files
            return [f"{uri}/{folder}/{name}" for name in below if name.lower().endswith(_ENDING)]
    beside = [
        name
        for name in root.files
        if _is_named(name) or (request.forced and name.lower().endswith(_ENDING))
    ]
    splits = [folder for folder in root.folders if split_of([folder])]
    inside = [
        f"{folder}/{name}"
        for folder in splits
        for name in look_in(f"{uri}/{folder}").files
        if _is_named(name)
    ]
    return [f"{uri}/{name}" for name in beside or inside]


def _is_named(name: str) -> bool:
    match = _NAME.fullmatch(name) if name.lower().endswith(_ENDING) else None
    return match is not None and (bool(match["kind"]) or name.lower() == _BESIDE)


def _facts_of(request: SourceRequest, files: Sequence[str]) -> CocoFacts:
    sets, root, left_out = _sets_of(request, files)
    found = [look_at_coco(uri, request.storage) for one in sets for uri in one.files]
    names = merge_categories(content.categories for content in found)
    has_boxes = any(content.has_boxes for content in found)
    has_captions = any(content.has_captions for content in found)
    if has_boxes and not names:
        raise UsageError(
            f"{request.uri} has boxes and no categories: "
            "add the section `categories` with an id and a name for each class"
        )
    ignored = f"; {', '.join(left_out)} left out" if left_out else ""
    kinds = [f"boxes of {counted(len(names), 'class')}"] * has_boxes + ["captions"] * has_captions
    return CocoFacts(
        f"COCO json at {request.uri} ({_files_as_text(sets)}) "
        f"with {' and '.join(kinds) or 'images only'}{ignored}",
        reference_schema(_columns(has_boxes, has_captions)),
        _features(names, has_boxes, has_captions),
        states_splits=len(sets) > 1 and all(one.split for one in sets),
        uri=request.uri,
        sets=sets,
        root=root,
        folders=(root,),
        labels_from=f"the categories of {_files_as_text(sets)}",
        names=names,
        has_boxes=has_boxes,
        has_captions=has_captions,
        storage=request.storage,
    )


def _files_as_text(sets: Sequence[CocoSet]) -> str:
    files = ", ".join(file.rpartition("/")[2] for one in sets[:3] for file in one.files)
    return f"{files} and those of {len(sets) - 3} more sets" if len(sets) > 3 else files


def _columns(has_boxes: bool, has_captions: bool) -> Iterator[tuple[str, pa.DataType]]:
    """Yield the name and type of each extra column."""
    yield IMAGE_ID, pa.int64()
    if has_boxes:
        for name, kind in _OBJECT_TYPES.items():
            yield name, pa.list_(kind)
    if has_captions:
        yield CAPTIONS, pa.list_(pa.large_string())


def _features(names: Sequence[str], has_boxes: bool, has_captions: bool) -> tuple[Feature, ...]:
    found: tuple[Feature, ...] = ()
    if has_boxes:
        area = Feature(boxes.AREA, FeatureKind.FLOAT32, shape=(None,), sequence="objects")
        crowd = boxes.flag_feature(boxes.IS_CROWD)
        found = (*boxes.box_features(names), area, crowd, boxes.SEGMENTATION_FEATURE)
    return (*found, Feature(CAPTIONS, FeatureKind.TEXT, shape=(None,))) if has_captions else found


def _sets_of(
    request: SourceRequest, files: Sequence[str]
) -> tuple[tuple[CocoSet, ...], str, list[str]]:
    """Return the sets of json files, the folder of their ids, and the names of skipped files."""
    chosen, left_out = _chosen_files(files)
    has_root = not (has_wildcard(request.uri) or request.uri.lower().endswith(_ENDING))
    root = request.image_root or (
        request.uri if has_root else _common(_home(folder) for folder, _ in chosen)
    )
    sets = (
        CocoSet(
            name,
            read,
            split_of(re.split(r"[^A-Za-z0-9]+", name)),
            _image_folders(folder, name, request.image_root),
        )
        for (folder, name), read in chosen.items()
    )
    return tuple(sets), root, left_out


def _chosen_files(files: Sequence[str]) -> tuple[dict[tuple[str, str], tuple[str, ...]], list[str]]:
    """Return the files to read by (folder, name) of their set, and the names of the other files.

    Of a set, the first file in the order of `_KINDS` is read, and its captions: the others annotate
    the same images again.
    """
    by_set: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for uri in files:
        folder, kind, name = _named(uri)
        by_set[folder, name][kind] = uri
    chosen, left_out = {}, []
    for key, kinds in by_set.items():
        objects = next((kind for kind in ("", *_KINDS[:-1]) if kind in kinds), None)
        read = [kinds[kind] for kind in (objects, "captions") if kind is not None and kind in kinds]
        chosen[key] = tuple(read)
        left_out += [os.path.basename(uri) for uri in kinds.values() if uri not in read]
    return chosen, left_out


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
