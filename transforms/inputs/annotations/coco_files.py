"""Detect the features and classes of COCO json files (https://cocodataset.org/#format-data)."""

from __future__ import annotations

import codecs
import json
import math
import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shardwright.errors import BuildError
from shardwright.storage.folder import files_of
from shardwright.storage.options import StorageOptions
from shardwright.transforms.batch_file import BatchFile, Place
from shardwright.transforms.inputs.annotations.boxes import ImageSize, stated_size
from shardwright.transforms.references import set_column
from shardwright.transforms.rejects import Reject, RejectReason

_READ_BYTES = 4 << 20
_BLANK = re.compile(r"[ \t\n\r]*")
_ENDS = frozenset(" \t\n\r,:]}")
_decode = json.JSONDecoder().raw_decode
_SMALL_BYTES = 32 << 20  # files up to this length are read whole for detection
_LOOK_BYTES = 4 << 20
_DIGITS = re.compile(r"-?[0-9]{1,19}")
_CATEGORIES = re.compile(r'"categories"\s*:\s*(?=\[)')
_SOME_POINTS = re.compile(r'"keypoints"\s*:\s*\[\s*[-0-9]')
MAX_INT64 = 2**63 - 1
_encode = json.JSONEncoder(separators=(",", ":")).encode
_OBJECT_COLUMNS = (
    ("category", pa.int64()),
    *((name, pa.float64()) for name in ("x", "y", "width", "height", "area")),
    ("crowd", pa.int64()),
    ("keypoints", pa.list_(pa.float64())),
)
_CHUNK_BYTES = 32 << 20
_ROW_BYTES = 400  # of a row's Python objects, text apart
TEXT, IMAGE, ORDER = "text", "image", "order"


def read_sections(uri: str, storage: StorageOptions) -> Iterator[tuple[str, Any]]:
    """Yield (key, item) for the items of an object's arrays, (key, value) for other values.

    Raises:
        BuildError: The file is not a JSON object; the message has the position of the error.
        StorageError: The file cannot be read.
    """
    with files_of(uri, storage).open_input(uri) as file:
        text = _Text(file, uri)
        text.expect("{", "an object, which begins with {")
        if text.skip("}"):
            text.expect_end()
            return
        seen: set[str] = set()
        while True:
            key = text.value()
            # Python would keep the last of two equal keys, and lose the items of the first.
            if not isinstance(key, str) or key in seen:
                text.fail(f"{key!r} is not a key, or occurs twice")
            seen.add(key)
            text.expect(":", "a colon")
            yield from ((key, item) for item in text.items())
            if not text.skip(","):
                break
        text.expect("}", "a comma or }")
        text.expect_end()


class _Text:
    """A file's text from the current position on; text before it is discarded."""

    def __init__(self, file: Any, uri: str) -> None:
        self._file, self._uri = file, uri
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text, self._at, self._forgotten, self._ended = "", 0, 0, False

    def items(self) -> Iterator[Any]:
        """Yield the items of the array that begins here, or the single value."""
        if not self.skip("["):
            yield self.value()
            return
        if self.skip("]"):
            return
        while True:
            yield self.value()
            if not self.skip(","):
                break
        self.expect("]", "a comma or ]")

    def value(self) -> Any:
        """Return the value that begins here."""
        wanted = _READ_BYTES
        while True:
            self._peek()
            try:
                value, end = _decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended:
                    self._at = error.pos
                    self.fail(error.msg)
            except (RecursionError, ValueError) as error:  # nested too deeply; too many digits
                self.fail(str(error))
            else:
                # Without an end character the value may continue: 12 of 123, or of 12.5e3.
                if self._ended or self._text[end : end + 1] in _ENDS:
                    self._at = end
                    return value
            self._read_more(wanted)
            wanted *= 2  # every try parses from the value's start: doubling bounds the total work

    def skip(self, char: str) -> bool:
        """Skip `char` if it comes next, and return whether it did."""
        found = self._peek() == char
        self._at += found
        return found

    def expect(self, char: str, what: str) -> None:
        if not self.skip(char):
            self.fail(f"expected {what}")

    def expect_end(self) -> None:
        if self._peek():
            self.fail("unexpected text after the object")

    def fail(self, why: str) -> NoReturn:
        place = self._forgotten + self._at
        raise BuildError(
            f"{self._uri} is not a JSON object, or is cut short: {why} at character {place:,}. "
            "Fetch or export it again"
        )

    def _peek(self) -> str:
        """Return the next character that is not white space; "" at the end."""
        while True:
            match = _BLANK.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._read_more(_READ_BYTES)

    def _read_more(self, num_bytes: int) -> None:
        data = self._file.read(num_bytes)
        self._ended = not data
        try:
            more = self._decoder.decode(data, final=self._ended)
        except UnicodeDecodeError as error:
            raise BuildError(
                f"{self._uri} is not UTF-8 ({error.reason}), as JSON must be: save it as UTF-8"
            ) from error
        # What was parsed is let go: memory is bounded by the largest single value.
        self._forgotten += self._at
        self._text, self._at = self._text[self._at :] + more, 0


class AnnotationRows:
    """Annotations in the order they are added, in a temporary file.

    Args:
        more: Names and types of columns after `TEXT`, `IMAGE` (the image's number) and `ORDER` (in
            an image; equal ones stay as they were added).
    """

    def __init__(self, *more: tuple[str, pa.DataType]) -> None:
        self.num_bytes = self._count = 0
        self._columns = pa.schema(
            [(TEXT, pa.large_string()), (IMAGE, pa.int64()), (ORDER, pa.int64()), *more]
        )
        self._file = BatchFile()
        self._places: list[Place] = []
        self._held: list[tuple[object, ...]] = []
        self._held_bytes = 0

    def __len__(self) -> int:
        return self._count

    def add(self, text: str, image: int, order: int, *more: object) -> None:
        """Add a row; raise BuildError if the disk is full."""
        self._count += 1
        self._held.append((text, image, order, *more))
        self._held_bytes += _ROW_BYTES + len(text)
        if self._held_bytes >= _CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the latest rows; to be called after the last."""
        if self._held:
            columns = zip(*self._held, strict=True)
            arrays = [
                pa.array(values, field.type)
                for values, field in zip(columns, self._columns, strict=True)
            ]
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._columns)
            self._places.append(self._file.add(batch))
            self.num_bytes += batch.nbytes
            self._held, self._held_bytes = [], 0

    def by_image(self, row_of: NDArray[np.int64], range_rows: int) -> RowsOfImages:
        """Distribute the annotations to ranges of `range_rows` rows; can be called once.

        Args:
            row_of: The row of each image number; annotations of a negative one are left out.
            range_rows: Number of rows in a range.
        """
        pieces: dict[int, list[Place]] = defaultdict(list)
        file = BatchFile()
        for place in self._places:
            batch = self._file.read(place)
            rows = row_of[batch.column(IMAGE).to_numpy()]
            ranges = np.where(rows < 0, -1, rows // range_rows)
            order = np.argsort(ranges, kind="stable")
            batch = set_column(batch, IMAGE, pa.array(rows)).take(pa.array(order))
            found, starts = np.unique(ranges[order], return_index=True)
            ends = [*starts[1:], len(order)]
            for number, start, end in zip(found.tolist(), starts, ends, strict=True):
                if number >= 0:
                    pieces[number].append(file.add(batch.slice(start, end - start)))
        # The unordered rows are needed no more, and may fill the disk.
        self._places, self._file = [], BatchFile()
        return RowsOfImages(self._columns, file, pieces, range_rows)


class RowsOfImages:
    """Annotations by their image's row, in the order of their ids, as in TFDS."""

    def __init__(
        self, columns: pa.Schema, file: BatchFile, pieces: dict[int, list[Place]], range_rows: int
    ) -> None:
        self._columns, self._file, self._pieces = columns, file, pieces
        self._range_rows, self._range = range_rows, -1
        self._sorted = pa.RecordBatch.from_pylist([], columns)
        self._rows = np.zeros(0, np.int64)

    def of(self, wanted: NDArray[np.int64]) -> tuple[NDArray[np.int64], pa.RecordBatch]:
        """Return the annotations of ascending rows of a range: positions in `wanted`, columns."""
        if len(wanted):
            self._load(int(wanted[0]) // self._range_rows)
        first, last = (
            np.searchsorted(self._rows, wanted),
            np.searchsorted(self._rows, wanted, side="right"),
        )
        counts = last - first
        places = np.repeat(np.arange(len(wanted)), counts)
        # The ranges first[i]..last[i], one after another, without a Python loop.
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return places, self._sorted.take(pa.array(np.repeat(first, counts) + within))

    def _load(self, number: int) -> None:
        if number == self._range:
            return
        self._range = number
        self._sorted = pa.RecordBatch.from_pylist([], self._columns)  # before the next is read
        if places := self._pieces.get(number):
            batch = pa.concat_batches([self._file.read(place) for place in places])
            keys = batch.column(ORDER).to_numpy(), batch.column(IMAGE).to_numpy()
            self._sorted = batch.take(pa.array(np.lexsort(keys)))
        self._rows = self._sorted.column(IMAGE).to_numpy()


class CocoContent(NamedTuple):
    """The content of a json file that decides its features.

    Attributes:
        categories: (id, name) of each.
        has_boxes: True with categories, or with a box in an annotation.
        has_captions: True with a caption in an annotation.
        num_keypoints: The numbers of keypoints that categories name.
        has_keypoints: True with keypoints in an annotation that is read here.
    """

    categories: tuple[tuple[str, str], ...]
    has_boxes: bool
    has_captions: bool
    num_keypoints: frozenset[int] = frozenset()
    has_keypoints: bool = False


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
            keys |= {key for key in item if key != "keypoints" or item[key]}
    names = category_names(categories, uri)
    return CocoContent(
        names,
        bool(names) or "bbox" in keys,
        "caption" in keys,
        _num_keypoints(categories),
        "keypoints" in keys,
    )


def _num_keypoints(categories: Iterable[Any]) -> frozenset[int]:
    found = (item.get("keypoints") for item in categories if isinstance(item, dict))
    return frozenset(len(points) for points in found if isinstance(points, list) and points)


def _content_of_part(text: str, uri: str) -> CocoContent | None:
    """Return a file's content as its start or end shows it; None if it does not."""
    # The last one: a caption or a file name may hold the word, too.
    *_, match = (None, *_CATEGORIES.finditer(text))
    has_boxes, has_captions = '"bbox"' in text, '"caption"' in text
    if match is None:
        return CocoContent((), False, True) if has_captions and not has_boxes else None
    try:
        categories, _ = json.JSONDecoder().raw_decode(text, match.end())
        names = category_names(categories, uri)
        return CocoContent(
            names,
            True,
            has_captions,
            _num_keypoints(categories),
            _SOME_POINTS.search(text) is not None,
        )
    # The part may cut the list, or hold the words by chance: then the whole file is read.
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


class CocoImage(NamedTuple):
    """An item of `images`: its id from `key_of`, its file name as written, its size if stated."""

    key: str
    file_name: str
    size: ImageSize | None


class CocoImages:
    """Images in the order they were added. As Python objects they would take 500 bytes each."""

    def __init__(self) -> None:
        self._keys, self._names = _Texts(), _Texts()
        self._heights, self._widths = array("d"), array("d")

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, row: int) -> CocoImage:
        height, width = self._heights[row], self._widths[row]
        size = ImageSize(height, width) if height else None
        return CocoImage(self._keys[row], self._names[row], size)

    def add(self, image: CocoImage) -> None:
        self._keys.add(image.key)
        self._names.add(image.file_name)
        height, width = image.size or (0.0, 0.0)
        self._heights.append(height)
        self._widths.append(width)


class _Texts:
    """Texts, one after another as UTF-8."""

    def __init__(self) -> None:
        self._data, self._ends = bytearray(), array("q", [0])

    def __getitem__(self, number: int) -> str:
        return self._data[self._ends[number] : self._ends[number + 1]].decode()

    def add(self, text: str) -> None:
        self._data += text.encode()
        self._ends.append(len(self._data))


class CocoReader:
    """A reader of json files that annotate the same images.

    Attributes:
        images: In file order.
        objects: Annotations with a box: the segmentation (JSON), the image (a number of `numbers`),
            the order (the annotation's id, else its position), `category` (a number), `x`, `y`,
            `width`, `height` and `area` in pixels, `crowd` (0 or 1), `keypoints` (x and y in
            pixels and visibility of each, padded with zeros to the highest number of them).
        captions: The caption, the image and the order.
        faults: Problems of annotations in file order: the detail, the image, and `reason`.
        numbers: Key -> number, for every image id in the files.
        row_of: Image number -> row in `images`; -1 for ids that only annotations have.
        categories: Id -> name.
        category_numbers: Category id of an annotation -> its number.
    """

    def __init__(self, storage: StorageOptions, num_keypoints: frozenset[int]) -> None:
        self.images = CocoImages()
        self.objects = AnnotationRows(*_OBJECT_COLUMNS)
        self.captions = AnnotationRows()
        self.faults = AnnotationRows(("reason", pa.string()))
        self.numbers: dict[str, int] = {}
        self.row_of = array("q")
        self.categories: dict[str, str] = {}
        self.category_numbers: dict[str, int] = {}
        self._storage = storage
        self._num_keypoints = num_keypoints
        self._num_files = 0
        self._listed_in = array("q")  # image number -> the latest file whose `images` have it

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
        self.categories |= dict(category_names(categories, uri))

    def _number_of(self, key: str) -> int:
        number = self.numbers.setdefault(key, len(self.numbers))
        if number == len(self.row_of):
            self.row_of.append(-1)
            self._listed_in.append(0)
        return number

    def _add_image(self, item: Any, uri: str) -> Iterator[Reject]:
        record = item if isinstance(item, dict) else {}
        key, name = key_of(record.get("id")), record.get("file_name")
        if key is None or not isinstance(name, str) or not is_text(name):
            detail = f"an item of images is {shorten(item)}; an image has an id and a file_name"
            yield Reject("", uri, RejectReason.BAD_VALUE, detail)
            return
        number, images = self._number_of(key), self.images
        row = self.row_of[number]
        if row < 0:
            self.row_of[number] = len(images)
            size = stated_size(record.get("height"), record.get("width"))
            images.add(CocoImage(key, name, size))
        else:
            known = images[row].file_name
            # The same image in two files of a set, such as boxes and captions, is no duplicate.
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
            self.faults.add(encodable(detail), image, 0, str(fault.reason))

    def _add_caption(self, image: int, order: int, caption: object) -> None:
        if not isinstance(caption, str):
            raise _BadValue(f"its caption is {shorten(caption)}, which is not text")
        self.captions.add(encodable(caption), image, order)

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
        number = self.category_numbers.setdefault(category, len(self.category_numbers))
        area = width * height if area is None else _number(area, "area")
        shape = record.get("segmentation")
        text = "" if shape is None else _encode(shape)  # polygons or run lengths
        values = (number, x, y, width, height, area, int(crowd))
        points = self._keypoints_of(record.get("keypoints"))
        self.objects.add(text, image, order, *values, points)

    def _keypoints_of(self, given: object) -> list[float]:
        known = self._num_keypoints
        if not known:
            return []
        points = [] if given is None else given
        if not isinstance(points, list) or len(points) not in {0, *(3 * count for count in known)}:
            counts = " or ".join(map(str, sorted(known)))
            raise _BadValue(
                f"its keypoints are {shorten(points)}; they must be x, y and visibility of each "
                f"of the {counts} that its category names"
            )
        found = [_number(value, "keypoints") for value in points]
        return found + [0.0] * (3 * max(known) - len(found))


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
