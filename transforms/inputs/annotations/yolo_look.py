"""Recognize YOLO labels: the data set's folder, its class names and its splits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.sizes import counted
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.annotations import boxes
from shardwright.transforms.inputs.annotations.yolo_labels import (
    YoloConfig,
    looks_like_labels,
    read_config,
    read_names,
)
from shardwright.transforms.inputs.boundary import outside_problem
from shardwright.transforms.inputs.file_rules import has_image_name, split_of
from shardwright.transforms.inputs.folder_contents import FolderContents, FolderListings, read_start
from shardwright.transforms.inputs.source import SourceFacts, SourceRequest
from shardwright.transforms.references import reference_schema

_CONFIG_BYTES = 1 << 20
_START_BYTES = 4096
_LABEL_FOLDERS = frozenset({"labels", "obj_train_data"})  # the latter is CVAT's, with the images
_PROBES = 5  # label files read for detection: those of images without objects are empty
# Files with one class name per line: LabelImg's, Darknet's and Roboflow's.
NAME_FILES = ("classes.txt", "obj.names", "_darknet.labels", "predefined_classes.txt")
_SCHEMA = reference_schema(
    [
        (boxes.BOX, pa.list_(boxes.BOX_TYPE)),
        (boxes.LABEL, pa.list_(pa.string())),
        (boxes.SEGMENTATION, pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class YoloFacts(SourceFacts):
    """The facts about a tree of images and text labels.

    Attributes:
        root: The tree's folder.
        names: Class names by number.
        places: (split, folder or list of images below the root) of data.yaml.
        has_keypoints: True if keypoints, which are dropped, follow the boxes.
        storage: Options of the tree's store.
    """

    root: str
    names: tuple[str, ...]
    places: tuple[tuple[str, str], ...]
    has_keypoints: bool
    storage: StorageOptions


def look(request: SourceRequest) -> YoloFacts | None:
    """Return the facts about YOLO labels; None if INPUT is something else.

    Raises:
        UsageError: The format is forced and INPUT is not a folder, there are no class names, or an
            option gives a column.
        StorageError: A folder cannot be listed.
    """
    config, root = _open_config(request)
    if config is None:
        request.refuse_if_forced(
            "is not a folder: give the folder of images/ and labels/, or data.yaml"
        )
        return None
    request.refuse_columns("YOLO labels")
    if not config.names:
        raise UsageError(
            f"{request.uri} has YOLO labels but no class names: "
            "add data.yaml with `names`, or classes.txt with one name per line"
        )
    return _facts_of(config, root, request)


def _facts_of(config: YoloConfig, root: str, request: SourceRequest) -> YoloFacts:
    places = _places(config, root)
    has_split_folders = _has_split_folders(root, request.listings)
    return YoloFacts(
        _describe(config, root, bool(places), has_split_folders),
        _SCHEMA,
        (*boxes.box_features(config.names), boxes.SEGMENTATION_FEATURE),
        states_splits=bool(places) or has_split_folders,
        labels_from=f"the names in {config.names_path}",
        root=root,
        names=config.names,
        places=places,
        has_keypoints=config.has_keypoints,
        storage=request.storage,
    )


def _describe(config: YoloConfig, root: str, has_places: bool, has_split_folders: bool) -> str:
    splits = ", split folders" if has_split_folders else ""
    splits = ", splits from data.yaml" if has_places else splits
    points = "; keypoints are left out" if config.has_keypoints else ""
    return (
        f"YOLO labels at {root}: images with a .txt of boxes for each, "
        f"{counted(len(config.names), 'class')}{splits}{points}"
    )


def is_config(path: str) -> bool:
    """Return whether a file name has an extension of YAML."""
    return path.lower().endswith((".yaml", ".yml"))


def _open_config(request: SourceRequest) -> tuple[YoloConfig | None, str]:
    """Return the settings and the folder of the data set; None if INPUT is something else."""
    uri = request.uri
    if is_config(uri) and request.is_file:
        config = read_config(_read_text(uri, request.storage), uri)
        return config, request.image_root or _root_of(config, request)
    if not request.is_remote and not os.path.isdir(uri):
        return None, ""
    return (_find_config(request) if request.forced or _has_labels(request) else None), uri


def _read_text(uri: str, storage: StorageOptions) -> str:
    """Return the text of a small file; "" if it cannot be read.

    Raises:
        UsageError: It is not small.
    """
    start = read_start(uri, storage, _CONFIG_BYTES + 1)
    if len(start) > _CONFIG_BYTES:
        raise UsageError(f"{uri} is longer than {_CONFIG_BYTES:,} bytes: it holds no settings")
    return start.decode("utf-8", "replace")


def _root_of(config: YoloConfig, request: SourceRequest) -> str:
    """Return the data set's folder: `path` of data.yaml if it exists, else data.yaml's own.

    Raises:
        UsageError: `path` leads out of INPUT's folder, and no option allows it.
    """
    home = request.uri.rpartition("/")[0]
    named = os.path.normpath(os.path.join(home, os.path.expanduser(config.path)))
    if not config.path or not os.path.isdir(named):
        return home
    folders = tuple(map(os.path.realpath, (home, *request.allow_outside)))
    if outside_problem(named, folders):
        raise UsageError(
            f"the path of {request.uri} leads to {named}, outside of INPUT: allow it with "
            f"--allow-outside '{named}', or give the folder with --image-root"
        )
    return named


def _find_config(request: SourceRequest) -> YoloConfig:
    """Return the settings of a folder, without names if it has none."""
    root, storage = request.uri, request.storage
    found = request.listings.look_in(root)
    # A store's folder with many images is listed in part only: try the usual names, too.
    configs = dict.fromkeys([*filter(is_config, found.files), "data.yaml", "dataset.yaml"])
    for uri in (f"{root}/{name}" for name in configs):
        text = _read_text(uri, storage)
        if text and (config := read_config(text, uri)).names:
            return config
    below = [name for name in found.folders if name.lower() == "labels" or split_of([name])]
    for folder in (root, *(f"{root}/{name}" for name in below)):
        for name in NAME_FILES:
            if names := read_names(_read_text(f"{folder}/{name}", storage)):
                return YoloConfig(names, {}, "", False, f"{folder}/{name}")
    return YoloConfig((), {}, "", False)


def _has_labels(request: SourceRequest) -> bool:
    """Return whether the first .txt in `labels/`, in a split folder or beside images are labels."""
    return any(
        _are_labels(request, folder, beside=beside)
        for folder, beside in _label_folders(request.uri, request.listings)
    )


def _label_folders(root: str, listings: FolderListings) -> Iterator[tuple[str, bool]]:
    """Yield (folder, beside images) of each place where label files may be."""
    yield root, True
    for folder in listings.look_in(root).folders:
        is_labels = folder.lower() == "labels"
        if folder.lower() in _LABEL_FOLDERS or split_of([folder]):
            yield f"{root}/{folder}", not is_labels
            below = listings.look_in(f"{root}/{folder}").folders
            for name in below[:_PROBES] if is_labels else below:
                if is_labels or name.lower() == "labels":
                    yield f"{root}/{folder}/{name}", False


def _are_labels(request: SourceRequest, folder: str, *, beside: bool) -> bool:
    found = request.listings.look_in(folder)
    texts = (name for name in found.files if name.lower().endswith(".txt"))
    # Most image folders have no .txt: skip collecting their stems then.
    if beside and (first := next(texts, None)):
        stems = {name.rpartition(".")[0] for name in found.files if has_image_name(name)}
        texts = (name for name in chain([first], texts) if name[:-4] in stems)
    return any(
        looks_like_labels(read_start(f"{folder}/{name}", request.storage, _START_BYTES))
        for name in islice(texts, _PROBES)
    )


def _places(config: YoloConfig, root: str) -> tuple[tuple[str, str], ...]:
    """Return (split, folder or list below the root) of each place in data.yaml.

    Roboflow writes ../train/images for train/images.
    """
    found = []
    for split, written in config.places.items():
        for place in written:
            parts = [
                part
                for part in place.removeprefix(f"{root}/").split("/")
                if part not in ("", ".", "..")
            ]
            found.append((split, "/".join(parts)))
    paths = [path for _, path in found]
    # Two splits in one folder define no splits.
    return tuple(found) if len(set(paths)) == len(paths) > 1 else ()


def _has_split_folders(root: str, listings: FolderListings) -> bool:
    found = listings.look_in(root)
    images = (f"{root}/{name}" for name in found.folders if name.lower() == "images")
    return _are_splits(found) or any(_are_splits(listings.look_in(folder)) for folder in images)


def _are_splits(found: FolderContents) -> bool:
    others = ("images", "labels")
    folders = [name for name in found.folders if name.lower() not in others]
    return (
        bool(folders)
        and not any(map(has_image_name, found.files))
        and all(split_of([name]) for name in folders)
    )
