"""YOLO text labels as input: images, each with a .txt of one line per object.

Labels are in `labels/` as images are in `images/` (`images/train/a.jpg` and `labels/train/a.txt`,
or `train/images/` and `train/labels/`), or beside the images. Class names come from data.yaml,
dataset.yaml, classes.txt or obj.names. As YOLO defines it, an image without a .txt has no objects.
An invalid line in a .txt rejects the image, and the reject has the line; a box without area is
dropped (`boxes`). A polygon is kept as text, with its extent as the box.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from shardwright.transforms.inputs.annotations import boxes
from shardwright.transforms.inputs.annotations.label_trees import (
    TreeFile,
    label_key,
    list_tree,
    read_labels,
    read_lists,
    tree_batch,
)
from shardwright.transforms.inputs.annotations.yolo_labels import BadLine, YoloObject, parse_yolo
from shardwright.transforms.inputs.annotations.yolo_look import (
    NAME_FILES,
    YoloFacts,
    is_config,
    look,
)
from shardwright.transforms.inputs.file_rules import Problem, has_image_name, split_of
from shardwright.transforms.inputs.source import Rows, SourceFormat
from shardwright.transforms.references import BATCH_ROWS
from shardwright.transforms.rejects import Reject, RejectReason


def list_part(facts: YoloFacts, part: str) -> Rows:
    """Yield the tree's images as references, sorted by path, and rejects; the only part is ""."""
    del part
    files, rejects = list_tree(facts.root, facts.storage, facts.folders)
    yield from rejects
    images = [file for file in files if has_image_name(file.path)]
    lists = {path for _, path in facts.places if path.lower().endswith(".txt")}
    texts = [
        file
        for file in files
        if file.path.lower().endswith(".txt")
        and not _is_other(file.path)
        and file.path not in lists
    ]
    labels: dict[tuple[str, ...], list[TreeFile]] = defaultdict(list)
    for file in texts:
        labels[label_key(file.path)].append(file)
    keys = {label_key(image.path) for image in images}
    yield from _left_over(files, labels, keys, lists)
    split_by_path = _splits_by_place(facts, [file for file in files if file.path in lists])
    for start in range(0, len(images), BATCH_ROWS):
        yield from _batch(facts, images[start : start + BATCH_ROWS], labels, split_by_path)


def _is_other(path: str) -> bool:
    return path.rpartition("/")[2].lower() in NAME_FILES


def _left_over(
    files: Sequence[TreeFile],
    labels: dict[tuple[str, ...], list[TreeFile]],
    keys: set[tuple[str, ...]],
    lists: set[str],
) -> Iterator[Reject]:
    """Yield a reject for each file that is neither an image nor used for one."""
    for file in files:
        if (
            has_image_name(file.path)
            or _is_other(file.path)
            or is_config(file.path)
            or file.path in lists
        ):
            continue
        if label_key(file.path) in labels and file.path.lower().endswith(".txt"):
            if label_key(file.path) in keys:
                continue
            if any(folder.lower() == "labels" for folder in file.path.split("/")[:-1]):
                yield file.reject(RejectReason.MISSING_FILE, "there is no image of this name")
                continue
        yield file.reject(RejectReason.OTHER_FILE, "neither an image nor the labels of one")


def _splits_by_place(facts: YoloFacts, lists: Sequence[TreeFile]) -> Callable[[str], str | None]:
    """Return a function from an image's path to its split.

    The split is that of a list or folder in data.yaml; without those, of a split folder.
    """
    split_of_place = {path: split for split, path in facts.places}
    listed: dict[str, str] = {}
    for file, lines in read_lists(lists, facts.storage):
        for line in lines:
            parts = line.strip().removeprefix(f"{facts.root}/").split("/")
            path = "/".join(part for part in parts if part not in ("", ".", ".."))
            listed.setdefault(path, split_of_place[file.path])

    def find(path: str) -> str | None:
        folders = path.split("/")[:-1]
        above = ("/".join(folders[:depth]) for depth in range(len(folders), 0, -1))
        placed = listed.get(path) or next(
            (split_of_place[folder] for folder in above if folder in split_of_place), None
        )
        return placed or (None if facts.places else split_of(folders))

    return find


def _batch(
    facts: YoloFacts,
    images: Sequence[TreeFile],
    labels: dict[tuple[str, ...], list[TreeFile]],
    find_split: Callable[[str], str | None],
) -> Iterator[pa.RecordBatch | Reject]:
    found = [labels.get(label_key(image.path), []) for image in images]
    contents = dict(read_labels([files[0] for files in found if files], facts.storage))
    kept: list[TreeFile] = []
    objects: list[list[YoloObject]] = []
    for image, files in zip(images, found, strict=True):
        parsed = _parse(facts, files, contents)
        if isinstance(parsed, list):
            kept.append(image)
            objects.append(parsed)
        else:
            yield image.reject(*parsed)
    if kept:
        splits = [find_split(image.path) if facts.states_splits else None for image in kept]
        yield from tree_batch(kept, splits, _objects_of(facts, kept, objects), {})


def _parse(
    facts: YoloFacts, files: Sequence[TreeFile], contents: Mapping[TreeFile, bytes | Problem]
) -> list[YoloObject] | Problem:
    """Return the objects in an image's label files, or why it does not have one valid file."""
    content = contents[files[0]] if files else b""
    if len(files) > 1:
        told = f"it has several label files: {', '.join(file.path for file in files)}"
        return RejectReason.BAD_VALUE, told
    if not isinstance(content, bytes):
        return content
    try:
        return list(
            parse_yolo(content, num_classes=len(facts.names), has_keypoints=facts.has_keypoints)
        )
    except BadLine as fault:
        return RejectReason.BAD_VALUE, f"{files[0].path}, {fault}"


def _objects_of(
    facts: YoloFacts, images: Sequence[TreeFile], objects: Sequence[Sequence[YoloObject]]
) -> boxes.ObjectRows:
    flat = [found for of_image in objects for found in of_image]
    corners = boxes.corners_of_centres(
        np.array([found.box for found in flat], float).reshape(-1, 4)
    )
    columns = {
        boxes.LABEL: pa.array([facts.names[found.label] for found in flat], pa.string()),
        boxes.SEGMENTATION: pa.array([_polygon(found) for found in flat], pa.string()),
    }
    names = [
        f"{image.path}#{found.line}"
        for image, of_image in zip(images, objects, strict=True)
        for found in of_image
    ]
    return boxes.ObjectRows(
        np.repeat(np.arange(len(objects)), list(map(len, objects))), corners, columns, names
    )


def _polygon(found: YoloObject) -> str:
    """Return a polygon as COCO's JSON, a list in a list, but in fractions; "" for a plain box."""
    return json.dumps([found.polygon], separators=(",", ":")) if found.polygon else ""


FORMAT = SourceFormat(
    "YOLO: images and a .txt for each, or their data.yaml",
    look,
    list_part,
    rank=28,  # before `table`, which fails on files like data.yaml
    checks_links=True,
    lists_all=True,
)
