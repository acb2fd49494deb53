"""Write and read the index: one Parquet sidecar per shard, with one row per record.

A sidecar's metadata summarizes the shard. It is written after its shard is in place, so it is also
the shard's done marker: if its digest is the planned one and the shard has the length it states, a
resumed build skips the shard.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import pyarrow as pa

from shardwright.errors import MissingError, RecordFault, StorageError
from shardwright.format.contents import FileContent
from shardwright.format.json_files import Count, Crc32c, load_json, typed
from shardwright.format.naming import ShardName
from shardwright.format.parquet import ParquetRows, parquet_bytes
from shardwright.format.records import FRAME_BYTES, check_frame
from shardwright.format.splits import ShardInfo
from shardwright.sizes import counted
from shardwright.storage.folder import Folder

_SUMMARY_KEY = b"shardwright"
_ADVICE = "copy the dataset again, or run `shardwright repair` on it"

# Offsets are in bytes from the start of the shard, lengths in bytes. `offset` and `length` span the
# record with its frame, `image_offset` and `image_length` only the image bytes; `crc32c` is the
# unmasked checksum of the image bytes, `record_crc32c` that of the record's data, which its frame
# ends with, too. A record without an image has no image bytes, and nulls for format, width and
# height.
# `features` is a hash of what the record was planned with besides its image (see
# `shardwright.transforms.features.rows`). A `--transform` function gives its results ids
# that begin with that of their input; `suffix` is how many characters longer they are.
INDEX_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("image_offset", pa.int64(), nullable=False),
        pa.field("image_length", pa.int64(), nullable=False),
        pa.field("crc32c", pa.uint32(), nullable=False),
        pa.field("label", pa.int64()),
        pa.field("format", pa.string()),
        pa.field("width", pa.int32()),
        pa.field("height", pa.int32()),
        pa.field("uri", pa.string()),
        pa.field("etag", pa.string()),
        pa.field("features", pa.uint64()),
        pa.field("suffix", pa.int32()),
        pa.field("record_crc32c", pa.uint32(), nullable=False),
    ]
)
_CHECKSUM = "record_crc32c"
_MAY_LACK = ("features", "suffix")  # where no record has one, as builds once left them out
CHECKED = ("offset", "length", _CHECKSUM)  # what `check_record` takes of an index row


@dataclass(frozen=True, slots=True)
class ShardSummary:
    """A summary of one written shard.

    Attributes:
        name: The shard's name.
        num_records: Number of records in the file.
        num_bytes: Length of the file.
        crc32c: Unmasked CRC32C of the whole file.
        digest: Hash of the ordered references and the encoding settings; "" if they are unknown.
        rejects: Number of rejects by reason, of references planned into this shard.
        stats: Statistics of the records (see `shardwright.transforms.publish.statistics`).
        etag: The file's etag if the store changes it only with the content, else None.
        sidecar: The content of its sidecar, once that is written; not stored in it.
        reject_file: The content of its file of rejects, if there are any; not stored in it.
        signals_file: The content of its file of signals, if the build measures them.
    """

    name: ShardName
    num_records: Count
    num_bytes: Count
    crc32c: Crc32c
    digest: str
    rejects: Mapping[str, Count] = field(default_factory=dict)
    stats: Mapping[str, Any] = field(default_factory=dict)
    etag: str | None = None
    sidecar: FileContent | None = None
    reject_file: FileContent | None = None
    signals_file: FileContent | None = None

    def to_json(self) -> dict[str, Any]:
        # Not `asdict`, which copies the statistics of each feature.
        record = {each.name: getattr(self, each.name) for each in fields(self)}
        del record["sidecar"], record["reject_file"]
        record["name"] = asdict(self.name)
        del record["name"]["folder"]
        if self.signals_file is None:
            del record["signals_file"]
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> ShardSummary:
        """Return the summary of a `to_json` record; raise `ValueError` if it is invalid."""
        found = replace(typed(record, cls), sidecar=None, reject_file=None)
        # Through its text, so that no folder gets into a path.
        if ShardName.parse(found.name.shard) != found.name:
            raise ValueError(f"{found.name.shard!r:.80} is not the name of a shard")
        return found


def write_sidecar(root: Folder, summary: ShardSummary, rows: pa.Table) -> ShardSummary:
    """Write a shard's index, which marks the shard as done, and return its summary with `sidecar`.

    Args:
        root: The dataset's folder.
        summary: Stored in the sidecar's metadata.
        rows: One row per record in file order, with the columns of `INDEX_SCHEMA`.
    """
    text = json.dumps(summary.to_json(), sort_keys=True, separators=(",", ":"))
    table = rows.cast(INDEX_SCHEMA).replace_schema_metadata({_SUMMARY_KEY: text.encode()})
    # A dictionary of hashes, which are all different, would take two bytes a record.
    repeated = [name for name in table.column_names if name not in ("features", _CHECKSUM)]
    data = parquet_bytes(table, write_page_checksum=True, use_dictionary=repeated)
    root.write_bytes(summary.name.sidecar, data)
    return replace(summary, sidecar=FileContent.of(data))


def read_summary(root: Folder, name: ShardName) -> ShardSummary | None:
    """Return the summary in a shard's sidecar, None if the sidecar is missing or damaged."""
    try:
        data = root.read_bytes(name.sidecar)
        with ParquetRows(pa.BufferReader(data), root.path(name.sidecar)) as file:
            summary = ShardSummary.from_json(load_json(file.schema.metadata[_SUMMARY_KEY]))
            return replace(summary, sidecar=FileContent.of(data))
    except MissingError:
        return None
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError):
        return None  # a damaged sidecar does not count as done: the shard is written again


def read_index(root: Folder, name: ShardName, columns: list[str] | None = None) -> pa.Table:
    """Return a shard's index rows, in file order.

    Raises:
        StorageError: The sidecar is missing or unreadable.
    """
    return read_index_of(root, name, None, columns)


def read_index_of(
    root: Folder, name: ShardName, info: ShardInfo | None, columns: list[str] | None = None
) -> pa.Table:
    """Return a shard's index rows, after checking that they belong to the shard in the manifest.

    Raises:
        StorageError: The sidecar is missing, unreadable, damaged, or of another shard, such as that
            of an older build.
    """
    return parse_index(read_sidecar(root, name), root.path(name.sidecar), name, info, columns)


def read_live_rows(
    root: Folder, name: ShardName, info: ShardInfo, columns: list[str] | None = None
) -> pa.Table:
    """Return the index rows of the records that are in the dataset; raise as `read_index_of`."""
    rows, live = read_index_of(root, name, info, columns), info.live_rows
    return rows if live is None else rows.take(live)


def read_sidecar(root: Folder, name: ShardName) -> bytes:
    """Return a shard's sidecar as stored; raise `StorageError` if it is missing or unreadable."""
    try:
        return root.read_bytes(name.sidecar)
    except MissingError as error:
        raise StorageError(
            f"{root.path(name.sidecar)} is missing: the index of {name.shard}; {_ADVICE}"
        ) from error


def parse_index(
    data: bytes,
    path: str,
    name: ShardName,
    info: ShardInfo | None,
    columns: list[str] | None = None,
) -> pa.Table:
    """Return index rows from the sidecar bytes that were read from `path`.

    They are checked as by `read_index_of`; with None for `info`, as by `read_index`.
    """
    fault = FileContent.of(data).fault(info.sidecar) if info else None
    if fault:  # damaged bytes never reach Arrow
        raise StorageError(f"{path} is damaged, or of another build ({fault}): {_ADVICE}")
    try:
        with ParquetRows(pa.BufferReader(data), path, checksums=True) as file:
            # The footer's count, before the rows are read: a reader allocates by it.
            if info is not None and file.metadata.num_rows != info.num_records:
                raise StorageError(
                    f"{path} has {counted(file.metadata.num_rows, 'row')}, but the manifest says "
                    f"{info.num_records:,}: {_ADVICE}"
                )
            table = file.read(columns)
        table.validate(full=True)  # nothing else checks that text is UTF-8
    except StorageError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
    wanted = INDEX_SCHEMA if columns is None else pa.schema(map(INDEX_SCHEMA.field, columns))
    for lacked in {*_MAY_LACK} & {*wanted.names} - {*table.column_names}:
        field = wanted.field(lacked)
        table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    types = dict(zip(table.column_names, table.schema.types, strict=True))
    if types != dict(zip(wanted.names, wanted.types, strict=True)):
        raise StorageError(f"{name.sidecar} cannot be read: its columns are not those of an index")
    try:
        return table.select(wanted.names).cast(wanted)
    except ValueError as error:  # a null where none may be
        raise StorageError(f"{name.sidecar} cannot be read: {error}") from error


def check_record(row: Mapping[str, Any], frame: bytes) -> None:
    """Check that a frame is the record of an index row; raise `RecordFault` if it is not."""
    if len(frame) < max(row["length"], FRAME_BYTES):
        raise RecordFault(row["offset"], "the file ends inside the record", is_truncated=True)
    check_frame(frame, row["offset"], row[_CHECKSUM])
