"""Index a TFRecord shard that Beam wrote: find its records, whose other index rows are known."""

from __future__ import annotations

import os

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import RecordFault, StorageError
from shardwright.format.contents import content_of
from shardwright.format.example import ExampleFault, one_value, parse_example
from shardwright.format.features import Feature
from shardwright.format.index import INDEX_SCHEMA, ShardSummary
from shardwright.format.naming import ShardName
from shardwright.format.records import scan_records
from shardwright.storage.folder import Folder
from shardwright.transforms.publish.statistics import describe_rows


def index_shard(
    root: Folder, name: ShardName, id_feature: Feature, known: pa.Table
) -> tuple[ShardSummary, pa.Table]:
    """Return the summary and the index rows of a shard in place, and sync the file.

    The file must be on disk before a sidecar marks it as finished.

    Args:
        root: The dataset's folder.
        name: The shard.
        id_feature: The feature with the id of a record.
        known: Index rows, in any order, of at least the shard's records. Their offsets are from the
            start of the record.

    Returns:
        A summary without rejects and without a digest (the order of the records is unknown before
        they are written), and a table with `INDEX_SCHEMA`, one row per record in file order.

    Raises:
        StorageError: The file is missing, or holds a record that is not one of `known`.
    """
    path = root.path(name.shard)
    try:
        ids, offsets, crcs = _scan(root, name, id_feature)
    except FileNotFoundError as error:
        raise StorageError(f"{path} was not written: run the build again") from error
    except (RecordFault, OSError) as error:
        raise StorageError(f"{path} cannot be indexed: {error}") from error
    # By id: Beam's writer decides which record is in which shard.
    places = pc.index_in(pa.array(ids, pa.string()), value_set=known["id"].combine_chunks())
    rows = known.take(places)
    for id_, crc, known_crc in zip(ids, crcs, rows["record_crc32c"].to_pylist(), strict=True):
        if crc != known_crc:
            raise StorageError(
                f"{path} holds a record with the id {id_!r} that was not written by this build: "
                "run the build again"
            )
    rows = moved_rows(rows, pa.array(offsets, pa.int64()))
    content = content_of(root, name.shard)
    assert content is not None, "it was just read"
    return ShardSummary(name, rows.num_rows, *content, digest="", stats=describe_rows(rows)), rows


def moved_rows(rows: pa.Table, num_bytes: pa.Array) -> pa.Table:
    """Return index rows of records that begin by as many bytes later, or earlier."""
    for name in ("offset", "image_offset"):
        place, field = INDEX_SCHEMA.get_field_index(name), INDEX_SCHEMA.field(name)
        rows = rows.set_column(place, field, pc.add(rows[name], num_bytes))
    return rows


def _scan(
    root: Folder, name: ShardName, id_feature: Feature
) -> tuple[list[str], list[int], list[int]]:
    """Return id, offset and the CRC32C of the data of each record, and sync the file."""
    ids, offsets, crcs = [], [], []
    with open(root.open_descriptor(name.shard), "rb") as file:
        for span in scan_records(file):
            try:
                ids.append(one_value(parse_example(span.data), id_feature).decode())
            except (ExampleFault, AttributeError, UnicodeDecodeError) as error:
                raise RecordFault(span.offset, f"it has no id ({error})") from error
            offsets.append(span.offset)
            crcs.append(google_crc32c.value(span.data))
        os.fsync(file.fileno())
    return ids, offsets, crcs
