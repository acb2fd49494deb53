"""Check a shard's sidecar: its metadata against the manifest, its rows against the records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shardwright.errors import StorageError
from shardwright.format.contents import FileContent
from shardwright.format.index import ShardSummary, parse_index, read_sidecar, read_summary
from shardwright.format.naming import ShardName
from shardwright.format.records import FRAME_BYTES, HEADER_BYTES, RecordSpan
from shardwright.format.schema import ExampleSchema, Source
from shardwright.format.splits import ShardInfo
from shardwright.inspect.example_check import Values, one_value
from shardwright.inspect.faults import DatasetFault, content_fault
from shardwright.sizes import counted
from shardwright.storage.folder import Folder

_BLOCK_ROWS = 1024
_COMPARED = (
    "id",
    "offset",
    "length",
    "image_offset",
    "image_length",
    "crc32c",
    "label",
    "format",
    "width",
    "height",
    "record_crc32c",
)


class IndexRows:
    """The rows of a shard's index, converted to Python objects in blocks to bound memory."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table.select(_COMPARED)
        self._start = -_BLOCK_ROWS
        self._block: list[dict[str, Any]] = []

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """The starts of the records in bytes, shape [rows]; empty unless they strictly increase."""
        column = self._table["offset"].combine_chunks()
        # Not Arrow's `to_numpy`: it imports pandas, which takes 0.4 s.
        offsets = np.asarray(np.from_dlpack(column), np.int64)
        return offsets if np.all(np.diff(offsets) > 0) else offsets[:0]

    def row(self, number: int) -> Mapping[str, Any] | None:
        """Return a row as column -> value, None past the end."""
        if not self._start <= number < self._start + _BLOCK_ROWS:
            self._start = number - number % _BLOCK_ROWS
            self._block = self._table.slice(self._start, _BLOCK_ROWS).to_pylist()
        place = number - self._start
        return self._block[place] if place < len(self._block) else None


def check_sidecar(
    root: Folder, name: ShardName, info: ShardInfo, contents: Mapping[FileContent, str]
) -> tuple[IndexRows | None, list[DatasetFault]]:
    """Return a sidecar's rows and no faults; or None and faults, if the manifest disagrees.

    Args:
        contents: The names of the dataset's sidecars.
    """
    try:
        data = read_sidecar(root, name)
        # Damaged bytes never reach Arrow.
        damage = info.sidecar and content_fault(FileContent.of(data), info.sidecar, contents)
        if damage:
            return None, [DatasetFault.of_file(name.sidecar, damage)]
        table = parse_index(data, root.path(name.sidecar), name, None)
    except StorageError as error:
        what = str(error).removeprefix(f"{name.sidecar} ")
        return None, [DatasetFault.of_file(name.sidecar, what)]
    fault = _mismatch(read_summary(root, name), table.num_rows, name, info)
    return (None, [DatasetFault.of_file(name.sidecar, fault)]) if fault else (IndexRows(table), [])


def _mismatch(
    summary: ShardSummary | None, num_rows: int, name: ShardName, info: ShardInfo
) -> str | None:
    """Return why a sidecar is not that of a shard, or None if it is."""
    if summary is None:
        return "its metadata does not say which shard it indexes"
    wanted = {
        "name": name,
        "num_records": info.num_records,
        "num_bytes": info.num_bytes,
        "crc32c": info.crc32c,
        "digest": info.digest,
    }
    differing = [key for key, value in wanted.items() if getattr(summary, key) != value]
    if differing:
        details = ", ".join(
            f"{key} {getattr(summary, key)!r} instead of {wanted[key]!r}" for key in differing
        )
        return f"it is the index of another shard ({details}); its rows are not compared"
    if num_rows != info.num_records:
        return f"it has {counted(num_rows, 'row')} for {counted(info.num_records, 'record')}"
    return None


class RowChecker:
    """A checker of index rows against their records."""

    def __init__(self, schema: ExampleSchema) -> None:
        self._image = schema.image
        self._stated = {
            column: feature
            for column, source in (
                ("label", Source.LABEL),
                ("format", Source.FORMAT),
                ("width", Source.WIDTH),
                ("height", Source.HEIGHT),
            )
            if (feature := schema.find(source)) is not None or column == "label"
        }
        self._id = schema.find(Source.ID)

    def faults(
        self, row: Mapping[str, Any], span: RecordSpan, features: Mapping[str, Values]
    ) -> Iterator[str]:
        length = FRAME_BYTES + len(span.data)
        if (row["offset"], row["length"]) != (span.offset, length):
            yield (
                f"the row says {row['length']} bytes at byte {row['offset']}, "
                f"the record has {length} at byte {span.offset}"
            )
        stated, crc = row["record_crc32c"], google_crc32c.value(span.data)
        if stated not in (None, crc):
            yield f"the row's crc32c of the record is {stated:#010x}, the record's is {crc:#010x}"
        image = b"" if self._image is None else one_value(features, self._image)
        if isinstance(image, bytes):
            yield from _image_faults(row, span, image)
        found = one_value(features, self._id)
        if self._id is not None and isinstance(found, bytes) and found != row["id"].encode():
            yield (
                f"the row's id is {row['id']!r}, "
                f"the record's {found.decode('utf-8', 'backslashreplace')!r}"
            )
        for column, feature in self._stated.items():
            value = one_value(features, feature)
            value = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
            # A record without an image has zeros where its row has nulls.
            is_blank = column != "label" and not row["image_length"] and not value
            if row[column] != (None if is_blank else value):
                yield f"the row's {column} is {row[column]!r}, the record's {value!r}"


def _image_faults(row: Mapping[str, Any], span: RecordSpan, image: bytes) -> Iterator[str]:
    start = row["image_offset"] - span.offset - HEADER_BYTES
    if row["image_length"] != len(image) or start < 0 or not span.data.startswith(image, start):
        yield (
            f"the row says that the image is {row['image_length']} bytes at byte "
            f"{row['image_offset']}, but the record's image of {len(image)} bytes is not there"
        )
    if row["crc32c"] != google_crc32c.value(image):
        yield (
            f"the row's crc32c of the image is {row['crc32c']:#010x}, "
            f"the image's is {google_crc32c.value(image):#010x}"
        )
