"""Pascal VOC as input: images, each with an xml of its boxes.

Either VOC's own folders (`JPEGImages/`, `Annotations/`, `ImageSets/Main/{train,val,test}.txt` for
the splits; several of them in `VOCdevkit/`), or images with an xml of the same name beside them or
in `annotations/`. An image whose xml is missing or invalid is rejected; a box without area is
dropped (`boxes`). Masks in `SegmentationClass/` and `SegmentationObject/` become the columns
`segmentation` and `segmentation_object`, for schemas that use them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
from shardwright.transforms.inputs.annotations.voc_labels import BadLabel, VocLabel, parse_voc
from shardwright.transforms.inputs.annotations.voc_look import MASKS, SPLIT_LISTS, VocFacts, look
from shardwright.transforms.inputs.file_rules import Problem, has_image_name, split_of
from shardwright.transforms.inputs.source import Rows, SourceFormat
from shardwright.transforms.references import BATCH_ROWS, PICTURE_TYPE, extra_name
from shardwright.transforms.rejects import Reject, RejectReason

_Key = tuple[str, ...]


@dataclass(slots=True)
class _Tree:
    """The files of a tree by kind; labels and masks by the `label_key` shared with their image."""

    images: list[TreeFile]
    labels: dict[_Key, list[TreeFile]]
    masks: dict[str, dict[_Key, TreeFile]]
    lists: list[TreeFile]
    others: list[TreeFile]


def list_part(facts: VocFacts, part: str) -> Rows:
    """Yield the tree's images as references, sorted by path, and rejects; the only part is ""."""
    del part
    files, rejects = list_tree(facts.root, facts.storage, facts.folders)
    yield from rejects
    tree = _sort(files)
    splits, faults = _listed_splits(facts, tree) if facts.has_lists else ({}, [])
    yield from faults
    yield from _without_image(facts, tree, splits)
    wanted = []
    for image in tree.images:
        found = tree.labels.get(label_key(image.path), [])
        if facts.has_lists and label_key(image.path) not in splits:
            yield image.reject(RejectReason.OTHER_FILE, "in none of the lists of ImageSets/Main")
        elif len(found) == 1:
            wanted.append((image, found[0]))
        else:
            yield image.reject(*_label_problem(found))
    for start in range(0, len(wanted), BATCH_ROWS):
        yield from _batch(facts, tree, splits, wanted[start : start + BATCH_ROWS])


def _without_image(facts: VocFacts, tree: _Tree, splits: Mapping[_Key, str]) -> Iterator[Reject]:
    """Yield a reject for each listed name and each annotation without an image, and other files."""
    keys = {label_key(image.path) for image in tree.images}
    for key, split in splits.items():
        if key not in keys:
            yield Reject(
                "/".join(key),
                facts.root,
                RejectReason.MISSING_FILE,
                f"listed as a {split} image, but there is no image of this name",
            )
    for key, labels in tree.labels.items():
        if key not in keys:
            yield labels[0].reject(RejectReason.MISSING_FILE, "there is no image of this name")
    for file in tree.others:
        yield file.reject(RejectReason.OTHER_FILE, "neither an image nor an annotation")


def _label_problem(found: Sequence[TreeFile]) -> Problem:
    """Return why an image does not have one xml file."""
    if found:
        told = f"it has several xml files: {', '.join(file.path for file in found)}"
        return RejectReason.BAD_VALUE, told
    return RejectReason.MISSING_LABEL, "it has no xml file"


def _sort(files: Sequence[TreeFile]) -> _Tree:
    tree = _Tree([], defaultdict(list), {column: {} for column in MASKS.values()}, [], [])
    for file in files:
        folders = [folder.lower() for folder in file.path.split("/")[:-1]]
        mask = next((MASKS[folder] for folder in folders if folder in MASKS), None)
        if "imagesets" in folders:
            if folders[-1] == "main" and file.path.rpartition("/")[2].lower() in SPLIT_LISTS:
                tree.lists.append(file)
        elif not has_image_name(file.path):
            (
                tree.labels[label_key(file.path)]
                if file.path.lower().endswith(".xml")
                else tree.others
            ).append(file)
        elif mask:
            path = "/".join(part for part in file.path.split("/") if part.lower() not in MASKS)
            tree.masks[mask][label_key(path)] = file
        else:
            tree.images.append(file)
    return tree


def _listed_splits(facts: VocFacts, tree: _Tree) -> tuple[dict[_Key, str], list[Reject]]:
    """Return the split of each listed image by its key, and a reject for each image in two."""
    splits: dict[_Key, str] = {}
    rejects = []
    for file, lines in read_lists(sorted(tree.lists, key=_is_sum), facts.storage):
        *base, _, _, name = file.path.split("/")
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


def _is_sum(file: TreeFile) -> bool:
    """Return whether a list is trainval.txt, which counts only for images in no other list."""
    return file.path.lower().endswith("/trainval.txt")


def _batch(
    facts: VocFacts,
    tree: _Tree,
    splits: Mapping[_Key, str],
    wanted: Sequence[tuple[TreeFile, TreeFile]],
) -> Iterator[pa.RecordBatch | Reject]:
    images, labels = [], []
    for (image, file), (_, data) in zip(
        wanted, read_labels([label for _, label in wanted], facts.storage), strict=True
    ):
        label = _label_of(facts, image, file, data)
        if isinstance(label, VocLabel):
            images.append(image)
            labels.append(label)
        else:
            yield image.reject(*label)
    if not images:
        return
    keys = [label_key(image.path) for image in images]
    of_folder = facts.has_split_folders and not facts.has_lists
    states = [
        split_of(image.path.split("/")[:1]) if of_folder else splits.get(key)
        for image, key in zip(images, keys, strict=True)
    ]
    pictures = {
        extra_name(name): _pictures([masks.get(key) for key in keys])
        for name, masks in tree.masks.items()
        if facts.has_masks
    }
    yield from tree_batch(images, states, _objects_of(images, labels), pictures)


def _label_of(
    facts: VocFacts, image: TreeFile, file: TreeFile, data: bytes | Problem
) -> VocLabel | Problem:
    if not isinstance(data, bytes):
        return data
    try:
        label = parse_voc(data)
    except BadLabel as fault:
        return RejectReason.BAD_VALUE, f"{file.path}: {fault}"
    size = label.size or (
        boxes.read_size(image.uri, facts.storage) if label.objects else boxes.ImageSize(1, 1)
    )
    if size is None:
        return (
            RejectReason.BAD_VALUE,
            f"{file.path} states no size, and the image's header has none: its boxes have no scale",
        )
    return label._replace(size=size)


def _objects_of(images: Sequence[TreeFile], labels: Sequence[VocLabel]) -> boxes.ObjectRows:
    rows = np.repeat(np.arange(len(labels)), [len(label.objects) for label in labels])
    objects = [found for label in labels for found in label.objects]
    sizes = np.array([label.size for label in labels], float)[rows]
    corners = (
        np.array([found.edges for found in objects], float).reshape(-1, 4) / sizes[:, [0, 1, 0, 1]]
    )
    columns = {
        boxes.LABEL: pa.array([found.name for found in objects], pa.string()),
        boxes.POSE: pa.array([found.pose for found in objects], pa.string()),
        boxes.IS_TRUNCATED: pa.array([int(found.is_truncated) for found in objects], pa.int64()),
        boxes.IS_DIFFICULT: pa.array([int(found.is_difficult) for found in objects], pa.int64()),
    }
    names = [
        f"{image.path}#{number}"
        for image, label in zip(images, labels, strict=True)
        for number in range(1, len(label.objects) + 1)
    ]
    return boxes.ObjectRows(rows, corners, columns, names)


def _pictures(files: Sequence[TreeFile | None]) -> pa.Array:
    found = [
        file and {"uri": file.uri, "offset": None, "num_bytes": file.num_bytes, "etag": file.etag}
        for file in files
    ]
    return pa.array(found, PICTURE_TYPE)


FORMAT = SourceFormat(
    "Pascal VOC: images and an .xml for each",
    look,
    list_part,
    rank=51,
    checks_links=True,
    lists_all=True,
)
