"""Read COCO annotations from json files into columns (https://cocodataset.org/#format-data)."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shardwright.errors import BuildError
from shardwright.storage.options import StorageOptions
from transforms.inputs.annotations.boxes import ImageSize, stated_size
from transforms.inputs.annotations.coco_files import (
    MAX_INT64,
    category_names,
    encodable,
    is_text,
    key_of,
    shorten,
)
from transforms.inputs.annotations.json_sections import read_sections
from transforms.inputs.annotations.text_file import TextFile
from transforms.rejects import Reject, RejectReason

_encode = json.JSONEncoder(separators=(",", ":")).encode


class CocoImage(NamedTuple):
    """An item of `images`: its id from `key_of`, its file name as written, its size if stated."""

    key: str
    file_name: str
    size: ImageSize | None


_TEXT_COLUMNS = {"image": "q", "order": "q", "start": "q", "length": "q"}
_OBJECT_COLUMNS = {
    **_TEXT_COLUMNS, "category": "q", "x": "d", "y": "d", "width": "d", "height": "d", "area": "d",
    "crowd": "b",
}  # fmt: skip


def _columns(types: Mapping[str, str]) -> dict[str, array[Any]]:
    return {name: array(code) for name, code in types.items()}


@dataclass(slots=True)
class CocoTable:
    """The content of json files that annotate the same images.

    Attributes:
        images: In file order.
        objects: Annotations with a box: `image` (a number of `numbers`), `order` (the annotation's
            id, else its position), `category` (a number), `x`, `y`, `width`, `height` and `area`
            in pixels, `crowd` (0 or 1), `start` and `length` of the segmentation (JSON) in
            `texts`.
        captions: `image`, `order`, and `start` and `length` of the caption in `texts`.
        texts: Segmentations and captions, most of a file's bytes.
        numbers: Key -> number, for every image id in the files.
        faults: Image number -> the problem of one of its annotations.
        rejects: Problems of other items.
        categories: Id -> name.
    """

    images: list[CocoImage] = field(default_factory=list)
    objects: dict[str, array[Any]] = field(default_factory=lambda: _columns(_OBJECT_COLUMNS))
    captions: dict[str, array[Any]] = field(default_factory=lambda: _columns(_TEXT_COLUMNS))
    texts: TextFile = field(default_factory=TextFile)
    numbers: dict[str, int] = field(default_factory=dict)
    faults: dict[int, tuple[RejectReason, str]] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    categories: dict[str, str] = field(default_factory=dict)


def _append(columns: Mapping[str, array[Any]], *values: float) -> None:
    for column, value in zip(columns.values(), values, strict=True):
        column.append(value)


class CocoReader:
    """A reader that adds json files, one after another, to one `CocoTable`."""

    def __init__(self, storage: StorageOptions) -> None:
        self.table = CocoTable()
        self._storage = storage
        self._of_key: dict[str, CocoImage] = {}
        self._category_numbers: dict[str, int] = {}

    def read(self, uri: str) -> None:
        """Read a file; problems of single items go into the table.

        Raises:
            BuildError: The file is not JSON, or has no images.
            StorageError: The file cannot be read.
        """
        categories: list[Any] = []
        seen: set[str] = set()
        place = 0
        for section, item in read_sections(uri, self._storage):
            if section == "images":
                self._add_image(item, uri, seen)
            elif section == "annotations":
                self._add_annotation(item, uri, place)
                place += 1
            elif section == "categories":
                categories.append(item)
        if not seen:
            raise BuildError(
                f"{uri} lists no `images`: it is empty or not COCO json; "
                "other tables must be .jsonl, .csv or .parquet"
            )
        self.table.categories |= dict(category_names(categories, uri))

    @property
    def category_keys(self) -> list[str]:
        """The category ids of annotations, by the table's category number."""
        return list(self._category_numbers)

    def _add_image(self, item: Any, uri: str, seen: set[str]) -> None:
        record = item if isinstance(item, dict) else {}
        key, name = key_of(record.get("id")), record.get("file_name")
        if key is None or not isinstance(name, str) or not is_text(name):
            detail = f"an item of images is {shorten(item)}; an image has an id and a file_name"
            self.table.rejects.append(Reject("", uri, RejectReason.BAD_VALUE, detail))
            return
        image = CocoImage(key, name, stated_size(record.get("height"), record.get("width")))
        known = self._of_key.setdefault(key, image)
        if known is image:
            self.table.images.append(image)
            self.table.numbers.setdefault(key, len(self.table.numbers))
        elif key in seen or known.file_name != name:
            detail = f"two images have the id {key}: {known.file_name} is kept"
            self.table.rejects.append(Reject(name, uri, RejectReason.DUPLICATE_ID, detail))
        seen.add(key)

    def _add_annotation(self, item: Any, uri: str, place: int) -> None:
        record: Mapping[str, Any] = item if isinstance(item, dict) else {}
        key = key_of(record.get("image_id"))
        if key is None:
            detail = (
                f"annotations[{place}] is {shorten(item)}; "
                "an annotation has the image_id of one of the images"
            )
            self.table.rejects.append(Reject("", uri, RejectReason.BAD_VALUE, detail))
            return
        image = self.table.numbers.setdefault(key, len(self.table.numbers))
        order = record.get("id")
        order = order if isinstance(order, int) and abs(order) <= MAX_INT64 else place
        try:
            if "caption" in record:
                self._add_caption(image, order, record["caption"])
            if "bbox" in record or "caption" not in record:
                self._add_object(image, order, record)
        except _BadValue as fault:
            self.table.faults.setdefault(
                image,
                (fault.reason, f"annotation {shorten(record.get('id', place))} of {uri}: {fault}"),
            )

    def _add_caption(self, image: int, order: int, caption: object) -> None:
        if not isinstance(caption, str):
            raise _BadValue(f"its caption is {shorten(caption)}, which is not text")
        _append(self.table.captions, image, order, *self.table.texts.add(encodable(caption)))

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
        text = self.table.texts.add(_compact(record.get("segmentation")))
        values = (image, order, *text, number, x, y, width, height, area, int(crowd))
        _append(self.table.objects, *values)


class RowsOfImages:
    """Annotations by their image's row, in the order of their ids, as in TFDS."""

    def __init__(self, columns: Mapping[str, array[Any]], row_of: NDArray[np.int64]) -> None:
        # Arrow uses the memory of the arrays.
        self._table = pa.RecordBatch.from_pydict(
            {name: pa.array(np.asarray(column)) for name, column in columns.items()}
        )
        rows = row_of[self._table.column("image").to_numpy()]
        self._order = np.lexsort((self._table.column("order").to_numpy(), rows))
        self._rows = rows[self._order]

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def column(self, name: str) -> pa.Array:
        return self._table.column(name)

    def of(self, wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], pa.RecordBatch]:
        """Return the annotations of ascending rows: positions in `wanted`, and columns."""
        first, last = (
            np.searchsorted(self._rows, wanted),
            np.searchsorted(self._rows, wanted, side="right"),
        )
        counts = last - first
        places = np.repeat(np.arange(len(wanted)), counts)
        # The ranges first[i]..last[i], one after another, without a Python loop.
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return places, self._table.take(pa.array(self._order[np.repeat(first, counts) + within]))


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
