"""Find the companions of images: files and masks with an image's name, and the files beside them.

Formats with a label file for each image are detected by them, and formats of images alone report
them (`unread`), so that no format takes for class folders what another would read as labels.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from shardwright.transforms.inputs.file_rules import extension_of, has_image_name

# Folders that only separate images from labels: images/train/a.jpg belongs to labels/train/a.txt.
_IMAGE_FOLDERS = frozenset({"data", "image", "images", "img", "imgs", "jpegimages"})
LABEL_FOLDERS = frozenset(
    {"annotation", "annotations", "label", "labels", "labeltxt", "xml", "xmls"}
)
KIND_FOLDERS = _IMAGE_FOLDERS | LABEL_FOLDERS
_MASK_FOLDERS = frozenset(
    {"gt", "groundtruth", "ground_truth", "label", "labels", "mask", "masks", "annotations"}
    | {"segmentation", "segmentationclass", "segmentationobject", "segmentations"}
)
_MASK_ENDING = re.compile(r"[-_ .](mask|masks|seg|segmentation)$", re.IGNORECASE)
_PROBES = 32  # label files read in detection
_FEW_MASKS = 10  # one image in so many may end in _mask by chance


class Companions(NamedTuple):
    """The files of INPUT by their relation to images, as far as detection looks.

    Attributes:
        images: Paths of images.
        named: Extension -> paths of files that have the name of an image.
        masks: Paths of images with the name of another image, in a folder of masks or with "_mask"
            after it.
        others: Paths of files without the name of an image.
        is_whole: False if INPUT may hold more.
    """

    images: Sequence[str]
    named: Mapping[str, Sequence[str]]
    masks: Sequence[str]
    others: Sequence[str]
    is_whole: bool

    def labels(self, extension: str) -> list[str]:
        """Return the paths of files that may be the labels of one image each.

        They have an image's name, or are in a folder of labels, whose images may be elsewhere.
        """
        in_folders = (
            path
            for path in self.others
            if extension_of(path) == extension
            and not LABEL_FOLDERS.isdisjoint(path.lower().split("/")[:-1])
        )
        return sorted({*self.named.get(extension, ()), *in_folders})


def image_key(path: str) -> tuple[str, ...]:
    """Return what an image and its label file share: folders, without `KIND_FOLDERS`, and stem."""
    return _key(path, KIND_FOLDERS)


def _key(path: str, left_out: Collection[str]) -> tuple[str, ...]:
    *folders, name = path.split("/")
    return (
        *(folder for folder in folders if folder.lower() not in left_out),
        name.rpartition(".")[0] or name,
    )


def find_companions(paths: Iterable[str], *, is_whole: bool) -> Companions:
    """Sort the paths of INPUT's files, or of the first ones, by their relation to images."""
    images: list[str] = []
    rest: list[str] = []
    for path in paths:
        (images if has_image_name(path) else rest).append(path)
    keys = set(map(image_key, images))
    named: dict[str, list[str]] = defaultdict(list)
    others: list[str] = []
    for path in rest:
        # A program may add its own extension to the whole name: a.jpg.json.
        has_name = image_key(path) in keys or has_image_name(path.rpartition(".")[0])
        (named[extension_of(path)] if has_name else others).append(path)
    return Companions(images, named, _masks_of(images), others, is_whole)


def _masks_of(images: Sequence[str]) -> list[str]:
    left_out = KIND_FOLDERS | _MASK_FOLDERS
    found, plain = [], set()
    for path in images:
        *folders, stem = _key(path, left_out)
        bare = _MASK_ENDING.sub("", stem)
        in_folder = not _MASK_FOLDERS.isdisjoint(path.lower().split("/")[:-1])
        if in_folder or bare != stem:
            found.append((path, {(*folders, stem), (*folders, bare)}))
        else:
            plain.add((*folders, stem))
    masks = [path for path, keys in found if not keys.isdisjoint(plain)]
    return masks if _FEW_MASKS * len(masks) >= len(images) else []


def probes(paths: Sequence[str]) -> Sequence[str]:
    """Return some of many files, evenly: the first ones may be those of images without objects."""
    return paths[:: max(1, len(paths) // _PROBES)]
