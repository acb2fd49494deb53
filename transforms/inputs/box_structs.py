"""Make objects of a column that holds all objects of an image, as on the Hugging Face hub.

Such a column is a struct of lists, as `datasets` writes a sequence, or a list of structs:

    {"bbox": [[302, 109, 73, 52], ...], "categories": [0, ...]}

Boxes are COCO's [x, y, width, height] in pixels (the page "Create an image dataset" of `datasets`).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.storage.options import StorageOptions
from shardwright.transforms.features.lists import is_list
from shardwright.transforms.inputs import boxes
from shardwright.transforms.inputs.box_rows import (
    SIZES,
    BoxColumns,
    ObjectColumn,
    corners_of_lists,
    of_lists,
    place_boxes,
    within_a_pixel,
)
from shardwright.transforms.inputs.label_values import class_texts, names_of
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


def _stated_sizes(batch: pa.RecordBatch) -> Sequence[boxes.ImageSize | None]:
    """Return the sizes that columns of height and width state, or those known from headers."""
    names = batch.schema.names
    for columns in (*(tuple(map(extra_name, pair)) for pair in SIZES), HEADER_SIZE):
        if all(name in names for name in columns):
            sides = zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
            return [boxes.stated_size(*each) for each in sides]
    return [None] * batch.num_rows
