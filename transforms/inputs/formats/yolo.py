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
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import yaml

from shardwright.errors import UsageError
from shardwright.sizes import counted
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs import boxes
from shardwright.transforms.inputs.boundary import outside_problem
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
    TreeObject,
    has_split_folders,
    list_labelled,
    list_tree,
    read_lists,
)
from shardwright.transforms.inputs.image_rows import ImageRow
from shardwright.transforms.inputs.source import InputSource, Rows, SourceRequest
from shardwright.transforms.references import reference_schema
from shardwright.transforms.rejects import Reject, RejectReason

_MARGIN = 0.01  # tools let boxes exceed their image by this fraction
_CONFIG_BYTES = 1 << 20
_START_BYTES = 4096
_CVAT_FOLDER = re.compile(r"obj_([a-z]+)_data", re.IGNORECASE)
# Files with one class name per line: LabelImg's, Darknet's and Roboflow's.
NAME_FILES = ("classes.txt", "obj.names", "_darknet.labels", "predefined_classes.txt")


class BadLine(Exception):  # noqa: N818 - a fault of the file, not of the program
    """An invalid line of a label file; the message is one line."""


class YoloObject(NamedTuple):
    """An object, in fractions of its image.

    Attributes:
        label: The class number.
        box: x and y of the center, width, height.
        polygon: x, y, x, y...; () if there is only a box.
        line: The line of the file, from 1.
        keypoints: (x, y, visibility) of each.
    """

    label: int
    box: tuple[float, float, float, float]
    polygon: tuple[float, ...]
    line: int
    keypoints: tuple[tuple[float, ...], ...] = ()


class PointShape(NamedTuple):
    """The `kpt_shape` of a data.yaml: keypoints of an object, and the values of each, 2 or 3."""

    points: int
    values: int


def parse_yolo(
    data: bytes, num_classes: int, point_shape: PointShape | None = None
) -> Iterator[YoloObject]:
    """Yield the objects of a file.

    Args:
        data: The file's content.
        num_classes: The number of classes.
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
                yield _object_of(line.split(), number, num_classes, point_shape)
            except ValueError as error:
                raise BadLine(f"line {number}, {line.strip()[:80]!r}: {error}") from error


def _object_of(
    words: list[str], line: int, num_classes: int, point_shape: PointShape | None
) -> YoloObject:
    label, *values = map(float, words)
    if not (label.is_integer() and 0 <= label < num_classes):
        raise ValueError(f"invalid class {words[0]}: there are {num_classes}, counted from 0")
    points: tuple[tuple[float, ...], ...] = ()
    if point_shape is not None:
        points = _keypoints_of(values[4:], point_shape)
        del values[4:]
    # Four values are a box, and two points are no polygon.
    if len(values) != 4 and (len(values) < 6 or len(values) % 2):
        raise ValueError("expected `class x y width height`, or `class` and at least three points")
    wrong = next(
        (value for value in values if not (math.isnan(value) or -_MARGIN <= value <= 1 + _MARGIN)),
        None,
    )
    if wrong is not None:
        raise ValueError(
            f"{wrong:g} is not a fraction of the image's width or height: divide pixels by them"
        )
    if len(values) == 4:
        box: tuple[float, float, float, float] = tuple(values)  # type: ignore[assignment]  # four
        return YoloObject(int(label), box, (), line, points)
    (left, right), (top, bottom) = ((min(side), max(side)) for side in (values[::2], values[1::2]))
    return YoloObject(
        int(label),
        ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top),
        tuple(values),
        line,
    )


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

    names: tuple[str, ...]
    places: Mapping[str, tuple[str, ...]]
    path: str
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
        told = f" and {counted(points.points, 'keypoint')}" if points else ""
        return YoloSource(
            f"YOLO labels at {root}: images with a .txt of boxes{told} for each, "
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
        images = [file for file in files if has_image_name(file.id)]
        lists = {path for _, path in self.places if path.lower().endswith(".txt")}
        texts = [
            file
            for file in files
            if file.id.lower().endswith(".txt") and not _is_other(file.id) and file.id not in lists
        ]
        labels: dict[tuple[str, ...], list[ImageRow]] = defaultdict(list)
        for file in texts:
            labels[image_key(file.id)].append(file)
        keys = {image_key(image.id) for image in images}
        yield from _left_over(files, labels, keys, lists)
        listed, faults = _listed_splits(self, [file for file in files if file.id in lists], images)
        yield from faults
        split_by_path = _splits_by_place(self, listed)
        pairs = []
        places = ", ".join(f"{split}: {self.root}/{path}" for split, path in self.places)
        unplaced = (
            f"in none of the places of {self.places_from} ({places}): correct them, or move it"
        )
        for image in images:
            found = labels.get(image_key(image.id), [])
            if self.places and split_by_path(image.id) is None:
                yield image.reject(RejectReason.UNKNOWN_SPLIT, unplaced)
            elif len(found) > 1:
                told = f"it has several label files: {', '.join(file.id for file in found)}"
                yield image.reject(RejectReason.BAD_VALUE, told)
            else:
                pairs.append((image, found[0] if found else None))

        def parse(_: ImageRow, file: ImageRow | None, data: bytes) -> list[TreeObject] | Problem:
            try:
                found = list(parse_yolo(data, len(self.names), self.point_shape))
            except BadLine as fault:
                return RejectReason.BAD_VALUE, f"{file.id if file else ''}, {fault}"
            objects = []
            for one in found:
                # As COCO's JSON, a list in a list, but in fractions; "" for a plain box.
                polygon = json.dumps([one.polygon], separators=(",", ":")) if one.polygon else ""
                values = (self.names[one.label], polygon, one.keypoints)
                objects.append(TreeObject(one.line, one.box, values))
            return objects

        yield from list_labelled(
            pairs,
            self.storage,
            parse,
            _object_types(self.point_shape),
            split_by_path,
            corners=partial(boxes.corners_of_sides, part=0.5),
        )


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
                return YoloConfig(names, {}, "", None, path)
    return YoloConfig((), {}, "")


def _named_places(request: SourceRequest, root: str) -> dict[str, tuple[str, ...]]:
    """Return split -> lists of images as Darknet and CVAT write them, or else CVAT's folders."""
    found = request.listings.look_in(root)
    places: dict[str, list[str]] = defaultdict(list)
    for name in found.files:
        stem, _, extension = name.rpartition(".")
        split = split_of([stem]) if extension.lower() == "txt" else None
        if split and any(map(has_image_name, _start_of(request, f"{root}/{name}").split("\n"))):
            places[split].append(name)
    for name in () if places else found.folders:
        match = _CVAT_FOLDER.fullmatch(name)
        if match and (split := split_of([match[1]])):
            places[split].append(name)
    return {split: tuple(names) for split, names in places.items()}


def _start_of(request: SourceRequest, uri: str) -> str:
    start = read_start(uri, request.storage, _START_BYTES)
    return "\n".join(map(str.strip, start.decode("utf-8-sig", "replace").splitlines()))


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


def _left_over(
    files: Sequence[ImageRow],
    labels: dict[tuple[str, ...], list[ImageRow]],
    keys: set[tuple[str, ...]],
    lists: set[str],
) -> Iterator[Reject]:
    """Yield a reject for each file that is neither an image nor used for one."""
    for file in files:
        if has_image_name(file.id) or _is_other(file.id) or is_config(file.id) or file.id in lists:
            continue
        if image_key(file.id) in labels and file.id.lower().endswith(".txt"):
            if image_key(file.id) in keys:
                continue
            if any(folder.lower() == "labels" for folder in file.id.split("/")[:-1]):
                yield file.reject(RejectReason.MISSING_FILE, "there is no image of this name")
                continue
        yield file.reject(RejectReason.OTHER_FILE, "neither an image nor the labels of one")


def _listed_splits(
    source: YoloSource, lists: Sequence[ImageRow], images: Sequence[ImageRow]
) -> tuple[dict[str, str], list[Reject]]:
    """Return the split of each listed path, and a reject for one in two splits or without image."""
    split_of_place = {path: split for split, path in source.places}
    paths, listed, rejects = {image.id for image in images}, dict[str, str](), []
    for file, lines in read_lists(lists, source.storage):
        split = split_of_place[file.id]
        for line in filter(None, map(str.strip, lines)):
            path = _path_of_line(line.removeprefix(f"{source.root}/"), paths)
            first = listed.setdefault(path, split)
            if first != split:
                told = RejectReason.DUPLICATE_ID, f"listed in two splits; it stays in {first}"
            elif path not in paths:
                text = f"listed as a {split} image, but there is no image of this name"
                told = RejectReason.MISSING_FILE, text
            else:
                continue
            rejects.append(Reject(path, file.uri, *told))
    return listed, rejects


def _path_of_line(line: str, paths: Set[str]) -> str:
    """Return the path of a line of a list, without folders that INPUT lacks, as CVAT's data/."""
    parts = [part for part in line.split("/") if part not in ("", ".", "..")]
    ends = ("/".join(parts[start:]) for start in range(len(parts)))
    return next((end for end in ends if end in paths), "/".join(parts))


def _splits_by_place(source: YoloSource, listed: Mapping[str, str]) -> Callable[[str], str | None]:
    """Return a function from an image's path to its split.

    The split is that of a list or folder in data.yaml; without those, of a split folder.
    """
    if not source.states_splits:
        return lambda _: None
    split_of_place = {path: split for split, path in source.places}

    def find(path: str) -> str | None:
        folders = path.split("/")[:-1]
        above = ("/".join(folders[:depth]) for depth in range(len(folders), 0, -1))
        # The innermost folder counts: `above` begins with it.
        placed = listed.get(path) or next(
            (split_of_place[folder] for folder in above if folder in split_of_place), None
        )
        return placed or (None if source.places else split_of(folders))

    return find
