"""Index a written TFRecord shard: compute its index rows and its summary from the file.

One pass over the file holds one record in memory at a time.
"""

from __future__ import annotations

import os
from typing import BinaryIO

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import RecordFault, StorageError
from shardwright.format.example import ExampleFault, parse_example
from shardwright.format.index import INDEX_SCHEMA, ShardSummary
from shardwright.format.naming import ShardName
from shardwright.format.records import (
    FRAME_BYTES,
    HEADER_BYTES,
    RecordSpan,
    frame_footer,
    frame_header,
    scan_records,
)
from shardwright.format.schema import ExampleSchema, Source
from shardwright.sizes import counted
from shardwright.storage.folder import Folder
from shardwright.transforms.publish.statistics import describe_rows

# What a record does not tell about its image; joined to the index by id.
_ORIGINS = ("id", "format", "width", "height", "uri", "etag", "features", "suffix")
ORIGIN_SCHEMA = pa.schema([INDEX_SCHEMA.field(name) for name in _ORIGINS])

_READ_OFF = (
    "id",
    "offset",
    "length",
    "image_offset",
    "image_length",
    "crc32c",
    "record_crc32c",
    "label",
)


def index_shard(
    root: Folder, name: ShardName, schema: ExampleSchema, origins: pa.Table
) -> tuple[ShardSummary, pa.Table]:
    """Return the summary and the index rows of a shard in place, and sync the file.

    The file must be on disk before a sidecar marks it as finished.

    Args:
        root: The dataset's folder.
        name: The shard.
        schema: The features of its records; the image must be the last one in each record.
        origins: Rows with `ORIGIN_SCHEMA`, in any order, for at least the shard's ids.

    Returns:
        A summary without rejects and without a digest (the order of the records is unknown before
        they are written), and a table with `INDEX_SCHEMA`, one row per record in file order.

    Raises:
        StorageError: The file is missing or a record is invalid; the message gives the file, the
            record's offset in bytes, and the fault.
    """
    path = root.path(name.shard)
    rows = _Rows(schema)
    try:
        with open(root.open_descriptor(name.shard), "rb") as file:
            crc = _scan(file, rows)
            num_bytes = file.tell()
            os.fsync(file.fileno())
    except FileNotFoundError as error:
        raise StorageError(f"{path} was not written: run the build again") from error
    except (RecordFault, OSError) as error:
        raise StorageError(f"{path} cannot be indexed: {error}") from error
    table = rows.to_table(origins, path)
    summary = ShardSummary(
        name, table.num_rows, num_bytes, crc, digest="", stats=describe_rows(table)
    )
    return summary, table


def _scan(file: BinaryIO, rows: _Rows) -> int:
    """Add every record to `rows`, and return the plain CRC32C of the whole file."""
    crc = 0
    for span in scan_records(file):
        rows.add(span)
        for piece in (
            frame_header(len(span.data)),
            span.data,
            frame_footer(google_crc32c.value(span.data)),
        ):
            crc = google_crc32c.extend(crc, piece)
    return crc


class _Rows:
    """A collector of index rows."""

    def __init__(self, schema: ExampleSchema) -> None:
        found = {source: schema.find(source) for source in (Source.ID, Source.IMAGE, Source.LABEL)}
        self._keys = {
            source: feature.name for source, feature in found.items() if feature is not None
        }
        self._columns: dict[str, list[int | str | None]] = {column: [] for column in _READ_OFF}

    def add(self, span: RecordSpan) -> None:
        """Add a record.

        Raises:
            RecordFault: The record is not an example of the schema.
        """
        values = self._values(span)
        image = values.get(Source.IMAGE, b"")
        # The index states an image by its place at the end of the data, where copies and readers
        # look for it.
        if not isinstance(image, bytes) or not span.data.endswith(image):
            raise RecordFault(span.offset, "the image is not the record's last feature")
        record = {
            "id": _text(values[Source.ID], span),
            "offset": span.offset,
            "length": FRAME_BYTES + len(span.data),
            "image_offset": span.offset + HEADER_BYTES + len(span.data) - len(image),
            "image_length": len(image),
            "crc32c": google_crc32c.value(image),
            "record_crc32c": google_crc32c.value(span.data),
            "label": values.get(Source.LABEL),
        }
        for column, value in record.items():
            self._columns[column].append(value)

    def _values(self, span: RecordSpan) -> dict[Source, bytes | int | float]:
        """Return the single value of each feature that the index holds."""
        try:
            features = parse_example(span.data)
        except ExampleFault as error:
            raise RecordFault(span.offset, str(error)) from error
        values = {}
        for source, key in self._keys.items():
            found = features.get(key, [])
            if len(found) != 1:
                raise RecordFault(
                    span.offset, f"feature {key!r} has {counted(len(found), 'value')}, expected 1"
                )
            values[source] = found[0]
        return values

    def to_table(self, origins: pa.Table, path: str) -> pa.Table:
        """Return all rows, joined with `origins` by id.

        Raises:
            StorageError: An id is not in `origins`.
        """
        columns = {
            name: pa.array(values, INDEX_SCHEMA.field(name).type)
            for name, values in self._columns.items()
        }
        # By id: Beam's writer decides which record is in which shard.
        places = pc.index_in(columns["id"], value_set=origins.column("id").combine_chunks())
        if places.null_count:
            stranger = columns["id"].filter(places.is_null())[0].as_py()
            raise StorageError(
                f"{path} holds the id {stranger!r}, which was not written by this build: "
                "run the build again"
            )
        known = origins.take(places)
        columns |= {name: known.column(name) for name in ORIGIN_SCHEMA.names if name != "id"}
        return pa.table(
            {field.name: columns[field.name] for field in INDEX_SCHEMA}, schema=INDEX_SCHEMA
        )


def _text(value: bytes | int | float, span: RecordSpan) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError as error:
        raise RecordFault(span.offset, f"the id {value!r} is not UTF-8") from error
