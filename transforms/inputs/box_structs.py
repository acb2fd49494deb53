"""Make objects of a column that holds all objects of an image, as on the Hugging Face hub.

Such a column is a struct of lists, as `datasets` writes a sequence, or a list of structs:

    {"bbox": [[302, 109, 73, 52], ...], "categories": [0, ...]}

Boxes are COCO's [x, y, width, height] in pixels (the page "Create an image dataset" of `datasets`).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shardwright.format.schema import Feature
from shardwright.storage.options import StorageOptions
from shardwright.transforms.features.lists import is_list
from shardwright.transforms.inputs import boxes
from shardwright.transforms.inputs.box_rows import (
    SIZES,
    BoxColumns,
    ObjectColumn,
    PlacedBoxes,
    corners_of_lists,
    place_boxes,
)
from shardwright.transforms.inputs.source import Rows
from shardwright.transforms.references import extra_name
from shardwright.transforms.rejects import Reject

# Columns of the height and width in pixels that an image's header states.
HEADER_SIZE = ("header_height", "header_width")
_BOXES = ("bbox", "bboxes", "boxes")
_CLASSES = ("category", "categories", "label", "labels", "class", "classes", "category_id")


@dataclass(frozen=True, slots=True)
class BoxStructs:
    """A column of structs with the objects of an image.

    Attributes:
        column: Its name.
        values: The field of the boxes, that of the class if there is one, and all others.
        names: The names of the class numbers; () if they have none.
    """

    column: str
    values: BoxColumns
    names: tuple[str, ...] = ()

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
        if not names:
            return self
        objects = tuple(
            one._replace(kind=pa.string()) if one.feature == boxes.LABEL else one
            for one in self.values.objects
        )
        return BoxStructs(self.column, BoxColumns(self.values.edges, (), objects), names)

    @property
    def features(self) -> tuple[Feature, ...]:
        """The features of objects. Raises `BuildError` if tf.Example cannot hold one."""
        return self.values.features_with(self.names)

    def with_objects(self, batch: pa.RecordBatch, storage: StorageOptions) -> Rows:
        """Yield references with `objects` in place of the column, and rejects.

        Args:
            batch: References with the column; `HEADER_SIZE` if images are in it.
            storage: Options of the images' stores.
        """
        counts, fields, faults = _exploded(batch.column(extra_name(self.column)))
        rows = np.repeat(np.arange(batch.num_rows), counts)
        edges, odd = corners_of_lists(self.values.edges[0], fields[self.values.edges[0]])
        values = {one.feature: self._values(fields, one) for one in self.values.objects}
        for number, fault in odd.items():
            faults.setdefault(int(rows[number]), fault)
        is_small = ((edges[:, 2:] <= 1) & (edges[:, :2] < edges[:, 2:])).all(axis=1)
        for number in np.flatnonzero(is_small & (edges[:, :2] >= 0).all(axis=1)).tolist():
            told = "its boxes must be [x, y, width, height] in pixels, and one is within a pixel"
            faults.setdefault(int(rows[number]), told)
        if boxes.LABEL in values:
            unknown = values[boxes.LABEL].is_null().to_numpy(zero_copy_only=False)
            for number in np.flatnonzero(unknown).tolist():
                faults.setdefault(int(rows[number]), f"an object has no {self.label}")
        stated = _stated_sizes(batch)
        numbers = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        found = PlacedBoxes(rows, edges, values, numbers.tolist())
        bare = batch.drop_columns(
            [name for name in (extra_name(self.column), *HEADER_SIZE) if name in batch.schema.names]
        )
        faults = {row: f"{self.column}: {fault}" for row, fault in faults.items()}
        yield from place_boxes(bare, found, stated, storage, faults)

    def _values(self, fields: dict[str, pa.Array], column: ObjectColumn) -> pa.Array:
        values = fields[column.name]
        if column.feature != boxes.LABEL or not self.names:
            return values.cast(column.kind)
        numbers = values.to_pylist()
        told = [
            self.names[one] if one is not None and 0 <= one < len(self.names) else one
            for one in numbers
        ]
        return pa.array([None if one in (None, -1) else str(one) for one in told], pa.string())


def with_structs(rows: Rows, structs: BoxStructs | None, storage: StorageOptions) -> Rows:
    """Yield rows with the objects of a column of structs, if there is one."""
    for found in rows:
        if isinstance(found, Reject) or structs is None:
            yield found
        else:
            yield from structs.with_objects(found, storage)


def _objects_of(fields: dict[str, pa.DataType], box: str, label: str | None) -> BoxColumns:
    others = [pa.field(name, kind) for name, kind in fields.items() if name not in (box, label)]
    label_field = None if label is None else pa.field(label, fields[label])
    return BoxColumns((box,), ()).with_objects(label_field, others)


def _exploded(column: pa.Array) -> tuple[NDArray[np.int64], dict[str, pa.Array], dict[int, str]]:
    """Return the number of objects of each row, the fields of all objects, and row -> fault."""
    faults: dict[int, str] = {}
    if is_list(column.type):
        flat = column.flatten()
        counts = _lengths(column)
        return counts, {one.name: pc.struct_field(flat, one.name) for one in flat.type}, faults
    lists = {one.name: pc.struct_field(column, one.name) for one in column.type}
    lengths = {name: _lengths(one) for name, one in lists.items()}
    first = next(name for name in _BOXES if name in lists)
    for name, found in lengths.items():
        for row in np.flatnonzero(found != lengths[first]).tolist():
            told = f"{name!r} has {found[row]} values, and {first!r} has {lengths[first][row]}"
            faults.setdefault(row, told)
    if faults:  # their lists are left out
        good = pa.array(~np.isin(np.arange(len(column)), [*faults]))
        lists = {
            name: pc.if_else(good, one, pa.scalar(None, one.type)) for name, one in lists.items()
        }
        return _lengths(lists[first]), {name: one.flatten() for name, one in lists.items()}, faults
    return lengths[first], {name: one.flatten() for name, one in lists.items()}, faults


def _lengths(lists: pa.Array) -> NDArray[np.int64]:
    found: NDArray[np.int64] = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    return found.astype(np.int64)


def _stated_sizes(batch: pa.RecordBatch) -> Sequence[boxes.ImageSize | None]:
    """Return the sizes that columns of height and width state, or those known from headers."""
    names = batch.schema.names
    for columns in (*(tuple(map(extra_name, pair)) for pair in SIZES), HEADER_SIZE):
        if all(name in names for name in columns):
            sides = zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
            return [boxes.stated_size(*each) for each in sides]
    return [None] * batch.num_rows
