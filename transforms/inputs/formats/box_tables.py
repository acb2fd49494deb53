"""Tables with objects of images: with a row for each box, or in a column of structs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.transforms.inputs.box_rows import BoxColumns, BoxStructs
from shardwright.transforms.inputs.boxes import read_size
from shardwright.transforms.inputs.columns import ROLE_COLUMNS, role_text
from shardwright.transforms.inputs.file_rules import has_image_name
from shardwright.transforms.inputs.formats.table_files import read_first_rows
from shardwright.transforms.inputs.formats.tables import TableLayout, TableSource
from shardwright.transforms.inputs.image_paths import PROBES, holding_folder
from shardwright.transforms.inputs.source import SourceRequest

_SUFFIXES = ("", ".jpg", ".jpeg", ".png")


def _of_boxes(table: TableLayout, boxes: BoxColumns) -> TableLayout:
    """Return a table of boxes; images are where the first of them are, with their extension."""
    kinds = {one.name: one for one in table.columns}
    boxes = boxes.with_objects(
        kinds[table.label] if table.label else None, [kinds[name] for name in table.extras]
    )
    table = replace(table, boxes=boxes, may_lack_images=False)
    first = table.files[0] if table.files else ""
    batch = read_first_rows(table.path_of(first), table.format, table.columns, table.storage)
    if batch is None:
        return table
    paths = role_text(batch, table.image)
    names = pc.unique(pc.fill_null(paths, ""))[:PROBES]
    rows = batch.take(pc.index_in(names, paths))
    if boxes.size:
        boxes.check_sizes(rows, ())
    suffixes = ("",) if all(map(has_image_name, names.to_pylist())) else _SUFFIXES
    own = table.folder_of(first)
    for suffix in suffixes:
        named = pc.binary_join_element_wise(names, suffix, "")
        folder, uris = holding_folder(named, (own, f"{own}/images"), table.storage)
        if folder:
            if boxes.part is not None and not boxes.size:
                boxes.check_sizes(rows, [read_size(uri, table.storage) for uri in uris])
            root = table.image_root if folder == own else folder
            return replace(table, image_root=root, suffix=suffix)
    return table


class Objects:
    """Finds them by the names of columns."""

    # Open Images has ids without an extension in place of paths, and codes in place of class names.
    roles: ClassVar[Mapping[str, Sequence[str]]] = {
        **ROLE_COLUMNS,
        "id": ("image_id", "imageid", "id"),
        "label": (*ROLE_COLUMNS["label"], "labelname", "label_name"),
    }

    @staticmethod
    def in_rows(request: SourceRequest, columns: pa.Schema) -> BoxColumns | None:
        """Return columns of boxes, unless the schema has no image or fills features from them."""
        found = None if request.image is None else BoxColumns.find(columns)
        return None if found is None or request.kinds.keys() & {*found.edges} else found

    in_cells = staticmethod(BoxStructs.find)
    placed = staticmethod(_of_boxes)


class BoxTableSource(TableSource):
    """A table, with a row for each image or box."""

    finder = Objects()
