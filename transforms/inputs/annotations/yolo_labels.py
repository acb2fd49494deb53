"""YOLO's label files, one a line an object, and the files that name the classes: data.yaml, classes.txt, obj.names.

The formats: https://docs.ultralytics.com/datasets/detect/ and .../segment/, and Darknet's before them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from shardwright.errors import UsageError
from transforms.inputs.annotations.plain_yaml import read_plain_yaml

_MARGIN = 0.01  # by which tools let a box reach out of its image


class BadLine(Exception):  # noqa: N818 - the file's, not the program's
    """A line that is none of a label file: one line that says why."""


class YoloObject(NamedTuple):
    """One object, in fractions: its class, its box as x and y of the centre, width and height, and its polygon as x, y, x, y..."""

    label: int
    box: tuple[float, float, float, float]
    polygon: tuple[float, ...]
    line: int


def parse_yolo(
    data: bytes, *, num_classes: int, has_keypoints: bool = False
) -> Iterator[YoloObject]:
    """The objects of a file.

    Args:
        num_classes: How many classes there are.
        has_keypoints: What comes behind the box is points and no polygon: they are left out.

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
        raise ValueError(f"the class is {words[0]}, and there are {num_classes}, counted from 0")
    if has_keypoints:
        del values[4:]
    if len(values) != 4 and (len(values) < 6 or len(values) % 2):
        raise ValueError(
            "it has neither `class x y width height` nor `class` and three or more points"
        )
    wrong = next(
        (value for value in values if not (math.isnan(value) or -_MARGIN <= value <= 1 + _MARGIN)),
        None,
    )
    if wrong is not None:
        raise ValueError(
            f"{wrong:g} is no fraction of the image's width or height: divide pixels by them"
        )
    if len(values) == 4:
        return YoloObject(int(label), tuple(values), (), line)  # type: ignore[arg-type]  # of four
    (left, right), (top, bottom) = ((min(side), max(side)) for side in (values[::2], values[1::2]))
    return YoloObject(
        int(label),
        ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top),
        tuple(values),
        line,
    )


def looks_like_labels(start: bytes) -> bool:
    """Whether the first bytes of a text file are those of a label file that is not empty: a class, and fractions."""
    first = next(
        (
            line.split()
            for line in start.decode("utf-8-sig", "replace").splitlines()
            if line.strip()
        ),
        [],
    )
    try:
        numbers = [
            float(word) for word in first
        ]  # behind a box there may be keypoints with more than fractions
        return (
            len(first) >= 5
            and first[0].isdecimal()
            and all(-_MARGIN <= number <= 1 + _MARGIN for number in numbers[1:5])
        )
    except ValueError:
        return False


class YoloConfig(NamedTuple):
    """What a data.yaml says.

    Attributes:
        names: Class names by number; () where it has none.
        places: Split -> folders, or lists of images, as they are written.
        path: The data set's folder, as it is written; "" for none.
        has_keypoints: Labels have keypoints behind their boxes.
    """

    names: tuple[str, ...]
    places: Mapping[str, tuple[str, ...]]
    path: str
    has_keypoints: bool


def read_names(text: str) -> tuple[str, ...]:
    """The names of a classes.txt or obj.names: one a line."""
    return tuple(line.strip() for line in text.removeprefix("\ufeff").splitlines() if line.strip())


def read_config(text: str, path: str) -> YoloConfig:
    """Read a data.yaml: plain values, lists and maps of them, in one line or in several; no more of YAML than these files have.

    Raises:
        UsageError: `names` and `nc` contradict one another, or a number has no name.
    """
    values = read_plain_yaml(text)
    names = _names(values.get("names"), path)
    count = values.get("nc")
    if names and isinstance(count, str) and count.isdecimal() and int(count) != len(names):
        raise UsageError(
            f"{path}: nc is {count}, and there are {len(names)} names: mend one of them"
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
        names, places, folder if isinstance(folder, str) else "", "kpt_shape" in values
    )


def _names(value: Any, path: str) -> tuple[str, ...]:
    if isinstance(value, dict):
        missing = next(
            (str(number) for number in range(len(value)) if str(number) not in value), None
        )
        if missing is not None:
            raise UsageError(
                f"{path}: names has {len(value)} classes, and none of the number {missing}"
            )
        value = [value[str(number)] for number in range(len(value))]
    names = tuple(str(name).strip() for name in value) if isinstance(value, list) else ()
    doubled = next((name for name in names if not name or names.count(name) > 1), None)
    if doubled is not None:
        raise UsageError(
            f"{path}: two classes are called {doubled!r}, or one has no name: rename it"
        )
    return names
