"""Parse YOLO label files, one object per line, and class names: data.yaml, classes.txt, obj.names.

Formats: https://docs.ultralytics.com/datasets/detect/ and .../segment/, which extend Darknet's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from shardwright.errors import UsageError
from shardwright.sizes import counted

_MARGIN = 0.01  # tools let boxes exceed their image by this fraction


class BadLine(Exception):  # noqa: N818 - a fault of the file, not of the program
    """An invalid line of a label file; the message is one line."""


class YoloObject(NamedTuple):
    """An object, in fractions of its image.

    Attributes:
        label: The class number.
        box: x and y of the center, width, height.
        polygon: x, y, x, y...; () if there is only a box.
        line: The line of the file, from 1.
    """

    label: int
    box: tuple[float, float, float, float]
    polygon: tuple[float, ...]
    line: int


def parse_yolo(
    data: bytes, *, num_classes: int, has_keypoints: bool = False
) -> Iterator[YoloObject]:
    """Yield the objects of a file.

    Args:
        data: The file's content.
        num_classes: The number of classes.
        has_keypoints: True to drop the values after each box, which are keypoints.

    Raises:
        BadLine: A line is not `class x y width height`, nor `class x y x y x y ...`, in fractions.
    """
    for number, line in enumerate(data.decode("utf-8-sig", "replace").splitlines(), 1):
        if line.strip():
            try:
                yield _object_of(line.split(), number, num_classes, has_keypoints)
            except ValueError as error:
                raise BadLine(f"line {number}, {line.strip()[:80]!r}: {error}") from error


def _object_of(words: list[str], line: int, num_classes: int, has_keypoints: bool) -> YoloObject:
    label, *values = map(float, words)
    if not (label.is_integer() and 0 <= label < num_classes):
        raise ValueError(f"invalid class {words[0]}: there are {num_classes}, counted from 0")
    if has_keypoints:
        del values[4:]
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
        return YoloObject(int(label), tuple(values), (), line)  # type: ignore[arg-type]  # four values
    (left, right), (top, bottom) = ((min(side), max(side)) for side in (values[::2], values[1::2]))
    return YoloObject(
        int(label),
        ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top),
        tuple(values),
        line,
    )


def looks_like_labels(start: bytes) -> bool:
    """Return whether a text file starts like a label file: with a class and four fractions."""
    first = next(
        (
            line.split()
            for line in start.decode("utf-8-sig", "replace").splitlines()
            if line.strip()
        ),
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
        has_keypoints: True if keypoints follow the boxes in label files.
        names_path: The path or address of the file with the names; "" without.
    """

    names: tuple[str, ...]
    places: Mapping[str, tuple[str, ...]]
    path: str
    has_keypoints: bool
    names_path: str = ""


def read_names(text: str) -> tuple[str, ...]:
    """Return the names in a classes.txt or obj.names, one per line."""
    return tuple(line.strip() for line in text.removeprefix("\ufeff").splitlines() if line.strip())


def read_config(text: str, path: str) -> YoloConfig:
    """Parse a data.yaml.

    Raises:
        UsageError: It is not YAML, `nc` is not the number of `names`, a number has no name, or a
            name is empty, no text, or used twice.
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
    for key, split in (
        ("train", "train"),
        ("val", "validation"),
        ("valid", "validation"),
        ("test", "test"),
    ):
        value = values.get(key)
        found = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        if written := tuple(item for item in found if isinstance(item, str) and item):
            places[split] = written
    folder = values.get("path")
    return YoloConfig(
        names, places, folder if isinstance(folder, str) else "", "kpt_shape" in values, path
    )


def _parse_yaml(text: str, path: str) -> dict[str, Any]:
    """Return the outermost map of a YAML document; {} for a document of another kind."""
    try:
        # It makes texts, lists and maps only, so numbers stay as written, and tags make nothing.
        # Not CBaseLoader: deep nesting ends the process there.
        values = yaml.load(text.removeprefix("\ufeff"), Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise UsageError(f"{path} is not valid YAML: it is nested too deeply") from error
    return values if isinstance(values, dict) else {}


def _names(value: Any, path: str) -> tuple[str, ...]:
    if isinstance(value, dict):
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
