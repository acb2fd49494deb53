"""YOLO text labels as input: images, each with a .txt of one line per object.

Labels are in `labels/` as images are in `images/` (`images/train/a.jpg` and `labels/train/a.txt`,
or `train/images/` and `train/labels/`), or beside the images. Class names come from data.yaml,
dataset.yaml, classes.txt or obj.names. As YOLO defines it, an image without a .txt has no objects.
An invalid line in a .txt rejects the image, and the reject has the line; a box without area is
dropped (`boxes`). A polygon is kept as text, with its extent as the box.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import ClassVar

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.schema import Feature
from shardwright.storage import NO_OPTIONS, StorageOptions
from transforms.inputs.annotations import boxes
from transforms.inputs.annotations.label_trees import Shallow, look_in, read_start, split_of
from transforms.inputs.annotations.yolo_labels import (
    YoloConfig,
    looks_like_labels,
    read_config,
    read_names,
)
from transforms.inputs.annotations.yolo_listing import NAME_FILES, is_config, list_yolo
from transforms.inputs.file_rules import has_image_name
from transforms.inputs.source import InputSource, SourceFormat, SourceRequest
from transforms.references import REFERENCE_SCHEMA, extra_name
from transforms.rejects import Reject

_CONFIG_BYTES = 1 << 20
_START_BYTES = 4096
_LABEL_FOLDERS = frozenset({"labels", "obj_train_data"})  # the latter is CVAT's, with the images
_PROBES = 5  # label files read for detection: those of images without objects are empty


@dataclass(frozen=True, slots=True)
class YoloSource(InputSource):
    """A tree of images and text labels.

    Attributes:
        root: The tree's folder.
        names: Class names by number.
        places: (split, folder or list of images below the root) of data.yaml.
        has_split_folders: True if a folder above each image is its split.
        has_keypoints: True if keypoints, which are dropped, follow the boxes.
        storage: Options of the tree's store.
    """

    root: str
    names: tuple[str, ...]
    places: tuple[tuple[str, str], ...] = ()
    has_split_folders: bool = False
    has_keypoints: bool = False
    storage: StorageOptions = NO_OPTIONS

    def describe(self) -> str:
        splits = (
            ", splits from data.yaml"
            if self.places
            else ", split folders"
            if self.has_split_folders
            else ""
        )
        points = "; keypoints are left out" if self.has_keypoints else ""
        return (
            f"YOLO labels at {self.root}: images with a .txt of boxes for each, "
            f"{len(self.names)} classes{splits}{points}"
        )

    @property
    def schema(self) -> pa.Schema:
        kinds = {
            boxes.BOX: boxes.BOX_TYPE,
            boxes.LABEL: pa.string(),
            boxes.SEGMENTATION: pa.string(),
        }
        return pa.schema(
            [
                *REFERENCE_SCHEMA,
                *(pa.field(extra_name(name), pa.list_(kind)) for name, kind in kinds.items()),
            ]
        )

    @property
    def features(self) -> tuple[Feature, ...]:
        return (*boxes.box_features(self.names), boxes.SEGMENTATION_FEATURE)

    @property
    def states_splits(self) -> bool:
        return bool(self.places) or self.has_split_folders

    def list_part(self, part: str) -> Iterator[pa.RecordBatch | Reject]:
        del part  # the only one
        yield from list_yolo(self)


class YoloFormat(SourceFormat):
    """A folder of images and text labels, or its data.yaml."""

    name: ClassVar[str] = "yolo"
    summary: ClassVar[str] = "YOLO: images and a .txt for each, or their data.yaml"
    rank: ClassVar[int] = 28  # before `table`, which fails on files like data.yaml

    def open(self, request: SourceRequest, *, forced: bool) -> YoloSource | None:
        uri, storage = request.uri, request.storage
        if is_config(uri) and request.is_file:
            config = _read_config(uri, storage)
            root = request.image_root or _root_of(config, uri)
        elif not request.is_remote and not os.path.isdir(uri):
            config, root = None, ""
        else:
            root = uri
            config = _find_config(root, storage) if forced or _has_labels(root, storage) else None
        if config is None:
            if forced:
                raise UsageError(
                    f"{request.argument} {uri} is not a folder: "
                    "give the folder of images/ and labels/, or data.yaml"
                )
            return None
        request.refuse_columns("YOLO labels")
        if not config.names:
            raise UsageError(
                f"{uri} has YOLO labels but no class names: "
                "add data.yaml with `names`, or classes.txt with one name per line"
            )
        return YoloSource(
            root,
            config.names,
            _places(config, root),
            _has_split_folders(root, storage),
            config.has_keypoints,
            storage,
        )


def _read_config(uri: str, storage: StorageOptions) -> YoloConfig:
    return read_config(_config_text(uri, storage), uri)


def _config_text(uri: str, storage: StorageOptions) -> str:
    """Return a data.yaml's text; "" if there is none."""
    start = read_start(uri, storage, _CONFIG_BYTES + 1)
    if len(start) > _CONFIG_BYTES:
        raise UsageError(f"{uri} is longer than {_CONFIG_BYTES:,} bytes; expected a data.yaml")
    return start.decode("utf-8", "replace")


def _root_of(config: YoloConfig, uri: str) -> str:
    """Return the data set's folder: `path` of data.yaml if it exists, else data.yaml's own."""
    home = uri.rpartition("/")[0]
    named = os.path.normpath(os.path.join(home, os.path.expanduser(config.path)))
    return named if config.path and os.path.isdir(named) else home


def _find_config(root: str, storage: StorageOptions) -> YoloConfig:
    """Return the settings of a folder, without names if it has none."""
    found = look_in(root, storage)
    # A store's folder with many images is listed in part only: try the usual names, too.
    configs = dict.fromkeys([*filter(is_config, found.files), "data.yaml", "dataset.yaml"])
    texts = ((f"{root}/{name}", _config_text(f"{root}/{name}", storage)) for name in configs)
    config = next(
        (config for uri, text in texts if text and (config := read_config(text, uri)).names), None
    )
    if config is not None:
        return config
    for folder in (
        root,
        *(
            f"{root}/{name}"
            for name in found.folders
            if name.lower() == "labels" or split_of([name])
        ),
    ):
        for name in NAME_FILES:
            if names := read_names(
                read_start(f"{folder}/{name}", storage, _CONFIG_BYTES).decode("utf-8", "replace")
            ):
                return YoloConfig(names, {}, "", False)
    return YoloConfig((), {}, "", False)


def _has_labels(root: str, storage: StorageOptions) -> bool:
    """Return whether the first .txt in `labels/`, in a split folder or beside images are labels."""
    found = look_in(root, storage)
    if _are_labels(root, found, storage, beside=True):
        return True
    for folder in found.folders:
        if folder.lower() in _LABEL_FOLDERS or split_of([folder]):
            place = f"{root}/{folder}"
            below = look_in(place, storage)
            if _are_labels(place, below, storage, beside=folder.lower() != "labels"):
                return True
            deeper = (
                below.folders[:_PROBES]
                if folder.lower() == "labels"
                else filter(_is_label_folder, below.folders)
            )
            if any(
                _are_labels(
                    f"{place}/{name}", look_in(f"{place}/{name}", storage), storage, beside=False
                )
                for name in deeper
            ):
                return True
    return False


def _is_label_folder(name: str) -> bool:
    return name.lower() == "labels"


def _are_labels(folder: str, found: Shallow, storage: StorageOptions, *, beside: bool) -> bool:
    texts = (name for name in found.files if name.lower().endswith(".txt"))
    # Most image folders have no .txt: skip collecting their stems then.
    if beside and (first := next(texts, None)):
        stems = {name.rpartition(".")[0] for name in found.files if has_image_name(name)}
        texts = (name for name in chain([first], texts) if name[:-4] in stems)
    return any(
        looks_like_labels(read_start(f"{folder}/{name}", storage, _START_BYTES))
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


def _has_split_folders(root: str, storage: StorageOptions) -> bool:
    found = look_in(root, storage)
    images = (f"{root}/{name}" for name in found.folders if name.lower() == "images")
    return _are_splits(found) or any(_are_splits(look_in(folder, storage)) for folder in images)


def _are_splits(found: Shallow) -> bool:
    others = ("images", "labels")
    folders = [name for name in found.folders if name.lower() not in others]
    return (
        bool(folders)
        and not any(map(has_image_name, found.files))
        and all(split_of([name]) for name in folders)
    )
