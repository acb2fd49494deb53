"""Make objects of tables with boxes: with a row for each, or a column of all objects of an image.

The rows of an image may be anywhere in a table. They meet in buckets by a hash of its path, in a
temporary file, so memory holds one bucket: 16 to 32 MB of the table's text, and its objects.

A column of objects, as on the Hugging Face hub, is a struct of lists, as `datasets` writes a
sequence, or a list of structs:

    {"bbox": [[302, 109, 73, 52], ...], "categories": [0, ...]}

Boxes are COCO's [x, y, width, height] in pixels (the page "Create an image dataset" of `datasets`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shardwright.errors import BuildError, UsageError
from shardwright.format.schema import Feature
from shardwright.storage.options import StorageOptions
from shardwright.transforms.batch_file import BatchFile, Place
from shardwright.transforms.features.lists import (
    as_lists,
    is_list,
    is_number,
    is_text,
    list_lengths,
    null_rows,
    null_where,
    plain,
)
from shardwright.transforms.hashing import hash64, spread_rows
from shardwright.transforms.inputs import boxes
from shardwright.transforms.inputs.boxes import ObjectRows
from shardwright.transforms.inputs.columns import (
    class_texts,
    extra_feature,
    feature_attributes,
    folded,
    names_of,
    quoted,
)
from shardwright.transforms.inputs.source import Rows
from shardwright.transforms.references import (
    BATCH_ROWS,
    QUERY,
    REFERENCE_SCHEMA,
    concat,
    extra_columns,
    extra_name,
    keep_rows,
    name_of_extra,
    set_column,
    with_columns,
)
from shardwright.transforms.rejects import Reject, RejectReason

_LIST = ("bbox",)  # COCO's [x, y, width, height]
_SIDES = (("w", "h"), ("width", "height"))  # beside w and h, width and height are the image's
# Names of the columns of a box in lower case, without what `_PREFIX` and `_GAPS` match -> what part
# of its sides its first point is from its corner; None if the last two are the other corner.
_EDGE_NAMES: dict[tuple[str, ...], float | None] = {
    ("xmin", "ymin", "xmax", "ymax"): None,
    ("x1", "y1", "x2", "y2"): None,
    ("x0", "y0", "x1", "y1"): None,
    ("left", "top", "right", "bottom"): None,
    _LIST: 0.0,
    **{
        (*start, *sides): part
        for sides in _SIDES
        for part, starts in (
            (0.0, (("xmin", "ymin"), ("x1", "y1"), ("left", "top"), ("x", "y"))),
            (0.5, (("xcenter", "ycenter"), ("xc", "yc"), ("cx", "cy"))),
        )
        for start in starts
    },
}
_PREFIX, _GAPS = re.compile(r"^(bbox|box|bounding_?box)(?=[\s_.-])"), re.compile(r"[\s_.-]+")
SIZES = (("height", "width"), ("image_height", "image_width"), ("img_height", "img_width"))
# Fractions may be larger than 1, as boxes reach out of images. No image of 2 pixels has boxes.
MOST_FRACTION = 2.0
_BUCKET_BITS = 24  # 16 MB of a table
_FAULT = "fault"
_SEPARATOR = re.compile(r"\s*[,;\s]\s*")
_BRACKETS = " \t[]()"
_REFERENCE_COLUMNS = frozenset({*REFERENCE_SCHEMA.names, QUERY})
_EDGES = ("y_min", "x_min", "y_max", "x_max")
_SIZE = ("height", "width")
_SHARED = ("id", "split", "group", *_SIZE)  # equal in all rows of an image
# Columns of the height and width in pixels that an image's header states.
HEADER_SIZE = ("header_height", "header_width")
_BOXES = ("bbox", "bboxes", "boxes")
_CLASSES = ("category", "categories", "label", "labels", "class", "classes", "category_id")

Locate = Callable[[pa.RecordBatch], Rows]


class ObjectColumn(NamedTuple):
    """A column with a value for each object: its name in the table, its feature, and its type."""

    name: str
    feature: str
    kind: pa.DataType


@dataclass(frozen=True, slots=True)
class BoxColumns:
    """The columns of boxes and of other values of objects.

    Attributes:
        edges: The columns of xmin, ymin, xmax and ymax; of a point, width and height; or one of
            COCO's [x, y, width, height].
        size: The columns of the image's height and width in pixels; () if there are none.
        objects: The class, if there is one, and all other columns without a role.
        part: The value of `_EDGE_NAMES`.
        class_names: The names of classes, if the input states them; () to learn them.
    """

    edges: tuple[str, ...]
    size: tuple[str, ...] = ()
    objects: tuple[ObjectColumn, ...] = ()
    part: float | None = None
    class_names: tuple[str, ...] = ()

    @classmethod
    def find(cls, columns: pa.Schema) -> BoxColumns | None:
        """Return the columns of boxes by their names, in any case; None if there are none."""
        there = {folded(one.name): one for one in reversed(columns)}
        bare: dict[str, pa.Field] = {}
        # Beside `bbox_width`, `width` is the image's.
        for name in sorted(there, key=lambda name: _PREFIX.match(name) is None):
            bare.setdefault(_GAPS.sub("", _PREFIX.sub("", name)), there[name])
        for edges, part in _EDGE_NAMES.items():
            found = [bare[name] for name in edges if name in bare]
            is_outline = "x3" in bare and edges[0] in ("x0", "x1")  # more than two points
            if len(found) < len(edges) or is_outline:
                continue
            if all(_may_hold(one.type, edges) for one in found):
                names = tuple(one.name for one in found)
                left = {name: one.name for name, one in there.items() if one.name not in names}
                sizes = (pair for pair in SIZES if left.keys() >= {*pair})
                return cls(names, tuple(left[name] for name in next(sizes, ())), part=part)
        return None

    def with_objects(self, label: pa.Field | None, others: Iterable[pa.Field]) -> BoxColumns:
        """Return these columns with those of the class and of other values.

        Raises:
            UsageError: A value would have the name of the boxes or of the classes.
        """
        objects = []
        if label is not None:
            kind = pa.int64() if is_number(label.type) else pa.string()
            objects.append(ObjectColumn(label.name, boxes.LABEL, kind))
        for one in others:
            if one.name in (*self.edges, *self.size):
                continue
            feature = f"objects/{one.name}"
            if feature in (boxes.BOX, boxes.LABEL):
                raise UsageError(
                    f"column {one.name!r} would be the feature {feature!r}, which the columns of "
                    "boxes and classes fill: rename it, or leave it out"
                )
            kind = one.type.value_type if pa.types.is_dictionary(one.type) else one.type
            objects.append(ObjectColumn(one.name, feature, kind))
        return replace(self, objects=tuple(objects))

    @property
    def label(self) -> str | None:
        """The column of the class."""
        return next((one.name for one in self.objects if one.feature == boxes.LABEL), None)

    def schema(self, others: Iterable[tuple[str, pa.DataType]] = ()) -> pa.Schema:
        """Return the columns of references with these objects, after `others`."""
        return boxes.objects_schema(self.types, others)

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The types of values of objects."""
        return {one.feature: one.kind for one in self.objects}

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of these columns. Raises `BuildError` if tf.Example cannot hold one."""
        own = boxes.value_features(boxes.value_types(boxes.LABEL), self.class_names)
        of_label = {one.name: one for one in own}
        values = (of_label.get(one.feature) or _feature(one) for one in self.objects)
        return own[0], *values

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of an input with these columns that follow from them."""
        return {"schema": self.schema(), **feature_attributes(self)}

    def without_boxes(self, images: pa.RecordBatch, storage: StorageOptions) -> Rows:
        """Yield references with the extra columns of images that have no boxes."""
        return boxes.with_objects(images, ObjectRows.of((), self.types), None, storage)

    def objects_in(
        self, fields: Mapping[str, pa.Array]
    ) -> tuple[NDArray[np.float64], dict[str, pa.Array], dict[int, str]]:
        """Return the corners and other values of objects, and object -> fault.

        Args:
            fields: The values of these columns, one for each object; a class is null if it is none.

        Returns:
            Corners of shape [n, 4]: ymin, xmin, ymax, xmax, NaN without a box.
        """
        edges, faults = np.full((len(fields[self.edges[0]]), 4), np.nan), dict[int, str]()
        if len(self.edges) == 1:
            faults = _read_lists(self.edges[0], fields[self.edges[0]], edges)
        else:
            for place, name in enumerate(self.edges):
                edges[:, place], odd = _numbers(fields[name])
                faults |= {row: f"{name} is {text!r}, not a number" for row, text in odd.items()}
        missing = np.isnan(edges)
        has_box = ~missing.all(axis=1)
        for row in np.flatnonzero(missing.any(axis=1) & has_box).tolist():
            faults.setdefault(row, f"only some of {', '.join(self.edges)} have a value")
        values = {one.feature: plain(fields[one.name]).cast(one.kind) for one in self.objects}
        if self.label is not None:
            for row in np.flatnonzero(null_rows(values[boxes.LABEL]) & has_box).tolist():
                faults.setdefault(row, f"{self.label} has no class in UTF-8 for its box")
        if self.part is not None:
            return boxes.corners_of_sides(edges, self.part), values, faults
        return edges[:, [1, 0, 3, 2]], values, faults

    def check_sizes(self, rows: pa.RecordBatch, sizes: Sequence[boxes.ImageSize | None]) -> None:
        """Raise `UsageError` if the first boxes of a table have the sizes of their images.

        Args:
            rows: Rows of the table.
            sizes: The sizes of their images if no column states them.
        """
        own = replace(self, objects=())
        corners, _, _ = own.objects_in({name: rows.column(name) for name in self.edges})
        if self.size:
            found = np.stack([_numbers(rows.column(name))[0] for name in self.size], axis=1)
        else:
            found = np.array([size or boxes.UNKNOWN_SIZE for size in sizes], float).reshape(-1, 2)
        starts = corners[:, :2]
        if (corners[:, 2:] - starts == found).all() and starts.any():
            raise UsageError(
                f"the columns {' and '.join(self.size)} hold heights and widths of boxes, and must "
                "hold those of images: rename them, or leave them out"
                if self.size
                else f"columns {quoted(self.edges[2:])} hold the sizes of images, so "
                f"{quoted(self.edges[:2])} are no points of boxes: rename these, or give a "
                "--schema that takes them as features"
            )

    def in_lists(
        self,
        images: pa.RecordBatch,
        lists: Mapping[str, pa.Array],
        stated: Sequence[boxes.ImageSize | None] | None,
        storage: StorageOptions,
        classes_of: Callable[[pa.Array], pa.Array],
        where: str = "",
    ) -> Rows:
        """Yield references with objects that are in lists, and rejects.

        Args:
            images: References.
            lists: These columns, with a list for each image.
            stated, storage: As for `boxes.with_objects`.
            classes_of: Returns classes, null for what is none, given the values of their column.
            where: The start of details.
        """
        rows, numbers, fields, faults = _flat(lists, self.edges[0])
        if self.label is not None:
            fields[self.label] = classes_of(fields[self.label])
        corners, values, odd = self.objects_in(fields)
        if stated is None:
            told = "fractions of the image, 0 to 1"
            size = np.abs(corners, where=np.isfinite(corners), out=np.zeros_like(corners))
            misfits = np.flatnonzero((size > MOST_FRACTION).any(axis=1)).tolist()
        else:
            told, misfits = "[x, y, width, height] in pixels", _within_a_pixel(corners)
        for number in misfits:
            shown = ", ".join(f"{edge:g}" for edge in corners[number])
            odd.setdefault(number, f"its boxes must be {told}, and one is from {shown}")
        for number, fault in sorted(odd.items()):
            faults.setdefault(int(rows[number]), fault)
        faults = {row: f"{where}{fault}" for row, fault in faults.items()}
        found = ObjectRows(rows, corners, values, numbers)
        yield from boxes.with_objects(images, found, stated, storage, faults)

    def read(self, batch: pa.RecordBatch, where: str) -> pa.RecordBatch:
        """Return rows of a table with their boxes as numbers, for `list_images`.

        Args:
            batch: References with all columns of the table.
            where: The start of details: the table's file if it has several.
        """
        fields = {name_of_extra(name): batch.column(name) for name in extra_columns(batch.schema)}
        if self.label is not None:
            fields[self.label] = batch.column("label")
        corners, values, faults = self.objects_in(fields)
        details: list[str | None] = [None] * batch.num_rows
        for row, fault in faults.items():
            details[row] = f"{where}row {batch.column('row')[row].as_py()}: {fault}"
        sizes = [_numbers(fields[name])[0] for name in self.size]
        numbers = zip((*_EDGES, *_SIZE), (*corners.T, *sizes), strict=False)
        bare = batch.drop_columns(extra_columns(batch.schema))
        return with_columns(
            set_column(bare, "label", pa.nulls(batch.num_rows, pa.string())),
            {
                **{name: pa.array(one, from_pandas=True) for name, one in numbers},
                _FAULT: pa.array(details, pa.string()),
                **values,
            },
        )

    def list_images(
        self, rows: Rows, num_bytes: int, locate: Locate, storage: StorageOptions
    ) -> Rows:
        """Yield the images of a table with their objects in the order of its rows, and rejects.

        Args:
            rows: Batches of `read`, and rejects.
            num_bytes: The bytes of its rows, which decide the number of buckets.
            locate: Looks up images: yields references with their length, and rejects.
            storage: Options of the images' stores.

        Raises:
            BuildError: The temporary folder is full, or points may be corners or centers.
        """
        file, buckets = BatchFile(), defaultdict[int, list[Place]](list)
        num_buckets = 1 << (num_bytes >> _BUCKET_BITS).bit_length()
        largest = 0.0
        for found in rows:
            if isinstance(found, Reject):
                yield found
                continue
            paths = found.column("uri").dictionary_encode()
            # Of a sorted table, a path is hashed once.
            hashes = hash64(paths.dictionary, "shardwright/boxes")[paths.indices.to_numpy()]
            for bucket, piece in spread_rows(found, hashes, num_buckets):
                buckets[bucket].append(file.add(piece))
            edges = _stacked(found, _EDGES)
            largest = max(largest, np.abs(edges[np.isfinite(edges)]).max(initial=0.0))
        x, y, *_ = (*self.edges, "")
        if self.part == 0 and y and folded(x)[-1] == "x" and 0 < largest <= MOST_FRACTION:
            raise BuildError(
                f"the boxes are fractions, and {x!r} and {y!r} may be their corners or their "
                "centers: rename them to xmin and ymin, or to x_center and y_center"
            )
        for bucket in sorted(buckets):
            whole = concat([file.read(place) for place in buckets.pop(bucket)])
            for images in _by_image(whole):
                yield from self._images_in(images, locate, storage, largest > MOST_FRACTION)

    def _images_in(
        self, rows: pa.RecordBatch, locate: Locate, storage: StorageOptions, in_pixels: bool
    ) -> Rows:
        """Yield images with all their rows, which are sorted by image, and rejects."""
        corners = _stacked(rows, _EDGES)
        numbers = rows.column("uri").dictionary_encode().indices.to_numpy()
        first_of = np.searchsorted(numbers, numbers)  # the first row of each row's image
        firsts, faults = np.unique(first_of), _faults_of(rows, first_of, corners, in_pixels)
        every = rows.take(pa.array(firsts))
        images = every.select([one for one in rows.schema.names if one in _REFERENCE_COLUMNS])
        for place in np.flatnonzero(np.isin(firsts, [*faults])).tolist():
            image_id, uri = (images.column(name)[place].as_py() for name in ("id", "uri"))
            yield Reject(image_id, uri, RejectReason.BAD_VALUE, faults[int(firsts[place])])
        sides = (every.column(name).to_pylist() for name in (_SIZE if self.size else ()))
        size_of = dict(
            zip(images.column("uri").to_pylist(), zip(*sides, strict=True), strict=False)
        )
        for found in locate(keep_rows(images, ~np.isin(firsts, [*faults]))):
            if isinstance(found, Reject):
                yield found
            elif found.num_rows:
                places = pc.index_in(rows.column("uri"), value_set=found.column("uri"))
                is_object = ~(null_rows(places) | np.isnan(corners).all(axis=1))
                objects = rows.filter(pa.array(is_object))
                of_image = places.filter(pa.array(is_object)).to_numpy().astype(np.int64)
                uris = found.column("uri").to_pylist() if in_pixels else ()
                stated = [boxes.stated_size(*size_of.get(uri, (None, None))) for uri in uris]
                values = {name: objects.column(name) for name in self.types}
                order = objects.column("row").to_pylist()
                its = ObjectRows(of_image, corners[is_object], values, order)
                yield from boxes.with_objects(found, its, stated if in_pixels else None, storage)


def _may_hold(kind: pa.DataType, edges: tuple[str, ...]) -> bool:
    """Return whether a column may hold edges of boxes, or lists of them."""
    if is_text(kind) or pa.types.is_null(kind):
        return True
    if is_list(kind) != (edges == _LIST):
        return False
    return is_number(kind.value_type if is_list(kind) else kind)


def _feature(column: ObjectColumn) -> Feature:
    if is_list(column.kind):
        raise BuildError(
            f"column {column.name!r} holds lists, and each row is one object of an image: "
            "drop the column"
        )
    found = extra_feature(column.name, column.kind)
    return replace(found, name=column.feature, shape=(None,), sequence="objects")


def _read_lists(name: str, column: pa.Array, edges: NDArray[np.float64]) -> dict[int, str]:
    """Fill in [x, y, width, height] of lists or texts of them; return row -> fault."""
    faults = {}
    for row, value in enumerate(plain(column).to_pylist()):
        items = _SEPARATOR.split(value.strip(_BRACKETS)) if isinstance(value, str) else value
        if items and items != [""]:
            try:
                x, y, width, height = map(float, items)
            except (TypeError, ValueError):
                faults[row] = f"{name} is {value!r:.100}, not [x, y, width, height]"
            else:
                edges[row] = x, y, width, height
    return faults


def _numbers(column: pa.Array) -> tuple[NDArray[np.float64], dict[int, str]]:
    """Return numbers, NaN where there is none, and the texts that are none by their rows."""
    column = plain(column)
    if not is_text(column.type):
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False), {}
    numbers, odd = np.full(len(column), np.nan), {}
    for row, text in enumerate(column.to_pylist()):
        if text is not None and text.strip():
            try:
                numbers[row] = float(text)
            except ValueError:
                odd[row] = text[:40]
    return numbers, odd


def _by_image(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield rows sorted by image, and in their order of an image, of `BATCH_ROWS` images a time."""
    images = rows.column("uri").dictionary_encode().indices.to_numpy()
    order = np.argsort(images, kind="stable")
    ends = np.arange(BATCH_ROWS, images.max() + 1 + BATCH_ROWS, BATCH_ROWS)
    start = 0
    for stop in np.searchsorted(images[order], ends).tolist():
        yield rows.take(pa.array(order[start:stop]))
        start = stop


def _stacked(rows: pa.RecordBatch, names: tuple[str, ...]) -> NDArray[np.float64]:
    """Return columns of numbers, shape [rows, names]."""
    return np.stack([rows.column(name).to_numpy(zero_copy_only=False) for name in names], axis=1)


def _faults_of(
    rows: pa.RecordBatch, first_of: NDArray[np.int64], corners: NDArray[np.float64], in_pixels: bool
) -> dict[int, str]:
    """Return the first fault of each image that has one, by its first row."""
    found = [(row, told) for row, told in enumerate(rows.column(_FAULT).to_pylist()) if told]
    for name in _SHARED:
        if name in rows.schema.names:
            column = rows.column(name)
            of_first = column.take(pa.array(first_of))
            same = pc.fill_null(pc.equal(column, of_first), False)
            same = pc.or_(same, pc.and_(column.is_null(), of_first.is_null()))
            for row in np.flatnonzero(~same.to_numpy(zero_copy_only=False)).tolist():
                values = f"{of_first[row].as_py()!r} and {column[row].as_py()!r}"
                found.append((row, f"its rows have several values of {name}, {values}"))
    # A box within the first pixel means that some rows are fractions.
    for row in _within_a_pixel(corners) if in_pixels else ():
        told = "its box is a fraction of the image, and those of other rows are in pixels"
        found.append((row, f"row {rows.column('row')[row].as_py()}: {told}: use one unit"))
    return {int(first_of[row]): told for row, told in reversed(found)}


def _within_a_pixel(corners: NDArray[np.float64]) -> list[int]:
    """Return the boxes that may be fractions: they have an area, within the first pixel."""
    ends, starts = corners[:, 2:], corners[:, :2]
    is_small = (ends <= 1) & (starts < ends) & (starts >= 0)
    found: list[int] = np.flatnonzero(is_small.all(axis=1)).tolist()
    return found


def _flat(
    lists: Mapping[str, pa.Array], first: str
) -> tuple[NDArray[np.int64], list[int], dict[str, pa.Array], dict[int, str]]:
    """Return the values of lists that have one for each box of a row.

    Args:
        lists: Columns of lists.
        first: The one whose lengths are the numbers of boxes.

    Returns:
        The row of each box; its number in its row; the values of each column; and row -> fault. A
        row with a fault has no values.
    """
    lengths = {name: list_lengths(one) for name, one in lists.items()}
    counts, faults = lengths[first], dict[int, str]()
    for name, found in lengths.items():
        for row in np.flatnonzero(found != counts).tolist():
            told = f"{name!r} has {found[row]} values, and {first!r} has {counts[row]}"
            faults.setdefault(row, told)
    good = ~np.isin(np.arange(len(counts)), [*faults])
    counts = np.where(good, counts, 0)
    rows = np.repeat(np.arange(len(counts)), counts)
    numbers = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    if faults:
        lists = {name: null_where(one, ~good) for name, one in lists.items()}
    return rows, numbers.tolist(), {name: one.flatten() for name, one in lists.items()}, faults


@dataclass(frozen=True, slots=True)
class BoxStructs:
    """A column of structs with the objects of an image.

    Attributes:
        column: Its name.
        values: The field of the boxes, that of the class if there is one, and all others.
    """

    column: str
    values: BoxColumns

    @classmethod
    def find(cls, columns: pa.Schema, declared: Container[str]) -> BoxStructs | None:
        """Return the first column of structs with boxes; None if there is none.

        Args:
            columns: The columns.
            declared: Columns that a schema takes as they are.
        """
        for one in columns:
            kind = one.type.value_type if is_list(one.type) else one.type
            if not pa.types.is_struct(kind) or one.name in declared:
                continue
            fields = [*kind]
            if not is_list(one.type):  # of each list its values
                lists = (each for each in fields if is_list(each.type))
                fields = [each.with_type(each.type.value_type) for each in lists]
            there = {each.name: each for each in fields}
            box = next((there[name] for name in _BOXES if name in there), None)
            if len(fields) == kind.num_fields and box is not None and is_list(box.type):
                label = next((there[name] for name in _CLASSES if name in there), None)
                others = [each for each in fields if each not in (box, label)]
                found = BoxColumns((box.name,), part=0.0).with_objects(label, others)
                return cls(one.name, found)
        return None

    def with_names(self, names: tuple[str, ...]) -> BoxStructs:
        """Return the column with names for its class numbers; () if they have none."""
        if not names or self.values.types[boxes.LABEL] != pa.int64():
            return self
        label, *others = self.values.objects
        objects = (label._replace(kind=pa.string()), *others)
        return replace(self, values=replace(self.values, objects=objects, class_names=names))

    def in_rows(self, rows: Rows, storage: StorageOptions) -> Rows:
        """Yield rows with `objects` in place of the column, and rejects.

        Args:
            rows: References with the column; with `HEADER_SIZE` if images are in it.
            storage: Options of the images' stores.
        """
        for found in rows:
            if isinstance(found, Reject):
                yield found
                continue
            column, name = found.column(extra_name(self.column)), extra_name(self.column)
            if is_list(column.type):  # of structs
                lengths, items = list_lengths(column), column.flatten()
                lists = {
                    each.name: as_lists(pc.struct_field(items, each.name), lengths)
                    for each in items.type
                }
            else:
                lists = {each.name: pc.struct_field(column, each.name) for each in column.type}
            names = {name, *HEADER_SIZE}.intersection(found.schema.names)
            yield from self.values.in_lists(
                found.drop_columns([*names]),
                lists,
                _stated_sizes(found),
                storage,
                self._classes,
                f"{self.column}: ",
            )

    def _classes(self, values: pa.Array) -> pa.Array:
        texts, bad = class_texts(values, self.values.label or "")
        if names := self.values.class_names:
            texts = names_of(values, names)
        return null_where(texts, bad)


def _stated_sizes(batch: pa.RecordBatch) -> Sequence[boxes.ImageSize | None]:
    """Return the sizes that columns of height and width state, or those known from headers."""
    names = batch.schema.names
    for columns in (*(tuple(map(extra_name, pair)) for pair in SIZES), HEADER_SIZE):
        if all(name in names for name in columns):
            sides = zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
            return [boxes.stated_size(*each) for each in sides]
    return [None] * batch.num_rows
