"""Mend a shard whose index is intact: keep its sound records, and make the damaged ones again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, BinaryIO

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import MissingError, RecordFault
from shardwright.format.contents import FileContent
from shardwright.format.example import parse_example
from shardwright.format.index import check_record, read_index_of
from shardwright.format.records import FOOTER_BYTES, HEADER_BYTES
from shardwright.format.schema import ExampleSchema, Feature, Source
from shardwright.inspect.example_check import one_value
from shardwright.pipelines.repairs.broken_files import BrokenShard
from shardwright.pipelines.repairs.fresh_records import FreshRecords
from shardwright.pipelines.repairs.outcome import LostRecord
from shardwright.storage.folder import Folder, Sink
from shardwright.transforms.write.rewritten_shards import read_frames


@dataclass(frozen=True, slots=True)
class DamagedShard:
    """A shard with damaged records.

    Attributes:
        broken: The shard.
        rows: Its index.
        ids: The ids of its damaged records.
    """

    broken: BrokenShard
    rows: pa.Table
    ids: frozenset[str]

    @property
    def damaged_rows(self) -> pa.Table:
        """The index rows of its damaged records."""
        ids = pa.array(sorted(self.ids), pa.string())
        return self.rows.filter(pc.is_in(self.rows["id"], value_set=ids))


def find_damaged(root: Folder, schema: ExampleSchema, broken: BrokenShard) -> DamagedShard:
    """Return a shard with the ids of its damaged records; all of them if the file is missing.

    Raises:
        StorageError: The index is damaged.
    """
    rows = read_index_of(root, broken.name, broken.info)
    try:
        with root.local_copy(broken.name.shard) as file:
            ids = frozenset(_damaged_ids(file, rows, schema.find(Source.ID)))
    except MissingError:
        ids = frozenset(rows["id"].to_pylist())
    return DamagedShard(broken, rows, ids)


def _damaged_ids(file: BinaryIO, rows: pa.Table, feature: Feature | None) -> Iterator[str]:
    for row, frame in read_frames(file, rows):
        try:
            check_record(row, frame)
        except RecordFault:
            yield row["id"]
            continue
        if feature is not None and not row["image_length"]:  # an image has a checksum of its own
            found = one_value(parse_example(frame[HEADER_BYTES:-FOOTER_BYTES]), feature)
            if found != row["id"].encode():
                yield row["id"]


def mend(
    root: Folder, damaged: DamagedShard, fresh: FreshRecords, to: Folder
) -> tuple[FileContent, list[LostRecord]]:
    """Write a shard of its sound records and of fresh ones; zeros stand for those that are lost.

    Every record is at its offset. Return the content of the file, and the lost records.

    Raises:
        StorageError: A file cannot be read or written.
    """
    name = damaged.broken.name
    with ExitStack() as stack:
        has_sound = len(damaged.ids) < damaged.rows.num_rows
        old = stack.enter_context(root.local_copy(name.shard)) if has_sound else None
        folder = fresh.folder
        new = stack.enter_context(folder.local_copy(name.shard)) if folder else None
        sink = stack.enter_context(to.open_sink(name.shard))
        return _mend(damaged, fresh, (old, new), sink)


def _mend(
    damaged: DamagedShard,
    fresh: FreshRecords,
    files: tuple[BinaryIO | None, BinaryIO | None],
    sink: Sink,
) -> tuple[FileContent, list[LostRecord]]:
    lost, crc32c = [], 0
    old, new = files
    for row in _rows_of(damaged.rows):
        if row["id"] not in damaged.ids and old is not None:
            frame = os.pread(old.fileno(), row["length"], row["offset"])
        elif new is not None and (found := fresh.find(row)) is not None:
            frame = os.pread(new.fileno(), found["length"], found["offset"])
        else:
            lost.append(LostRecord(row["id"], row["uri"] or "", fresh.why_not(row)))
            frame = bytes(row["length"])
        sink.write([frame])
        crc32c = google_crc32c.extend(crc32c, frame)
    return FileContent(sink.num_bytes, crc32c), lost


def _rows_of(rows: pa.Table) -> Iterator[Mapping[str, Any]]:
    for batch in rows.to_batches():
        yield from batch.to_pylist()
