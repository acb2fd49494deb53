"""Read COCO annotations from json files into columns (https://cocodataset.org/#format-data)."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from shardwright.errors import BuildError
from shardwright.storage.options import StorageOptions
from shardwright.transforms.inputs.annotations.annotation_rows import AnnotationRows
from shardwright.transforms.inputs.annotations.boxes import stated_size
from shardwright.transforms.inputs.annotations.coco_files import (
    MAX_INT64,
    category_names,
    encodable,
    is_text,
    key_of,
    shorten,
)
from shardwright.transforms.inputs.annotations.coco_images import CocoImage, CocoImages
from shardwright.transforms.inputs.annotations.json_sections import read_sections
from shardwright.transforms.rejects import Reject, RejectReason

_encode = json.JSONEncoder(separators=(",", ":")).encode


_OBJECT_COLUMNS = (
    ("category", pa.int64()),
    *((name, pa.float64()) for name in ("x", "y", "width", "height", "area")),
    ("crowd", pa.int64()),
)


@dataclass(slots=True)
class CocoTable:
    """The content of json files that annotate the same images.

    Attributes:
        images: In file order.
        objects: Annotations with a box: the segmentation (JSON), the image (a number of `numbers`),
            the order (the annotation's id, else its position), `category` (a number), `x`, `y`,
            `width`, `height` and `area` in pixels, `crowd` (0 or 1).
        captions: The caption, the image and the order.
        faults: Problems of annotations in file order: the detail, the image, and `reason`.
        numbers: Key -> number, for every image id in the files.
        row_of: Image number -> row in `images`; -1 for ids that only annotations have.
        categories: Id -> name.
    """

    images: CocoImages = field(default_factory=CocoImages)
    objects: AnnotationRows = field(default_factory=lambda: AnnotationRows(*_OBJECT_COLUMNS))
    captions: AnnotationRows = field(default_factory=AnnotationRows)
    faults: AnnotationRows = field(default_factory=lambda: AnnotationRows(("reason", pa.string())))
    numbers: dict[str, int] = field(default_factory=dict)
    row_of: array[int] = field(default_factory=lambda: array("q"))
    categories: dict[str, str] = field(default_factory=dict)


class CocoReader:
    """A reader that adds json files, one after another, to one `CocoTable`."""

    def __init__(self, storage: StorageOptions) -> None:
        self.table = CocoTable()
        self._storage = storage
        self._num_files = 0
        self._listed_in = array("q")  # image number -> the latest file whose `images` have it
        self._category_numbers: dict[str, int] = {}

    def read(self, uri: str) -> Iterator[Reject]:
        """Read a file, and yield rejects of items that belong to no image.

        Raises:
            BuildError: The file is not JSON, or has no images; or the temporary folder is full.
            StorageError: The file cannot be read.
        """
        self._num_files += 1
        categories: list[Any] = []
        place = 0
        for section, item in read_sections(uri, self._storage):
            if section == "images":
                yield from self._add_image(item, uri)
            elif section == "annotations":
                yield from self._add_annotation(item, uri, place)
                place += 1
            elif section == "categories":
                categories.append(item)
        if self._num_files not in self._listed_in:
            raise BuildError(
                f"{uri} lists no `images`: it is empty or not COCO json; "
                "other tables must be .jsonl, .csv or .parquet"
            )
        self.table.categories |= dict(category_names(categories, uri))

    @property
    def category_keys(self) -> list[str]:
        """The category ids of annotations, by the table's category number."""
        return list(self._category_numbers)

    def _number_of(self, key: str) -> int:
        number = self.table.numbers.setdefault(key, len(self.table.numbers))
        if number == len(self.table.row_of):
            self.table.row_of.append(-1)
            self._listed_in.append(0)
        return number

    def _add_image(self, item: Any, uri: str) -> Iterator[Reject]:
        record = item if isinstance(item, dict) else {}
        key, name = key_of(record.get("id")), record.get("file_name")
        if key is None or not isinstance(name, str) or not is_text(name):
            detail = f"an item of images is {shorten(item)}; an image has an id and a file_name"
            yield Reject("", uri, RejectReason.BAD_VALUE, detail)
            return
        number, images = self._number_of(key), self.table.images
        row = self.table.row_of[number]
        if row < 0:
            self.table.row_of[number] = len(images)
            size = stated_size(record.get("height"), record.get("width"))
            images.add(CocoImage(key, name, size))
        else:
            known = images[row].file_name
            if self._listed_in[number] == self._num_files or known != name:
                detail = f"two images have the id {key}: {known} is kept"
                yield Reject(name, uri, RejectReason.DUPLICATE_ID, detail)
        self._listed_in[number] = self._num_files

    def _add_annotation(self, item: Any, uri: str, place: int) -> Iterator[Reject]:
        record: Mapping[str, Any] = item if isinstance(item, dict) else {}
        key = key_of(record.get("image_id"))
        if key is None:
            detail = (
                f"annotations[{place}] is {shorten(item)}; "
                "an annotation has the image_id of one of the images"
            )
            yield Reject("", uri, RejectReason.BAD_VALUE, detail)
            return
        image = self._number_of(key)
        order = record.get("id")
        order = int(order) if isinstance(order, int) and abs(order) <= MAX_INT64 else place
        try:
            if "caption" in record:
                self._add_caption(image, order, record["caption"])
            if "bbox" in record or "caption" not in record:
                self._add_object(image, order, record)
        except _BadValue as fault:
            detail = f"annotation {shorten(record.get('id', place))} of {uri}: {fault}"
            self.table.faults.add(encodable(detail), image, 0, str(fault.reason))

    def _add_caption(self, image: int, order: int, caption: object) -> None:
        if not isinstance(caption, str):
            raise _BadValue(f"its caption is {shorten(caption)}, which is not text")
        self.table.captions.add(encodable(caption), image, order)

    def _add_object(self, image: int, order: int, record: Mapping[str, Any]) -> None:
        category = key_of(record.get("category_id"))
        if category is None:
            raise _BadValue(
                f"its category_id is {shorten(record.get('category_id'))}; "
                "it must be the id of one of the categories"
            )
        box = record.get("bbox")
        if not isinstance(box, list) or len(box) != 4:
            raise _BadValue(
                f"its bbox is {shorten(box)}; it must be [x, y, width, height] in pixels"
            )
        x, y, width, height = (_number(value, "bbox") for value in box)
        area = record.get("area")
        crowd = record.get("iscrowd", 0)
        if crowd not in (0, 1):
            raise _BadValue(f"its iscrowd is {shorten(crowd)}; it must be 0 or 1")
        number = self._category_numbers.setdefault(category, len(self._category_numbers))
        area = width * height if area is None else _number(area, "area")
        text = _compact(record.get("segmentation"))
        values = (number, x, y, width, height, area, int(crowd))
        self.table.objects.add(text, image, order, *values)


class _BadValue(Exception):  # noqa: N818 - a fault of the file, not of the program
    """A problem with an annotation, which rejects its image."""

    reason = RejectReason.BAD_VALUE


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _BadValue(f"its {name} has {shorten(value)} in it, which is not a number")
    try:
        return float(value)
    except OverflowError:
        return math.inf  # a box with such an edge is listed as EMPTY_BOX


def _compact(segmentation: object) -> str:
    """Return polygons or run lengths as JSON without white space; "" for None."""
    return "" if segmentation is None else _encode(segmentation)
