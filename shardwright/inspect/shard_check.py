"""Check one shard: the file, its records in order, and its sidecar.

A frame locates the next one only if its own length is valid; after a broken length, the index
locates it.
"""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import google_crc32c
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shardwright.errors import (
    CredentialsError,
    MissingError,
    RecordFault,
    StorageError,
    ThrottledError,
    TimedOutError,
    UnreachableError,
)
from shardwright.format.contents import FileContent, file_crc32c
from shardwright.format.example import ExampleFault, parse_example
from shardwright.format.index import parse_index, read_sidecar, read_summary
from shardwright.format.manifest import Manifest
from shardwright.format.naming import ShardName
from shardwright.format.records import FRAME_BYTES, HEADER_BYTES, RecordSpan, read_record
from shardwright.format.schema import ExampleSchema, Source
from shardwright.format.splits import ShardInfo
from shardwright.inspect.example_check import ExampleChecker, Values, one_value
from shardwright.inspect.faults import DatasetFault, content_fault, limit_faults
from shardwright.sizes import counted
from shardwright.storage.folder import Folder

BLOCK_BYTES = 1 << 20
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
# Errors of a whole store, which are not faults of a dataset in it.
NO_FAULTS_OF_FILES = (CredentialsError, ThrottledError, TimedOutError, UnreachableError)


def walk_records(
    file: BinaryIO, known_offsets: NDArray[np.int64]
) -> Iterator[tuple[int, RecordSpan | RecordFault]]:
    """Yield (number, record) for every record of a shard in file order, or a fault if it is broken.

    Ends early after a fault without `next_offset` if no known offset follows it.

    Args:
        file: The shard, at its start.
        known_offsets: The starts of the records in the index, in bytes, shape [records],
            increasing; empty without an index.
    """
    num_bytes = os.fstat(file.fileno()).st_size
    number = offset = 0
    while offset < num_bytes:
        try:
            span = read_record(file, offset, num_bytes)
        except RecordFault as fault:
            yield number, fault
            if fault.next_offset is not None:
                number, offset = number + 1, fault.next_offset
            else:  # the frame does not know the end of this record, but the index does
                number = int(np.searchsorted(known_offsets, fault.offset, side="right"))
                if number == len(known_offsets):
                    return
                offset = int(known_offsets[number])
            # The reader is somewhere inside the broken record.
            file.seek(offset)
            continue
        if span is None:
            return
        yield number, span
        number, offset = number + 1, span.next_offset


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
    summary, fault = read_summary(root, name), None
    wanted = {
        "name": name,
        "num_records": info.num_records,
        "num_bytes": info.num_bytes,
        "crc32c": info.crc32c,
        "digest": info.digest,
    }
    if summary is None:
        fault = "its metadata does not say which shard it indexes"
    elif differing := [key for key, value in wanted.items() if getattr(summary, key) != value]:
        details = ", ".join(
            f"{key} {getattr(summary, key)!r} instead of {wanted[key]!r}" for key in differing
        )
        fault = f"it is the index of another shard ({details}); its rows are not compared"
    elif table.num_rows != info.num_records:
        rows, records = counted(table.num_rows, "row"), counted(info.num_records, "record")
        fault = f"it has {rows} for {records}"
    return (None, [DatasetFault.of_file(name.sidecar, fault)]) if fault else (IndexRows(table), [])


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


@dataclass(slots=True)
class ShardCheck:
    """The result of checking one shard.

    Attributes:
        name: The shard.
        num_records: Number of records found in the file.
        num_bytes: The file's length.
        faults: Faults of the shard and its sidecar.
        id_hashes: 64-bit hash of the id of every record that has one, to find duplicate ids.
        id_records: The numbers of those records.
        id_offsets: The starts of those records, in bytes.
        labels: Number of records per label.
    """

    name: ShardName
    num_records: int = 0
    num_bytes: int = 0
    faults: list[DatasetFault] = field(default_factory=list)
    id_hashes: array[int] = field(default_factory=lambda: array("q"))
    id_records: array[int] = field(default_factory=lambda: array("q"))
    id_offsets: array[int] = field(default_factory=lambda: array("q"))
    labels: Counter[int] = field(default_factory=Counter)


class ShardChecker:
    """A checker of one dataset's shards. Threads may share it: it keeps no state between calls."""

    def __init__(self, root: Folder, manifest: Manifest) -> None:
        self._root = root
        self._examples = ExampleChecker(manifest.schema)
        self._rows = RowChecker(manifest.schema)
        self._id, self._label = manifest.schema.find(Source.ID), manifest.schema.label
        shards = manifest.named_shards()
        self._contents: Mapping[FileContent, str] = {
            info.content: name.shard for name, info in shards
        } | {info.sidecar: name.sidecar for name, info in shards if info.sidecar}

    def check(self, name: ShardName, info: ShardInfo) -> ShardCheck:
        """Check a shard and its sidecar in bounded memory.

        Reads the file twice: once for its checksum, once record by record.
        """
        result = ShardCheck(name)
        rows, faults = check_sidecar(self._root, name, info, self._contents)
        result.faults += faults
        try:
            with (
                self._root.local_copy(name.shard) as copy,
                open(copy.fileno(), "rb", BLOCK_BYTES, closefd=False) as file,
            ):
                result.faults += limit_faults(self._shard_faults(file, info, rows, result))
        except MissingError:
            result.faults.append(
                DatasetFault.of_file(
                    name.shard, f"the shard is missing, with {counted(info.num_records, 'record')}"
                )
            )
        except NO_FAULTS_OF_FILES:
            raise
        except (OSError, StorageError) as error:
            result.faults.append(
                DatasetFault.of_file(
                    name.shard,
                    f"the shard cannot be read: {getattr(error, 'strerror', None) or error}",
                )
            )
        return result

    def _shard_faults(
        self, file: BinaryIO, info: ShardInfo, rows: IndexRows | None, result: ShardCheck
    ) -> Iterator[DatasetFault]:
        crc = file_crc32c(file)
        result.num_bytes = file.tell()
        file.seek(0)
        content = FileContent(result.num_bytes, crc)
        fault = content_fault(content, info.content, self._contents)
        if fault:
            yield DatasetFault.of_file(result.name.shard, fault)
        # The shard has the content of another one, so each of its records would be a fault.
        if fault and content in self._contents:
            rows = None  # the index describes the shard that should be here
        name, last = result.name, None
        offsets = rows.offsets if rows is not None else np.zeros(0, np.int64)
        for number, last in walk_records(file, offsets):
            if isinstance(last, RecordFault):
                # A fault past the last planned record is surplus bytes, not a record.
                result.num_records = max(result.num_records, min(number + 1, info.num_records))
                yield DatasetFault(name.shard, number, last.offset, last.what)
            else:
                result.num_records = number + 1
                yield from self._example_faults(number, last, rows, result)
        if isinstance(last, RecordFault) and result.num_records < info.num_records:
            what = (
                f"its last {counted(info.num_records - result.num_records, 'record')}: cut off, "
                "or after a broken record and not in the index"
            )
            yield DatasetFault.of_file(name.shard, what)
        elif result.num_records != info.num_records:
            what = (
                f"the shard holds {counted(result.num_records, 'record')}, "
                f"the manifest says {info.num_records}"
            )
            yield DatasetFault.of_file(name.shard, what)

    def _example_faults(
        self, number: int, span: RecordSpan, rows: IndexRows | None, result: ShardCheck
    ) -> Iterator[DatasetFault]:
        name = result.name
        try:
            features = parse_example(span.data)
        except ExampleFault as error:
            yield DatasetFault(name.shard, number, span.offset, str(error))
            return
        for what in self._examples.faults(features):
            yield DatasetFault(name.shard, number, span.offset, what)
        row = rows.row(number) if rows is not None else None
        if row is not None:
            for what in self._rows.faults(row, span, features):
                yield DatasetFault(name.sidecar, number, span.offset, what)
        example_id, label = one_value(features, self._id), one_value(features, self._label)
        if example_id is not None:
            # 8 bytes instead of the id. `verify` reads the ids with equal hashes again.
            result.id_hashes.append(hash(example_id))
            result.id_records.append(number)
            result.id_offsets.append(span.offset)
        if label is not None:
            result.labels[label] += 1
