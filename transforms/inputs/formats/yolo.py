"""YOLO text labels as input: images, each with a .txt of one line per object.

Labels are in `labels/` as images are in `images/` (`images/train/a.jpg` and `labels/train/a.txt`,
or `train/images/` and `train/labels/`), or beside the images. Class names come from data.yaml,
dataset.yaml, classes.txt or obj.names. As YOLO defines it, an image without a .txt has no objects.
An invalid line in a .txt rejects the image, and the reject has the line; a box without area is
dropped (`boxes`). A polygon is kept as text, with its extent as the box.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import yaml
from msgspec import Meta, Struct, ValidationError, convert

from shardwright.errors import UsageError
from shardwright.sizes import counted
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs import boxes
from shardwright.transforms.inputs.boxes import ImageObject
from shardwright.transforms.inputs.columns import distinct_names
from shardwright.transforms.inputs.file_rules import (
    SPLIT_FOLDERS,
    decode_text,
    has_image_name,
    peek_text,
    probes,
    split_of,
)
from shardwright.transforms.inputs.folder_contents import read_start, read_starts
from shardwright.transforms.inputs.formats.voc import (
    KNOWN,
    LABELS,
    OTHERS,
    BadLabel,
    LabelFile,
    LabelTree,
    has_split_folders,
)
from shardwright.transforms.inputs.image_paths import outside_problem
from shardwright.transforms.inputs.source import SourceRequest
from shardwright.transforms.rejects import RejectReason

_MARGIN = 0.01  # tools let boxes exceed their image by this fraction
_CONFIG_BYTES = 1 << 20
_START_BYTES = 4096
_CVAT_FOLDER = re.compile(r"obj_([a-z]+)_data", re.IGNORECASE)
# Files with one class name per line: LabelImg's, Darknet's and Roboflow's.
NAME_FILES = ("classes.txt", "obj.names", "_darknet.labels", "predefined_classes.txt")
_LISTS = ("train.txt", "val.txt", "valid.txt", "test.txt")


def parse_yolo(
    data: bytes, names: Sequence[str], point_shape: tuple[int, int] | None = None
) -> Iterator[ImageObject]:
    """Yield the objects of a file: a class, the JSON of a polygon or "", and (x, y, visibility)s.

    The polygon is as COCO's, a list in a list, but in fractions.

    Args:
        data: The file's content.
        names: The class names by number.
        point_shape: The number of keypoints after each box, and that of the values of each, 2 or 3;
            None if there are no keypoints.

    Raises:
        BadLabel: It is neither UTF-8 nor UTF-16, or a line is not `class x y width height`, nor
            `class x y x y x y ...`, in fractions, nor, with keypoints, a box and its keypoints.
    """
    try:
        lines = decode_text(data).splitlines()
    except UnicodeError as error:
        raise BadLabel(str(error)) from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield _object_of(line.split(), number, names, point_shape)
            except ValueError as error:
                raise BadLabel(f"line {number}, {line.strip()[:80]!r}: {error}") from error


def _object_of(
    words: list[str], line: int, names: Sequence[str], point_shape: tuple[int, int] | None
) -> ImageObject:
    label, *values = map(float, words)
    if not (label.is_integer() and 0 <= label < len(names)):
        raise ValueError(f"invalid class {words[0]}: there are {len(names)}, counted from 0")
    points: tuple[tuple[float, ...], ...] = ()
    if point_shape is not None:
        points = _keypoints_of(values[4:], point_shape)
        del values[4:]
    # Four values are a box, and two points are no polygon.
    if len(values) < 4 or len(values) == 5 or len(values) % 2:
        raise ValueError("expected `class x y width height`, or `class` and at least three points")
    for value in values:
        if not -_MARGIN <= value <= 1 + _MARGIN:
            raise ValueError(
                f"{value:g} is not a fraction of the image's width or height: divide pixels by them"
            )
    polygon = ""
    if len(values) == 4:
        x, y, width, height = values
        box = y - height / 2, x - width / 2, y + height / 2, x + width / 2
    else:
        xs, ys = values[::2], values[1::2]
        box = min(ys), min(xs), max(ys), max(xs)
        polygon = json.dumps([values], separators=(",", ":"))
    return ImageObject(line, box, (names[int(label)], polygon, points))


def _keypoints_of(values: list[float], shape: tuple[int, int]) -> tuple[tuple[float, ...], ...]:
    num_points, size = shape
    if len(values) != num_points * size:
        raise ValueError(
            f"expected {num_points} keypoints of {size} values after the box, as the kpt_shape of "
            f"data.yaml says, got {counted(len(values), 'value')}"
        )
    points = [tuple(values[start : start + size]) for start in range(0, len(values), size)]
    if size == 2:  # without a label, YOLO writes negative numbers
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


class DataYaml(Struct):
    """The settings of a data.yaml, as Ultralytics defines them, without its places."""

    names: dict[int, str] | list[str]
    nc: int | Literal[""] = ""
    path: str = ""
    kpt_shape: tuple[Annotated[int, Meta(gt=0, lt=1000)], Literal[2, 3]] | None = None


class YoloConfig(NamedTuple):
    """The settings of a data set.

    Attributes:
        names: Class names by number; () without.
        names_path: The path or address of the file with the names.
        places: (split, folder or list of images as written).
        path: The data set's folder, as written; "" without.
        point_shape: As for `parse_yolo`.
    """

    names: tuple[str, ...] = ()
    names_path: str = ""
    places: tuple[tuple[str, str], ...] = ()
    path: str = ""
    point_shape: tuple[int, int] | None = None


def read_config(text: str, path: str) -> YoloConfig:
    """Parse a data.yaml; without names, it is another file.

    Raises:
        UsageError: It is not YAML, `nc` is not the number of `names`, a number has no name, a name
            is empty or no text, or a place or `kpt_shape` is invalid.
    """
    try:
        # It makes texts, lists and maps only, so numbers stay as written, and tags make nothing.
        # Not CBaseLoader: deep nesting ends the process there.
        values = yaml.load(text, Loader=yaml.BaseLoader)
        if not (isinstance(values, dict) and values.get("names")):
            return YoloConfig()
        found = convert(values, DataYaml, strict=False)
    except RecursionError as error:
        raise UsageError(f"{path} is not valid YAML: it is nested too deeply") from error
    except (yaml.YAMLError, ValidationError) as error:
        told = " ".join(str(error).split())
        raise UsageError(f"{path} is not a valid data.yaml: {told}") from error
    names = found.names
    if isinstance(names, dict):
        # Numbers must be 0 to n - 1, as they are indices.
        if missing := {*range(len(names))} - names.keys():
            number = min(missing)
            raise UsageError(
                f"{path}: names has {counted(len(names), 'class')}, but none with number {number}"
            )
        names = [names[number] for number in range(len(names))]
    if found.nc not in ("", len(names)):
        raise UsageError(
            f"{path}: nc is {found.nc}, but there are {counted(len(names), 'name')}: "
            "correct one of them"
        )
    places = [
        (split, place)
        for key, split in SPLIT_FOLDERS.items()
        for written in [values.get(key)]
        for place in (written if isinstance(written, list) else [written])
        if isinstance(place, str) and place
    ]
    return YoloConfig(_class_names(names, path), path, tuple(places), found.path, found.kpt_shape)


def _class_names(written: Iterable[str], path: str) -> tuple[str, ...]:
    """Return the names of classes, each once: "crane (1)" if two are called crane."""
    names = [*map(str.strip, written)]
    if "" in names:
        raise UsageError(
            f"{path}: class {names.index('')} has no name, so it is unclear which numbers the "
            "classes after it have: name it, or remove its line"
        )
    return tuple(distinct_names(dict(enumerate(names))).values())


@dataclass(frozen=True, slots=True, kw_only=True)
class YoloSource(LabelTree):
    """A tree of images and text labels.

    Attributes:
        names: Class names by number.
        point_shape: As for `parse_yolo`.
    """

    summary = "YOLO: images and a .txt for each, or their data.yaml"
    rank = 28
    ending = ".txt"
    needs_label = False
    unlisted = RejectReason.UNKNOWN_SPLIT

    names: tuple[str, ...]
    point_shape: tuple[int, int] | None

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
        of_folders = not places and has_split_folders(request, root)
        named = ", ".join(place for _, place in stated)
        places_from = config.names_path.rpartition("/")[2] if config.places else named
        splits = ", split folders" if of_folders else ""
        splits = f", splits from {places_from}{''.join(shared)}" if places else splits
        num_points = config.point_shape[0] if config.point_shape else 0
        types = boxes.value_types(boxes.LABEL, boxes.SEGMENTATION, num_keypoints=num_points)
        keypoints = f" and {counted(num_points, 'keypoint')}" if num_points else ""
        return YoloSource(
            f"YOLO labels at {root}: images with a .txt of boxes{keypoints} for each, "
            f"{counted(len(config.names), 'class')}{splits}",
            boxes.objects_schema(types),
            boxes.value_features(types, config.names),
            states_splits=bool(places) or of_folders,
            labels_from=f"the names in {config.names_path}",
            root=root,
            storage=request.storage,
            types=types,
            places=places,
            places_from=places_from,
            of_folders=of_folders,
            names=config.names,
            point_shape=config.point_shape,
        )

    def parse(self, data: bytes) -> LabelFile:
        return LabelFile([*parse_yolo(data, self.names, self.point_shape)])

    def kind_of(self, path: str) -> str:
        kind = super(YoloSource, self).kind_of(path)
        is_settings = kind in (LABELS, OTHERS) and (_is_other(path) or is_config(path))
        return KNOWN if is_settings else kind


def is_config(path: str) -> bool:
    """Return whether a file name has an extension of YAML."""
    return path.lower().endswith((".yaml", ".yml"))


def _is_other(path: str) -> bool:
    return path.rpartition("/")[2].lower() in NAME_FILES


def _open_config(request: SourceRequest) -> tuple[YoloConfig | None, str]:
    """Return the settings and the folder of the data set; None if INPUT is something else."""
    uri = request.uri
    if is_config(uri) and request.is_file:
        config = read_config(_read_text(uri, request.storage), uri)
        return config, request.image_root or _root_of(config.path, request)
    if not request.is_remote and not os.path.isdir(uri):
        return None, ""
    paths = request.listings.companions_in(uri).labels("txt")
    texts = [path for path in paths if not _is_other(path)]
    starts = list(read_starts(uri, probes(texts), request.storage, _START_BYTES))
    if request.forced or any(map(looks_like_labels, starts)):
        return _find_config(request), uri
    # Of images without objects, if there are class names.
    is_empty = bool(texts) and not any(map(bytes.strip, starts))
    config = _find_config(request) if is_empty else YoloConfig()
    return config if config.names else None, uri


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


def _root_of(written: str, request: SourceRequest) -> str:
    """Return the data set's folder: `path` of data.yaml if it is a folder, else data.yaml's own.

    Raises:
        UsageError: `path` leads out of INPUT's folder, and no option allows it.
    """
    home = request.uri.rpartition("/")[0]
    named = os.path.normpath(os.path.join(home, os.path.expanduser(written)))
    if not written or not os.path.isdir(named):
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
    # Of many files, only the first are listed: try the usual names, too.
    configs = dict.fromkeys([*filter(is_config, found.files), "data.yaml", "dataset.yaml"])
    for uri in (f"{root}/{name}" for name in configs):
        if (config := read_config(_read_text(uri, storage), uri)).names:
            return config
    below = [name for name in found.folders if name.lower() == "labels" or split_of([name])]
    for folder in (root, *(f"{root}/{name}" for name in below)):
        for path in (f"{folder}/{name}" for name in NAME_FILES):
            if text := _read_text(path, storage).rstrip():
                return YoloConfig(_class_names(text.splitlines(), path), path)
    return YoloConfig()


def _named_places(request: SourceRequest, root: str) -> list[tuple[str, str]]:
    """Return (split, list) of lists of images as Darknet and CVAT write them, or CVAT's folders."""
    found, places = request.listings.look_in(root), []
    for name in dict.fromkeys([*found.files, *(() if found.is_whole else _LISTS)]):
        stem, _, extension = name.rpartition(".")
        split = split_of([stem]) if extension.lower() == "txt" else None
        if split:
            start = peek_text(read_start(f"{root}/{name}", request.storage, _START_BYTES))
            if any(has_image_name(line.strip()) for line in start.splitlines()):
                places.append((split, name))
    for name in () if places else found.folders:
        match = _CVAT_FOLDER.fullmatch(name)
        if match and (split := split_of([match[1]])):
            places.append((split, name))
    return places


def _places(stated: Iterable[tuple[str, str]], root: str) -> tuple[Mapping[str, str], list[str]]:
    """Return the split of each folder or list below the root, and a text of each shared one.

    A place of several splits stays in the first, and its text says so: data sets without images
    for a test name those for validation twice. Roboflow writes ../train/images for train/images.
    """
    found: dict[str, str] = {}
    shared = []
    for split, place in stated:
        parts = place.removeprefix(f"{root}/").split("/")
        path = "/".join(part for part in parts if part not in ("", ".", ".."))
        if found.setdefault(path, split) != split:
            shared.append(f", {path} of {split} stays in {found[path]}")
    # A single place defines no splits.
    return (found if len(found) > 1 else {}), shared
