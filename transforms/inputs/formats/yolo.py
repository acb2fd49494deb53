"""YOLO text labels as input: images, each with a .txt of one line per object.

Labels are in `labels/` as images are in `images/` (`images/train/a.jpg` and `labels/train/a.txt`,
or `train/images/` and `train/labels/`), or beside the images. Class names come from data.yaml,
dataset.yaml, classes.txt or obj.names. As YOLO defines it, an image without a .txt has no objects.
An invalid line in a .txt rejects the image, and the reject has the line; a box without area is
dropped (`boxes`). A polygon is kept as text, with its extent as the box.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import yaml

from shardwright.errors import UsageError
from shardwright.sizes import counted
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs import boxes
from shardwright.transforms.inputs.boundary import outside_problem
from shardwright.transforms.inputs.boxes import ImageObject
from shardwright.transforms.inputs.companions import image_key, probes
from shardwright.transforms.inputs.file_rules import (
    SPLIT_FOLDERS,
    Problem,
    has_image_name,
    split_of,
)
from shardwright.transforms.inputs.folder_contents import read_start, read_starts
from shardwright.transforms.inputs.foreign_text import decode_text, peek_text
from shardwright.transforms.inputs.formats.label_trees import (
    by_kind,
    has_split_folders,
    list_labelled,
    list_tree,
    listed_splits,
)
from shardwright.transforms.inputs.source import InputSource, Rows, SourceRequest
from shardwright.transforms.references import reference_schema
from shardwright.transforms.rejects import RejectReason

_MARGIN = 0.01  # tools let boxes exceed their image by this fraction
_CONFIG_BYTES = 1 << 20
_START_BYTES = 4096
_CVAT_FOLDER = re.compile(r"obj_([a-z]+)_data", re.IGNORECASE)
# Files with one class name per line: LabelImg's, Darknet's and Roboflow's.
NAME_FILES = ("classes.txt", "obj.names", "_darknet.labels", "predefined_classes.txt")
_IMAGES, _LABELS, _LISTS, _OTHERS = "images", "labels", "lists", "others"
_OTHER: Problem = (RejectReason.OTHER_FILE, "neither an image nor the labels of one")


class BadLine(Exception):  # noqa: N818 - a fault of the file, not of the program
    """An invalid line of a label file; the message is one line."""


class PointShape(NamedTuple):
    """The `kpt_shape` of a data.yaml: keypoints of an object, and the values of each, 2 or 3."""

    points: int
    values: int


def parse_yolo(
    data: bytes, names: Sequence[str], point_shape: PointShape | None = None
) -> Iterator[ImageObject]:
    """Yield the objects of a file: a class, the JSON of a polygon or "", and (x, y, visibility)s.

    The polygon is as COCO's, a list in a list, but in fractions.

    Args:
        data: The file's content.
        names: The class names by number.
        point_shape: What the values after each box are; None if there are no keypoints.

    Raises:
        BadLine: It is neither UTF-8 nor UTF-16, or a line is not `class x y width height`, nor
            `class x y x y x y ...`, in fractions, nor, with keypoints, a box and its keypoints.
    """
    try:
        lines = decode_text(data).splitlines()
    except UnicodeError as error:
        raise BadLine(str(error)) from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield _object_of(line.split(), number, names, point_shape)
            except ValueError as error:
                raise BadLine(f"line {number}, {line.strip()[:80]!r}: {error}") from error


def _object_of(
    words: list[str], line: int, names: Sequence[str], point_shape: PointShape | None
) -> ImageObject:
    label, *values = map(float, words)
    if not (label.is_integer() and 0 <= label < len(names)):
        raise ValueError(f"invalid class {words[0]}: there are {len(names)}, counted from 0")
    points: tuple[tuple[float, ...], ...] = ()
    if point_shape is not None:
        points = _keypoints_of(values[4:], point_shape)
        del values[4:]
    # Four values are a box, and two points are no polygon.
    is_box = len(values) == 4
    if not is_box and (len(values) < 6 or len(values) % 2):
        raise ValueError("expected `class x y width height`, or `class` and at least three points")
    for value in values:
        # NaN in a box is a reject with the whole box in it.
        if not (-_MARGIN <= value <= 1 + _MARGIN or (is_box and math.isnan(value))):
            raise ValueError(
                f"{value:g} is not a fraction of the image's width or height: divide pixels by them"
            )
    if is_box:
        x, y, width, height = values
        box = y - height / 2, x - width / 2, y + height / 2, x + width / 2
    else:
        xs, ys = values[::2], values[1::2]
        box = min(ys), min(xs), max(ys), max(xs)
    polygon = "" if is_box else json.dumps([values], separators=(",", ":"))
    return ImageObject(line, box, (names[int(label)], polygon, points))


def _keypoints_of(values: list[float], shape: PointShape) -> tuple[tuple[float, ...], ...]:
    if len(values) != shape.points * shape.values:
        raise ValueError(
            f"expected {shape.points} keypoints of {shape.values} values after the box, as the "
            f"kpt_shape of data.yaml says, got {counted(len(values), 'value')}"
        )
    points = [
        tuple(values[start : start + shape.values]) for start in range(0, len(values), shape.values)
    ]
    if shape.values == 2:  # without a label, YOLO writes negative numbers
        points = [(x, y, 2.0 if min(x, y) >= 0 else 0.0) for x, y in points]
    return tuple(point if point[2] else (0.0, 0.0, 0.0) for point in points)


def looks_like_labels(start: bytes) -> bool:
    """Return whether a text file starts like a label file: with a class and four fractions."""
    first = next(
        (line.split() for line in peek_text(start).splitlines() if line.strip()),
        [],
    )
    try:
        # After a box there may be keypoints, which have other values than fractions.
        numbers = [float(word) for word in first]
        return (
            len(first) >= 5
            and first[0].isdecimal()
            and all(-_MARGIN <= number <= 1 + _MARGIN for number in numbers[1:5])
        )
    except ValueError:
        return False


class YoloConfig(NamedTuple):
    """The settings of a data.yaml.

    Attributes:
        names: Class names by number; () without.
        places: Split -> folders or lists of images, as written.
        path: The data set's folder, as written; "" without.
        point_shape: What follows the boxes in label files; None if there are no keypoints.
        names_path: The path or address of the file with the names; "" without.
    """

    names: tuple[str, ...] = ()
    places: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    path: str = ""
    point_shape: PointShape | None = None
    names_path: str = ""


def read_names(text: str, path: str) -> tuple[str, ...]:
    """Return the names in a classes.txt or obj.names, one per line.

    Raises:
        UsageError: A line before the last name is empty: class numbers are numbers of lines.
    """
    names = tuple(map(str.strip, text.rstrip().splitlines()))
    if "" in names:
        raise UsageError(
            f"{path}: line {names.index('') + 1} is empty, so it is unclear which numbers the "
            "classes below it have: remove it, or give its class a name"
        )
    return names


def read_config(text: str, path: str) -> YoloConfig:
    """Parse a data.yaml.

    Raises:
        UsageError: It is not YAML, `nc` is not the number of `names`, a number has no name, a name
            is empty, no text, or used twice, or `kpt_shape` is invalid.
    """
    values = _parse_yaml(text, path)
    names = _names(values.get("names"), path)
    count = values.get("nc")
    if names and isinstance(count, str) and count.isdecimal() and int(count) != len(names):
        raise UsageError(
            f"{path}: nc is {count}, but there are {counted(len(names), 'name')}: "
            "correct one of them"
        )
    places = {}
    for key, split in SPLIT_FOLDERS.items():
        value = values.get(key)
        found = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        if written := tuple(item for item in found if isinstance(item, str) and item):
            places[split] = written
    folder = values.get("path")
    return YoloConfig(
        names, places, folder if isinstance(folder, str) else "", _point_shape(values, path), path
    )


def _point_shape(values: Mapping[str, Any], path: str) -> PointShape | None:
    if "kpt_shape" not in values:
        return None
    match values["kpt_shape"]:
        case [str(count), "2" | "3" as size] if count.isdecimal() and 0 < int(count) < 1000:
            return PointShape(int(count), int(size))
    raise UsageError(
        f"{path}: kpt_shape is {values['kpt_shape']!r}: it must be the number of keypoints and "
        "that of the values of each, 2 or 3, such as [17, 3]"
    )


def _parse_yaml(text: str, path: str) -> dict[str, Any]:
    """Return the outermost map of a YAML document; {} for a document of another kind."""
    try:
        # It makes texts, lists and maps only, so numbers stay as written, and tags make nothing.
        # Not CBaseLoader: deep nesting ends the process there.
        values = yaml.load(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise UsageError(f"{path} is not valid YAML: it is nested too deeply") from error
    return values if isinstance(values, dict) else {}


def _names(value: Any, path: str) -> tuple[str, ...]:
    if isinstance(value, dict):
        # Numbers must be 0 to n - 1, as they are indices.
        missing = next(
            (str(number) for number in range(len(value)) if str(number) not in value), None
        )
        if missing is not None:
            raise UsageError(
                f"{path}: names has {counted(len(value), 'class')}, but none with number {missing}"
            )
        value = [value[str(number)] for number in range(len(value))]
    written = value if isinstance(value, list) else []
    if odd := [name for name in written if not isinstance(name, str)]:
        raise UsageError(f"{path}: class name {odd[0]!r} is not a text")
    names = tuple(name.strip() for name in written)
    for name, count in Counter(names).items():
        if not name or count > 1:
            raise UsageError(f"{path}: class name {name!r} is empty or used twice: rename it")
    return names


@dataclass(frozen=True, slots=True, kw_only=True)
class YoloSource(InputSource):
    """A tree of images and text labels.

    Attributes:
        root: The tree's folder.
        names: Class names by number.
        places: (split, folder or list of images below the root) of data.yaml, or by their names.
        places_from: What states the places, for messages.
        point_shape: What follows the boxes; None if there are no keypoints.
        storage: Options of the tree's store.
    """

    summary = "YOLO: images and a .txt for each, or their data.yaml"
    rank = 28
    checks_links = True

    root: str
    names: tuple[str, ...]
    places: tuple[tuple[str, str], ...]
    places_from: str
    point_shape: PointShape | None
    storage: StorageOptions

    @classmethod
    def look(cls, request: SourceRequest) -> YoloSource | None:
        """Return YOLO labels as a source; None if INPUT is something else.

        Raises:
            UsageError: The format is forced and INPUT is not a folder, there are no class names, or
                an option gives a column.
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
        stated = config.places or _named_places(request, root)
        places, shared = _places(stated, root)
        of_folders = not places and _has_split_folders(request, root)
        splits = ", split folders" if of_folders else ""
        named = (name for names in stated.values() for name in names)
        places_from = config.names_path.rpartition("/")[2] if config.places else ", ".join(named)
        splits = f", splits from {places_from}{''.join(shared)}" if places else splits
        features = (*boxes.box_features(config.names), boxes.SEGMENTATION_FEATURE)
        points = config.point_shape
        if points is not None:
            features = (*features, boxes.keypoint_feature(points.points))
        keypoints = f" and {counted(points.points, 'keypoint')}" if points else ""
        return YoloSource(
            f"YOLO labels at {root}: images with a .txt of boxes{keypoints} for each, "
            f"{counted(len(config.names), 'class')}{splits}",
            reference_schema(
                [(boxes.BOX, pa.list_(boxes.BOX_TYPE))]
                + [(name, pa.list_(kind)) for name, kind in _object_types(points).items()]
            ),
            features,
            states_splits=bool(places) or of_folders,
            labels_from=f"the names in {config.names_path}",
            root=root,
            names=config.names,
            places=places,
            places_from=places_from,
            point_shape=points,
            storage=request.storage,
        )

    def references(self, part: str) -> Rows:
        """Yield the tree's images, sorted by path, and rejects; the only part is ""."""
        del part
        files, rejects = list_tree(self.root, self.storage, self.folders)
        yield from rejects
        split_of_place = {path: split for split, path in self.places}
        found = by_kind(files, partial(_kind_of, split_of_place))
        images = found[_IMAGES]
        paths = {image.id for image in images}
        listed, faults = listed_splits(
            [(file, split_of_place[file.id]) for file in found[_LISTS]],
            paths,
            lambda _, line: _path_of_line(line.removeprefix(f"{self.root}/"), paths),
            self.storage,
        )
        yield from faults
        keys = set(map(image_key, paths))
        for file in found[_LABELS]:
            if image_key(file.id) not in keys:
                if any(folder.lower() == "labels" for folder in file.id.split("/")[:-1]):
                    yield file.reject(RejectReason.MISSING_FILE, "there is no image of this name")
                else:
                    yield file.reject(*_OTHER)
        yield from (file.reject(*_OTHER) for file in found[_OTHERS])
        places = ", ".join(f"{split}: {self.root}/{path}" for split, path in self.places)
        unplaced = (
            f"in none of the places of {self.places_from} ({places}): correct them, or move it"
        )
        yield from list_labelled(
            images,
            found[_LABELS],
            self.storage,
            self._objects_of,
            _object_types(self.point_shape),
            partial(self._split_of, split_of_place, listed),
            kind="label files",
            without_split=(RejectReason.UNKNOWN_SPLIT, unplaced) if self.places else None,
        )

    def _objects_of(self, path: str, data: bytes) -> list[ImageObject] | Problem:
        try:
            return list(parse_yolo(data, self.names, self.point_shape))
        except BadLine as fault:
            return RejectReason.BAD_VALUE, f"{path}, {fault}"

    def _split_of(
        self, split_of_place: Mapping[str, str], listed: Mapping[str, str], path: str
    ) -> str | None:
        """Return an image's split: that of a list or folder in data.yaml, or of a split folder."""
        folders = path.split("/")[:-1]
        if not self.places:
            return split_of(folders) if self.states_splits else None
        above = ("/".join(folders[:depth]) for depth in range(len(folders), 0, -1))
        # The innermost folder counts: `above` begins with it.
        placed = (split_of_place[folder] for folder in above if folder in split_of_place)
        return listed.get(path) or next(placed, None)


def _kind_of(lists: Container[str], path: str) -> str:
    """Return what a file is, given the lists of images; "" for settings."""
    if has_image_name(path):
        return _IMAGES
    if path in lists:
        return _LISTS
    if _is_other(path) or is_config(path):
        return ""
    return _LABELS if path.lower().endswith(".txt") else _OTHERS


def _object_types(points: PointShape | None) -> dict[str, pa.DataType]:
    """Return the values of an object beside its box."""
    types = {boxes.LABEL: pa.string(), boxes.SEGMENTATION: pa.string()}
    return (
        types if points is None else types | {boxes.KEYPOINTS: boxes.keypoint_type(points.points)}
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


def _has_labels(request: SourceRequest) -> bool:
    """Return whether a .txt of an image has boxes, or all are empty and there are class names."""
    paths = request.listings.companions_in(request.uri).labels("txt")
    texts = [path for path in paths if not _is_other(path)]
    starts = list(read_starts(request.uri, probes(texts), request.storage, _START_BYTES))
    if texts and not any(map(bytes.strip, starts)):
        return bool(_find_config(request).names)
    return any(map(looks_like_labels, starts))


def _read_text(uri: str, storage: StorageOptions) -> str:
    """Return the text of a small file; "" if it cannot be read.

    Raises:
        UsageError: It is not small, or neither UTF-8 nor UTF-16.
    """
    start = read_start(uri, storage, _CONFIG_BYTES + 1)
    if len(start) > _CONFIG_BYTES:
        raise UsageError(f"{uri} is longer than {_CONFIG_BYTES:,} bytes: it holds no settings")
    try:
        return decode_text(start)
    except UnicodeError as error:
        raise UsageError(f"{uri} is {error}") from error


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
            path = f"{folder}/{name}"
            if names := read_names(_read_text(path, storage), path):
                return YoloConfig(names, names_path=path)
    return YoloConfig()


def _named_places(request: SourceRequest, root: str) -> dict[str, tuple[str, ...]]:
    """Return split -> lists of images as Darknet and CVAT write them, or else CVAT's folders."""
    found = request.listings.look_in(root)
    places: dict[str, list[str]] = defaultdict(list)
    for name in found.files:
        stem, _, extension = name.rpartition(".")
        split = split_of([stem]) if extension.lower() == "txt" else None
        if split:
            start = peek_text(read_start(f"{root}/{name}", request.storage, _START_BYTES))
            if any(has_image_name(line.strip()) for line in start.splitlines()):
                places[split].append(name)
    for name in () if places else found.folders:
        match = _CVAT_FOLDER.fullmatch(name)
        if match and (split := split_of([match[1]])):
            places[split].append(name)
    return {split: tuple(names) for split, names in places.items()}


def _places(
    stated: Mapping[str, Sequence[str]], root: str
) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """Return (split, folder or list below the root) of each place, and a text of each shared one.

    A place of several splits stays in the first, and its text says so: data sets without images
    for a test name those for validation twice. Roboflow writes ../train/images for train/images.
    """
    found: dict[str, str] = {}
    shared = []
    for split, written in stated.items():
        for place in written:
            parts = [
                part
                for part in place.removeprefix(f"{root}/").split("/")
                if part not in ("", ".", "..")
            ]
            path = "/".join(parts)
            if found.setdefault(path, split) != split:
                shared.append(f", {path} of {split} stays in {found[path]}")
    # A single place defines no splits.
    places = tuple((split, path) for path, split in found.items()) if len(found) > 1 else ()
    return places, shared


def _has_split_folders(request: SourceRequest, root: str) -> bool:
    below = request.listings.look_in(root).folders
    images = [f"{root}/{name}" for name in below if name.lower() == "images"]
    return any(_are_splits(request, folder) for folder in (root, *images))


def _are_splits(request: SourceRequest, folder: str) -> bool:
    below = request.listings.look_in(folder).folders
    names = [name for name in below if name.lower() not in ("images", "labels")]
    return has_split_folders(request, folder, names)


def _is_other(path: str) -> bool:
    return path.rpartition("/")[2].lower() in NAME_FILES


def _path_of_line(line: str, paths: Set[str]) -> str:
    """Return the path of a line of a list, without folders that INPUT lacks, as CVAT's data/."""
    parts = [part for part in line.split("/") if part not in ("", ".", "..")]
    ends = ("/".join(parts[start:]) for start in range(len(parts)))
    return next((end for end in ends if end in paths), "/".join(parts))
