"""Detect the features and classes of COCO json files (https://cocodataset.org/#format-data)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from shardwright.errors import BuildError
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.annotations.json_sections import read_sections

_SMALL_BYTES = 32 << 20  # files up to this length are read whole for detection
_LOOK_BYTES = 4 << 20
_DIGITS = re.compile(r"-?[0-9]{1,19}")
_CATEGORIES = re.compile(r'"categories"\s*:\s*(?=\[)')
MAX_INT64 = 2**63 - 1


class CocoContent(NamedTuple):
    """The content of a json file that decides its features.

    Attributes:
        categories: (id, name) of each.
        has_boxes: True with categories, or with a box in an annotation.
        has_captions: True with a caption in an annotation.
    """

    categories: tuple[tuple[str, str], ...]
    has_boxes: bool
    has_captions: bool


def look_at_coco(uri: str, storage: StorageOptions) -> CocoContent:
    """Detect the content of a json file; of a large one, read only the end or start if enough.

    Raises:
        BuildError: The file is not JSON, or its categories are invalid.
        StorageError: The file cannot be read.
    """
    files = files_of(uri, storage)
    num_bytes = files.num_bytes_of(uri) or 0
    if num_bytes > _SMALL_BYTES:
        # COCO's own files end with the categories, others begin with them.
        for start in (num_bytes - _LOOK_BYTES, 0):
            text = files.read_range(uri, start, _LOOK_BYTES).decode("utf-8", "ignore")
            if found := _content_of_part(text, uri):
                return found
    categories: list[Any] = []
    keys: set[str] = set()
    for section, item in read_sections(uri, storage):
        if section == "categories":
            categories.append(item)
        elif section == "annotations" and isinstance(item, dict):
            keys |= item.keys()
    names = category_names(categories, uri)
    return CocoContent(names, bool(names) or "bbox" in keys, "caption" in keys)


def _content_of_part(text: str, uri: str) -> CocoContent | None:
    """Return a file's content as its start or end shows it; None if it does not."""
    *_, match = (None, *_CATEGORIES.finditer(text))
    has_boxes, has_captions = '"bbox"' in text, '"caption"' in text
    if match is None:
        return CocoContent((), False, True) if has_captions and not has_boxes else None
    try:
        categories, _ = json.JSONDecoder().raw_decode(text, match.end())
        return CocoContent(category_names(categories, uri), True, has_captions)
    except (ValueError, RecursionError, BuildError):
        return None


def category_names(categories: Iterable[Any], uri: str) -> tuple[tuple[str, str], ...]:
    """Return (id, name) of each category, in file order.

    Raises:
        BuildError: A category has no id or name, or two have the same.
    """
    found: dict[str, str] = {}
    for number, category in enumerate(categories):
        key, name = (
            (key_of(category.get("id")), category.get("name"))
            if isinstance(category, dict)
            else (None, None)
        )
        if key is None or not isinstance(name, str) or not is_text(name):
            raise BuildError(
                f"{uri}: categories[{number}] is {shorten(category)}; "
                "a category has an id and a name"
            )
        name = name.strip()
        if key in found or name in found.values():
            raise BuildError(
                f"{uri}: two categories have the id {key} or the name {name!r}: "
                "rename one, or merge them"
            )
        found[key] = name
    return tuple(found.items())


def merge_categories(files: Iterable[Sequence[tuple[str, str]]]) -> tuple[str, ...]:
    """Return the class names of several files, ordered by the lowest id of each, as in TFDS."""
    lowest: dict[str, tuple[bool, int, str]] = {}
    for key, name in (category for categories in files for category in categories):
        number = number_of(key)
        rank = (number is None, number or 0, key)
        lowest[name] = min(rank, lowest.get(name, rank))
    return tuple(sorted(lowest, key=lambda name: (lowest[name], name)))


def number_of(key: str) -> int | None:
    """Return an id as an integer of 64 bits, None if it is none."""
    number = int(key) if _DIGITS.fullmatch(key) else None
    return number if number is not None and abs(number) <= MAX_INT64 else None


def key_of(value: object) -> str | None:
    """Return an id in comparable form, None if invalid: tools write 7, 7.0 and "7" for the same."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str) or (
        isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_INT64
    ):
        return str(value)
    return None


def is_text(value: str) -> bool:
    """Return whether a text is not blank and valid UTF-8: JSON can spell half a surrogate pair."""
    return bool(value.strip()) and encodable(value) == value


def encodable(text: str) -> str:
    """Return a text with ? for each character that UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()


def shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
