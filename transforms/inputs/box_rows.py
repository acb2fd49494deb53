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
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shardwright.errors import BuildError, UsageError
from shardwright.format.schema import Feature
from shardwright.storage.options import StorageOptions
from shardwright.transforms.batch_file import BatchFile, Place
from shardwright.transforms.features.lists import is_list, is_text, plain
from shardwright.transforms.hashing import hash64, spread_rows
from shardwright.transforms.inputs import boxes
from shardwright.transforms.inputs.columns import extra_feature, feature_attributes, folded
from shardwright.transforms.inputs.label_values import class_texts, names_of
from shardwright.transforms.inputs.source import Rows
from shardwright.transforms.references import (
    BATCH_ROWS,
    QUERY,
    REFERENCE_SCHEMA,
    STATED_SIZE,
    STATED_SIZE_TYPE,
    concat,
    extra_columns,
    extra_name,
    keep_rows,
    reference_schema,
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
    _LIST: None,
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
_EDGES = ("x_min", "y_min", "x_max", "y_max")
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
    """The columns of a table with a row for each box.

    Attributes:
        edges: The columns of xmin, ymin, xmax and ymax; of a point, width and height; or one of
            COCO's [x, y, width, height].
        size: The columns of the image's height and width in pixels; () if there are none.
        objects: The class, if there is one, and all other columns without a role.
        part: The value of `_EDGE_NAMES`.
        class_names: The names of classes, if the input states them; () to learn them.
    """

    edges: tuple[str, ...]
    size: tuple[str, ...]
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
            is_number = pa.types.is_integer(label.type) or pa.types.is_floating(label.type)
            kind = pa.int64() if is_number else pa.string()
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
    def columns(self) -> list[tuple[str, pa.DataType]]:
        """Names and types of the extra columns of references."""
        lists = [(one.feature, pa.list_(one.kind)) for one in self.objects]
        return [(boxes.BOX, pa.list_(boxes.BOX_TYPE)), *lists, (STATED_SIZE, STATED_SIZE_TYPE)]

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of these columns. Raises `BuildError` if tf.Example cannot hold one."""
        box, label = boxes.box_features(self.class_names)
        values = (label if one.feature == label.name else _feature(one) for one in self.objects)
        return box, *values

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of an input with these columns that follow from them."""
        return {"schema": reference_schema(self.columns), **feature_attributes(self)}

    def without_boxes(self, images: pa.RecordBatch) -> pa.RecordBatch:
        """Return references with the extra columns of images that have no boxes."""
        kinds = reference_schema(self.columns)
        none = {
            name: pa.array([[]] * images.num_rows, kinds.field(name).type)
            for name in extra_columns(kinds)
        }
        none[STATED_SIZE] = pa.nulls(images.num_rows, STATED_SIZE_TYPE)
        return with_columns(images, none)

    def read(self, batch: pa.RecordBatch, where: str) -> pa.RecordBatch:
        """Return rows of a table with their boxes as numbers, for `list_images`.

        Args:
            batch: References with all columns of the table.
            where: The start of details: the table's file if it has several.
        """
        edges, faults = _read_edges(batch, self.edges)
        missing = np.isnan(edges)
        has_box = ~missing.all(axis=1)
        for row in np.flatnonzero(missing.any(axis=1) & has_box).tolist():
            faults.setdefault(row, f"only some of {', '.join(self.edges)} have a value")
        values = {one.feature: _values(batch, one) for one in self.objects}
        if boxes.LABEL in values:
            unknown = values[boxes.LABEL].is_null().to_numpy(zero_copy_only=False)
            for row in np.flatnonzero(unknown & has_box).tolist():
                faults.setdefault(row, f"{self.objects[0].name} has no class for its box")
        if self.part is not None:
            edges = boxes.corners_of_sides(edges, self.part)[:, [1, 0, 3, 2]]
        details: list[str | None] = [None] * batch.num_rows
        for row, fault in faults.items():
            details[row] = f"{where}row {batch.column('row')[row].as_py()}: {fault}"
        sizes = [_numbers(batch.column(extra_name(name)))[0] for name in self.size]
        bare = batch.drop_columns(extra_columns(batch.schema))
        return with_columns(
            set_column(bare, "label", pa.nulls(batch.num_rows, pa.string())),
            {
                **dict(zip(_EDGES, map(pa.array, edges.T), strict=True)),
                **{
                    name: pa.array(one, from_pandas=True)
                    for name, one in zip(_SIZE, sizes, strict=False)
                },
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
            BuildError: The temporary folder is full, heights and widths are those of boxes, or
                points may be corners or centers.
        """
        file, buckets = BatchFile(), defaultdict[int, list[Place]](list)
        num_buckets = 1 << (num_bytes >> _BUCKET_BITS).bit_length()
        largest, counts = 0.0, np.zeros(2, np.int64)
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
            if self.size:
                sides = edges[:, 3:1:-1] - edges[:, 1::-1]
                is_inside = edges[:, :2].min(axis=1) > 0
                counts += (
                    is_inside.sum(),
                    ((sides == _stacked(found, _SIZE)).all(axis=1) & is_inside).sum(),
                )
        if 2 * counts[1] > counts[0]:
            raise BuildError(
                f"the columns {' and '.join(self.size)} hold heights and widths of boxes, and must "
                "hold those of images: rename them, or leave them out"
            )
        if self.part == 0 and folded(self.edges[0])[-1] == "x" and 0 < largest <= MOST_FRACTION:
            x, y, *_ = map(repr, self.edges)
            raise BuildError(
                f"the boxes are fractions, and {x} and {y} may be their corners or their centers: "
                "rename them to xmin and ymin, or to x_center and y_center"
            )
        for bucket in sorted(buckets):
            whole = concat([file.read(place) for place in buckets.pop(bucket)])
            for images in _by_image(whole):
                yield from _images_in(images, self, locate, storage, largest > MOST_FRACTION)


def _may_hold(kind: pa.DataType, edges: tuple[str, ...]) -> bool:
    """Return whether a column may hold edges of boxes, or lists of them."""
    if is_text(kind) or pa.types.is_null(kind):
        return True
    if is_list(kind) != (edges == _LIST):
        return False
    value = kind.value_type if is_list(kind) else kind
    return pa.types.is_integer(value) or pa.types.is_floating(value)


def _feature(column: ObjectColumn) -> Feature:
    if is_list(column.kind):
        raise BuildError(
            f"column {column.name!r} holds lists, and each row is one object of an image: "
            "drop the column"
        )
    found = extra_feature(column.name, column.kind)
    return replace(found, name=column.feature, shape=(None,), sequence="objects")


def _values(batch: pa.RecordBatch, column: ObjectColumn) -> pa.Array:
    is_class = column.feature == boxes.LABEL
    return plain(batch.column("label" if is_class else extra_name(column.name))).cast(column.kind)


def _read_edges(
    batch: pa.RecordBatch, names: tuple[str, ...]
) -> tuple[NDArray[np.float64], dict[int, str]]:
    """Return the corners of each row's box, NaN where there is none; and row -> fault."""
    columns = [plain(batch.column(extra_name(name))) for name in names]
    faults: dict[int, str] = {}
    if len(names) > 1:
        edges = []
        for name, column in zip(names, columns, strict=True):
            numbers, odd = _numbers(column)
            faults |= {row: f"{name} is {text!r}, not a number" for row, text in odd.items()}
            edges.append(numbers)
        return np.stack(edges, axis=1), faults
    return corners_of_lists(names[0], columns[0])


def corners_of_lists(name: str, column: pa.Array) -> tuple[NDArray[np.float64], dict[int, str]]:
    """Return the corners of boxes that are lists or texts of [x, y, width, height].

    Args:
        name: The column's name, for faults.
        column: The boxes.

    Returns:
        Shape [n, 4]: xmin, ymin, xmax, ymax, NaN without a box; and row -> fault.
    """
    found, faults = np.full((len(column), 4), np.nan), {}
    for row, value in enumerate(column.to_pylist()):
        items = _SEPARATOR.split(value.strip(_BRACKETS)) if isinstance(value, str) else value
        if not items or items == [""]:
            continue
        try:
            x, y, width, height = map(float, items)
        except (TypeError, ValueError):
            faults[row] = f"{name} is {value!r:.100}, not [x, y, width, height]"
        else:
            found[row] = x, y, x + width, y + height
    return found, faults


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


def _images_in(
    rows: pa.RecordBatch,
    columns: BoxColumns,
    locate: Locate,
    storage: StorageOptions,
    in_pixels: bool,
) -> Rows:
    """Yield images with all their rows, which are sorted by image, and rejects."""
    edges = _stacked(rows, _EDGES)
    numbers = rows.column("uri").dictionary_encode().indices.to_numpy()
    first_of = np.searchsorted(numbers, numbers)  # the first row of each row's image
    firsts, faults = np.unique(first_of), _faults_of(rows, first_of, edges, in_pixels)
    there = [name for name in rows.schema.names if name in _REFERENCE_COLUMNS]
    images = rows.select(there).take(pa.array(firsts))
    for place, first in enumerate(firsts.tolist()):
        if first in faults:
            image_id, uri = (images.column(name)[place].as_py() for name in ("id", "uri"))
            yield Reject(image_id, uri, RejectReason.BAD_VALUE, faults[first])
    for found in locate(keep_rows(images, ~np.isin(firsts, [*faults]))):
        if isinstance(found, Reject):
            yield found
        elif found.num_rows:
            places = pc.index_in(rows.column("uri"), value_set=found.column("uri"))
            is_object = places.is_valid().to_numpy(zero_copy_only=False)
            is_object &= ~np.isnan(edges).all(axis=1)
            objects = rows.filter(pa.array(is_object))
            of_image = places.filter(pa.array(is_object)).to_numpy().astype(np.int64)
            stated: list[boxes.ImageSize | None] | None = None
            if in_pixels:
                stated = [None] * found.num_rows
                sizes = _stacked(objects, _SIZE).tolist() if columns.size else ()
                for row, size in zip(of_image.tolist(), sizes, strict=False):
                    stated[row] = boxes.stated_size(*size)
            yield from place_boxes(
                found,
                of_image,
                edges[is_object],
                {one.feature: objects.column(one.feature) for one in columns.objects},
                objects.column("row").to_pylist(),
                stated,
                storage,
            )


def _faults_of(
    rows: pa.RecordBatch, first_of: NDArray[np.int64], edges: NDArray[np.float64], in_pixels: bool
) -> dict[int, str]:
    """Return the first fault of each image that has one, by its first row."""
    faults: dict[int, str] = {}
    details, numbers, firsts = rows.column(_FAULT), rows.column("row"), pa.array(first_of)
    for row in _true_rows(details.is_valid()):
        faults.setdefault(int(first_of[row]), details[row].as_py())
    for name in _SHARED:
        if name not in rows.schema.names:
            continue
        column = rows.column(name)
        of_first = column.take(firsts)
        same = pc.fill_null(pc.equal(column, of_first), False)
        both_empty = pc.and_(column.is_null(), of_first.is_null())
        for row in _true_rows(pc.invert(pc.or_(same, both_empty))):
            values = f"{of_first[row].as_py()!r} and {column[row].as_py()!r}"
            told = f"its rows have several values of {name}, {values}"
            faults.setdefault(int(first_of[row]), told)
    if in_pixels:
        # A box within the first pixel means that some rows are fractions.
        for row in within_a_pixel(edges):
            told = (
                f"row {numbers[row].as_py()}: its box is a fraction of the "
                "image, and those of other rows are in pixels: use one unit"
            )
            faults.setdefault(int(first_of[row]), told)
    return faults


def within_a_pixel(edges: NDArray[np.float64]) -> list[int]:
    """Return the boxes that may be fractions: they have an area, within the first pixel."""
    ends, starts = edges[:, 2:], edges[:, :2]
    is_small = (ends <= 1) & (starts < ends) & (starts >= 0)
    found: list[int] = np.flatnonzero(is_small.all(axis=1)).tolist()
    return found


def _true_rows(mask: pa.BooleanArray) -> list[int]:
    found: list[int] = np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist()
    return found


def of_lists(
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
    lengths = {name: _lengths(one) for name, one in lists.items()}
    faults: dict[int, str] = {}
    for name, found in lengths.items():
        for row in np.flatnonzero(found != lengths[first]).tolist():
            told = f"{name!r} has {found[row]} values, and {first!r} has {lengths[first][row]}"
            faults.setdefault(row, told)
    if faults:
        good = pa.array(~np.isin(np.arange(len(lengths[first])), [*faults]))
        lists = {
            name: pc.if_else(good, one, pa.scalar(None, one.type)) for name, one in lists.items()
        }
    counts = _lengths(lists[first])
    rows = np.repeat(np.arange(len(counts)), counts)
    numbers = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, numbers.tolist(), {name: one.flatten() for name, one in lists.items()}, faults


def _lengths(lists: pa.Array) -> NDArray[np.int64]:
    found: NDArray[np.int64] = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return found.astype(np.int64)


def place_boxes(
    images: pa.RecordBatch,
    rows: NDArray[np.int64],
    edges: NDArray[np.float64],
    values: dict[str, pa.Array],
    numbers: Sequence[int],
    stated: Sequence[boxes.ImageSize | None] | None,
    storage: StorageOptions,
    faults: Mapping[int, str] = MappingProxyType({}),
) -> Rows:
    """Yield images with their objects, and rejects as `boxes.with_objects`.

    Args:
        images: References.
        rows: The row of each box's image, ascending.
        edges: xmin, ymin, xmax and ymax of each box, shape [n, 4].
        values: Feature -> one value for each box.
        numbers: The number of each box in rejects.
        stated: The size of each image, None to read it from the image's header; None if boxes are
            fractions.
        storage: Options of the images' stores.
        faults: Row -> why it is a reject.
    """
    ids, uris = (images.column(name).to_pylist() for name in ("id", "uri"))
    corners, sizes = edges[:, [1, 0, 3, 2]], None
    if stated is not None:
        # An image inside another file has no header at the start of that file.
        inside = images.column("offset").is_valid().to_pylist()
        own = [None if one else uri for one, uri in zip(inside, uris, strict=True)]
        sizes = boxes.sizes_of(stated, rows.tolist(), own, storage)[rows]
        corners = corners / np.tile(sizes, 2)
    names = [f"{ids[row]}#{number}" for row, number in zip(rows.tolist(), numbers, strict=True)]
    objects = boxes.ObjectRows(rows, corners, values, names, sizes)
    no_size = {} if sizes is not None else {STATED_SIZE: pa.nulls(len(ids), STATED_SIZE_TYPE)}
    yield from boxes.with_objects(images, objects, no_size, faults)


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
            fields = {field.name: field.type for field in kind}
            if not is_list(one.type):  # of each list its values
                if not all(map(is_list, fields.values())):
                    continue
                fields = {name: of.value_type for name, of in fields.items()}
            box = next((name for name in _BOXES if name in fields), None)
            if box is not None and is_list(fields[box]):
                label = next((name for name in _CLASSES if name in fields), None)
                return cls(one.name, _objects_of(fields, box, label))
        return None

    @property
    def label(self) -> str | None:
        """The field of the class."""
        found = (one.name for one in self.values.objects if one.feature == boxes.LABEL)
        return next(found, None)

    def with_names(self, names: tuple[str, ...]) -> BoxStructs:
        """Return the column with names for its class numbers; () if they have none."""
        if not names or all(one.kind != pa.int64() for one in self.values.objects[:1]):
            return self
        objects = tuple(
            one._replace(kind=pa.string()) if one.feature == boxes.LABEL else one
            for one in self.values.objects
        )
        values = replace(self.values, objects=objects, class_names=names)
        return BoxStructs(self.column, values)

    def in_rows(self, rows: Rows, storage: StorageOptions) -> Rows:
        """Yield rows with these objects."""
        for found in rows:
            if isinstance(found, Reject):
                yield found
            else:
                yield from self.with_objects(found, storage)

    def with_objects(self, batch: pa.RecordBatch, storage: StorageOptions) -> Rows:
        """Yield references with `objects` in place of the column, and rejects.

        Args:
            batch: References with the column; `HEADER_SIZE` if images are in it.
            storage: Options of the images' stores.
        """
        column, box = batch.column(extra_name(self.column)), self.values.edges[0]
        if is_list(column.type):  # of structs
            items = column.flatten()
            kinds = {one.name: pc.struct_field(items, one.name) for one in items.type}
            offsets = np.concatenate(
                ([0], np.cumsum(pc.fill_null(pc.list_value_length(column), 0)))
            ).astype(np.int32)
            lists = {
                name: pa.ListArray.from_arrays(pa.array(offsets), one)
                for name, one in kinds.items()
            }
        else:
            lists = {one.name: pc.struct_field(column, one.name) for one in column.type}
        rows, numbers, fields, faults = of_lists(lists, box)
        edges, odd = corners_of_lists(box, fields[box])
        values = {one.feature: self._values(fields, one) for one in self.values.objects}
        told = "its boxes must be [x, y, width, height] in pixels, and one is within a pixel"
        odd |= {number: odd.get(number, told) for number in within_a_pixel(edges)}
        if boxes.LABEL in values:
            unknown = values[boxes.LABEL].is_null().to_numpy(zero_copy_only=False)
            for number in np.flatnonzero(unknown).tolist():
                odd.setdefault(number, f"an object has no {self.label}")
        for number, fault in odd.items():
            faults.setdefault(int(rows[number]), fault)
        bare = batch.drop_columns(
            [name for name in (extra_name(self.column), *HEADER_SIZE) if name in batch.schema.names]
        )
        faults = {row: f"{self.column}: {fault}" for row, fault in faults.items()}
        stated = _stated_sizes(batch)
        yield from place_boxes(bare, rows, edges, values, numbers, stated, storage, faults)

    def _values(self, fields: dict[str, pa.Array], column: ObjectColumn) -> pa.Array:
        """Return the values of a field; a class is null if it is none."""
        values = fields[column.name]
        if column.feature != boxes.LABEL:
            return values.cast(column.kind)
        texts, bad = class_texts(values, column.name)
        if names := self.values.class_names:
            texts = names_of(values, names)
        return pc.if_else(pa.array(bad), pa.scalar(None, pa.string()), texts).cast(column.kind)


def _objects_of(fields: dict[str, pa.DataType], box: str, label: str | None) -> BoxColumns:
    others = [pa.field(name, kind) for name, kind in fields.items() if name not in (box, label)]
    label_field = None if label is None else pa.field(label, fields[label])
    return BoxColumns((box,), ()).with_objects(label_field, others)


def _stated_sizes(batch: pa.RecordBatch) -> Sequence[boxes.ImageSize | None]:
    """Return the sizes that columns of height and width state, or those known from headers."""
    names = batch.schema.names
    for columns in (*(tuple(map(extra_name, pair)) for pair in SIZES), HEADER_SIZE):
        if all(name in names for name in columns):
            sides = zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
            return [boxes.stated_size(*each) for each in sides]
    return [None] * batch.num_rows
