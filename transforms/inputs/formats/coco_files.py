"""Read COCO json files (https://cocodataset.org/#format-data).

An item stays JSON until it is needed, and is decoded alone: an invalid one spoils no other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.json import Decoder

from shardwright.errors import BuildError
from shardwright.format.json_files import load_json, typed
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.file_rules import utf8_of

MAX_INT64 = 2**63 - 1
_DIGITS = re.compile(r"-?[0-9]{1,19}")
T = TypeVar("T")

# Tools write 7, 7.0 and "7" for the same id.
Id = (
    Annotated[int, Meta(ge=-MAX_INT64, le=MAX_INT64)]
    | Annotated[float, Meta(gt=-(2.0**63), lt=2.0**63, multiple_of=1)]
    | str
)


class CocoFile(Struct, Generic[T]):
    """A json file. Its items are of type `Raw` (JSON), or parsed if only Python reads the file."""

    images: list[T] = []
    annotations: list[T] = []
    categories: list[T] = []


class Image(Struct):
    """An item of `images`."""

    id: Id
    file_name: str
    height: Any = None
    width: Any = None


class Category(Struct):
    """An item of `categories`."""

    id: Id
    name: str
    keypoints: Any = None


class Outline(Struct):
    """An annotation's image, and the values that decide the features of a dataset."""

    image_id: Id
    id: Any = None
    bbox: Any = UNSET
    caption: Any = UNSET
    keypoints: Any = None


class Annotation(Struct):
    """An annotation of a file whose categories name no keypoints; tools then write anything."""

    category_id: Id | None = None
    bbox: tuple[float, float, float, float] | UnsetType = UNSET
    caption: str | UnsetType = UNSET
    area: float | None = None
    iscrowd: Annotated[float, Meta(ge=0, le=1, multiple_of=1)] | bool = 0
    segmentation: Any = None  # polygons or run lengths


class AnnotationWithKeypoints(Annotation):
    """An annotation with x, y and visibility of each keypoint."""

    keypoints: list[float] | None = None


# Made once: msgspec is not safe if two threads meet a new type (`format.json_files`).
IMAGE, CATEGORY, OUTLINE = Decoder(Image), Decoder(Category), Decoder(Outline)
ANNOTATION, ANNOTATION_WITH_KEYPOINTS = Decoder(Annotation), Decoder(AnnotationWithKeypoints)
_FILE = Decoder(CocoFile[Raw])
_SECTIONS = (b'"images"', b'"annotations"', b'"categories"')


def read_coco(uri: str, storage: StorageOptions) -> CocoFile[Any]:
    """Return the content of a json file, which is held in memory as JSON.

    Raises:
        BuildError: The file is not a JSON object, or its sections are not lists.
        StorageError: The file cannot be read.
    """
    data = utf8_of(files_of(uri, storage).read_bytes(uri))
    try:
        # Of a section that comes twice, msgspec keeps the last without a word.
        if all(data.count(name) < 2 for name in _SECTIONS):
            with suppress(msgspec.MsgspecError, RecursionError):
                return _FILE.decode(data)
        # Python refuses it, reads NaN, and has the better messages. Only the depth is limited here.
        return typed(load_json(data, max_bytes=16 * len(data)), CocoFile[Any])
    except UnicodeDecodeError as error:
        raise _not_utf8(uri, error) from error
    except (ValueError, RecursionError) as error:
        raise BuildError(
            f"{uri} is not COCO json, or is cut short: {error}. Fetch or export it again"
        ) from error


def _not_utf8(place: str, error: UnicodeDecodeError) -> BuildError:
    return BuildError(f"{place} is not UTF-8: save it as UTF-8 ({error.reason})")


def read_item(item: Any, decoder: Decoder[T], place: str) -> T:
    """Return an item of a `CocoFile`.

    Args:
        item: The item.
        decoder: Decides its type.
        place: The file and the item's place in it, for messages.

    Raises:
        ValueError: It is not of the type; the message names the value.
        BuildError: It is not UTF-8.
    """
    try:
        if isinstance(item, Raw):
            try:
                return decoder.decode(item)
            except msgspec.MsgspecError:  # 1e400 and half a surrogate pair are valid in Python
                item = json.loads(bytes(item))
        return typed(item, decoder.type)
    except UnicodeDecodeError as error:
        raise _not_utf8(place, error) from error
    except RecursionError as error:
        raise ValueError(f"{place} is nested too deeply") from error
    except ValueError as error:
        raise ValueError(str(error).replace("$", place, 1)) from error


class CocoContent(NamedTuple):
    """The content of json files that decides their features.

    Attributes:
        names: The class names, ordered by the lowest id of each, as in TFDS.
        has_boxes: True with categories, or with a box in an annotation.
        has_captions: True with a caption in an annotation.
        num_keypoints: The numbers of keypoints that categories name.
        has_keypoints: True with keypoints in an annotation.
        stems: The names of its images without folders and extensions.
    """

    names: tuple[str, ...]
    has_boxes: bool
    has_captions: bool
    num_keypoints: set[int]
    has_keypoints: bool
    stems: set[str]


def look_at_coco(uris: Iterable[str], storage: StorageOptions) -> CocoContent:
    """Return what decides the features of json files.

    Raises:
        BuildError: A file is not JSON, or its categories are invalid.
        StorageError: A file cannot be read.
    """
    has_boxes = has_captions = has_keypoints = False
    stems, num_keypoints = set[str](), set[int]()
    files: list[dict[str, str]] = []
    for uri in uris:
        content = read_coco(uri, storage)
        categories = read_categories(content, uri)
        files.append({key: category.name for key, category in categories.items()})
        has_boxes |= bool(categories)
        for points in (category.keypoints for category in categories.values()):
            if isinstance(points, list) and points:
                num_keypoints.add(len(points))
        for number, item in enumerate(content.annotations):
            with suppress(ValueError):  # rejected when it is listed
                found = read_item(item, OUTLINE, f"{uri}: annotations[{number}]")
                has_boxes |= found.bbox is not UNSET
                has_captions |= found.caption is not UNSET
                has_keypoints |= bool(found.keypoints)
        for number, item in enumerate(content.images):
            with suppress(ValueError):
                image = read_item(item, IMAGE, f"{uri}: images[{number}]")
                stems.add(stem_of(image.file_name))
    names = merge_categories(files)
    return CocoContent(names, has_boxes, has_captions, num_keypoints, has_keypoints, stems)


def stem_of(path: str) -> str:
    """Return a file name without folders and its extension."""
    return path.replace("\\", "/").rpartition("/")[2].rpartition(".")[0]


def read_categories(content: CocoFile[Any], uri: str) -> dict[str, Category]:
    """Return the categories of a file by their ids, in file order.

    Raises:
        BuildError: A category has no id or name, or two have the same.
    """
    found: dict[str, Category] = {}
    for number, item in enumerate(content.categories):
        try:
            category = read_item(item, CATEGORY, f"{uri}: categories[{number}]")
            check_text(category.name, f"{uri}: categories[{number}].name")
        except ValueError as error:
            raise BuildError(f"{error}; a category has an id and a name") from error
        key, category.name = key_of(category.id), category.name.strip()
        if key in found or any(category.name == other.name for other in found.values()):
            raise BuildError(
                f"{uri}: two categories have the id {key} or the name {category.name!r}: "
                "rename one, or merge them"
            )
        found[key] = category
    return found


def merge_categories(files: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the class names of several files, ordered by the lowest id of each, as in TFDS."""
    lowest: dict[str, tuple[bool, int, str]] = {}
    for key, name in (category for categories in files for category in categories.items()):
        number = number_of(key)
        rank = (number is None, number or 0, key)
        lowest[name] = min(rank, lowest.get(name, rank))
    return tuple(sorted(lowest, key=lambda name: (lowest[name], name)))


def key_of(value: float | str) -> str:
    """Return an `Id` in comparable form."""
    return encodable(value) if isinstance(value, str) else str(int(value))


def number_of(key: str) -> int | None:
    """Return an id as an integer of 64 bits, None if it is none."""
    number = int(key) if _DIGITS.fullmatch(key) else None
    return number if number is not None and abs(number) <= MAX_INT64 else None


def check_text(value: str, place: str) -> None:
    """Raise `ValueError` if a text is blank, or not UTF-8: JSON can spell half a surrogate pair."""
    if not value.strip() or encodable(value) != value:
        raise ValueError(f"{place} is {value!r}")


def encodable(text: str) -> str:
    """Return a text with ? for each character that UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()
