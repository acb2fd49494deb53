r"""Make objects of the records of TensorFlow's Object Detection API.

The features are those of `object_detection/dataset_tools/create_coco_tf_record.py`: a list for each
edge of boxes, as fractions, and lists of the same length for classes and other values. Class names
are in the records, or in a label map beside them (`string_int_label_map.proto` as text).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from google.protobuf.text_encoding import CUnescape

from shardwright.errors import UsageError
from shardwright.storage.folder import Folder
from shardwright.storage.options import StorageOptions
from shardwright.transforms.features.lists import empty_as_null, to_texts
from shardwright.transforms.inputs import boxes
from shardwright.transforms.inputs.box_rows import BoxColumns, ObjectColumn
from shardwright.transforms.inputs.columns import Columns
from shardwright.transforms.inputs.foreign_text import decode_text
from shardwright.transforms.inputs.formats.stated_features import RecordStatistics
from shardwright.transforms.inputs.label_values import distinct_names
from shardwright.transforms.inputs.source import Rows
from shardwright.transforms.references import extra_name

_OBJECT = "image/object/"
_EDGES = tuple(f"{_OBJECT}bbox/{edge}" for edge in ("xmin", "ymin", "xmax", "ymax"))
_TEXT, _NUMBER = f"{_OBJECT}class/text", f"{_OBJECT}class/label"
_CLASSES = (_TEXT, _NUMBER)
_STRING = r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'"
_ITEM = re.compile(rf"\bitem\s*:?\s*\{{((?:[^{{}}\"']|{_STRING}|\{{[^{{}}]*\}})*)\}}")
_FIELD = re.compile(rf"\b(id|name|display_name)\s*:\s*(-?\d+|{_STRING})")
_NESTED = re.compile(r"\{[^{}]*\}")
_MAX_MAP_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class DetectionKeys:
    """The features of records with boxes.

    Attributes:
        columns: The boxes' edges, the class, and other features with a value for each box.
        stored: Each of these features -> its type in the columns of records.
        left_out: Features that say the same as the class.
        names: Class number -> its name, from a label map; {} to take the class as it is stored.
    """

    columns: BoxColumns
    stored: Mapping[str, pa.DataType]
    left_out: tuple[str, ...]
    names: Mapping[int, str]

    @classmethod
    def find(
        cls, seen: RecordStatistics, folder: Folder, declared: Collection[str]
    ) -> DetectionKeys | None:
        """Return the features of boxes; None if there are none, or a schema fills features of them.

        Args:
            seen: Statistics of the first records.
            folder: The folder that may hold a label map.
            declared: The features that a schema takes.

        Raises:
            UsageError: There are several label maps, or one that cannot be read.
        """
        keys = {*_EDGES}
        if not keys <= seen.features.keys() or keys & {*declared}:
            return None
        if any(seen.stored(key) != pa.float32() for key in _EDGES):
            return None
        lengths = seen.features[_EDGES[0]].lengths

        def has_one_a_box(key: str) -> bool:
            found = seen.features[key].lengths
            # Of classes, a record with more or fewer is a fault of its own.
            return found == lengths or (
                key in _CLASSES and 2 * (found & lengths).total() > seen.num_records
            )

        lists = [
            key
            for key in seen.features
            if key.startswith(_OBJECT) and key not in keys and has_one_a_box(key)
        ]
        names = read_label_map(folder) if _NUMBER in lists else {}
        classes = [key for key in ((_NUMBER,) if names else _CLASSES) if key in lists][:1]
        is_number = classes == [_NUMBER] and not names
        label = [
            ObjectColumn(key, boxes.LABEL, pa.int64() if is_number else pa.string())
            for key in classes
        ]
        others = [key for key in lists if key not in _CLASSES]
        values = [
            ObjectColumn(key, f"objects/{key.removeprefix(_OBJECT)}", seen.stored(key))
            for key in others
        ]
        stored = {key: pa.list_(seen.stored(key)) for key in (*_EDGES, *classes, *others)}
        left_out = tuple(key for key in _CLASSES if key in lists and key not in classes)
        class_names = tuple(names[number] for number in sorted(names))
        columns = BoxColumns(_EDGES, objects=(*label, *values), class_names=class_names)
        return cls(columns, stored, left_out, names)

    def attributes(self, others: Columns) -> dict[str, Any]:
        """Return the source's attributes that follow; `others` are the records' other features."""
        found, label = self.columns.attributes(), self.columns.label or ""
        kinds = [(one.name, one.type) for one in others.columns if one.name in others.extras]
        return found | {
            "schema": self.columns.schema(kinds),
            "features": (*others.features, *found["features"]),
            "labels_from": "the label map" if self.names else f"feature {label!r}",
        }

    def with_objects(self, batch: pa.RecordBatch, storage: StorageOptions) -> Rows:
        """Yield references with `objects` in place of the features of boxes, and rejects."""
        lists = {key: batch.column(extra_name(key)) for key in self.stored}
        bare = batch.drop_columns([extra_name(key) for key in self.stored])
        return self.columns.in_lists(bare, lists, None, storage, self._classes)

    def _classes(self, values: pa.Array) -> pa.Array:
        if self.names:
            found = [self.names.get(number, str(number)) for number in values.to_pylist()]
            return pa.array(found, pa.string())
        if pa.types.is_integer(values.type):
            return values
        return empty_as_null(to_texts(values)[0])


def read_label_map(folder: Folder) -> dict[int, str]:
    """Return class number -> name of the label map (.pbtxt) in a folder, {} if there is none.

    Raises:
        UsageError: There are several, or it is neither UTF-8 nor UTF-16.
    """
    found = {}
    for name in folder.names():
        if not name.endswith(".pbtxt"):
            continue
        try:
            text = decode_text(folder.read_bytes(name, max_bytes=_MAX_MAP_BYTES))
        except UnicodeError as error:
            raise UsageError(f"{folder.path(name)} is {error}") from error
        if items := dict(_items(text)):
            found[name] = items
    if len(found) > 1:
        raise UsageError(f"{folder} holds several label maps, {', '.join(sorted(found))}: keep one")
    return distinct_names(next(iter(found.values()), {}))


def _items(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the name of each item of a label map; names to show come first."""
    for item in _ITEM.findall(re.sub(r"(?m)^\s*#.*$", "", text)):
        fields = dict(_FIELD.findall(_NESTED.sub("", item)))
        name = fields.get("display_name") or fields.get("name")
        if name and "id" in fields:
            yield int(fields["id"]), CUnescape(name[1:-1]).decode()
