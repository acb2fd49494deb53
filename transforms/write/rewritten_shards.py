"""Write a finished shard again without some of its records, by copying the others.

Sources are not needed. Everything that describes the shard follows from the records that stay: its
index, its statistics, and its file of signals, for which their images are decoded again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import StorageError
from shardwright.format.contents import FileContent
from shardwright.format.example import parse_example
from shardwright.format.index import (
    ShardSummary,
    check_record,
    image_in,
    read_index_of,
    read_summary,
    write_sidecar,
)
from shardwright.format.manifest import Manifest, shard_of
from shardwright.format.naming import ShardName
from shardwright.format.records import FOOTER_BYTES, HEADER_BYTES
from shardwright.format.schema import PICTURES, ExampleSchema, Feature, Source
from shardwright.format.stats_keys import FEATURES
from shardwright.images.decode import stored_image
from shardwright.images.kinds import ImageInfo
from shardwright.images.signals_file import signal_values, write_signals
from shardwright.storage.folder import Folder, Sink
from shardwright.transforms.images.storing import ImageToStore
from shardwright.transforms.publish.feature_statistics import describe_features
from shardwright.transforms.publish.picture_statistics import describe_pictures
from shardwright.transforms.publish.statistics import describe_rows
from shardwright.transforms.references import extra_name
from shardwright.transforms.reject_files import read_rejects, write_rejects
from shardwright.transforms.rejects import REJECTED_LABELS, Reject, count_reasons
from shardwright.transforms.write.record_signals import (
    MeasuredRecords,
    join_records,
    measure_records,
)


def rewrite_shard(
    root: Folder,
    manifest: Manifest,
    name: ShardName,
    *,
    to: Folder,
    without: Collection[str] = (),
    rejects: Sequence[Reject] = (),
    listed: Sequence[Reject] | None = None,
    records: Folder | None = None,
) -> ShardSummary:
    """Write a shard and the files that belong to it to another folder, without some records.

    The dataset stays as it is; `transforms/change_set.py` puts the new files in place.

    Args:
        root: The folder of the dataset's files.
        manifest: The dataset's manifest.
        name: The shard.
        to: The folder to write to.
        without: The ids of the records to leave out.
        rejects: Reject rows to add to those of the shard, such as those of the records left out.
        listed: The reject rows of the shard; None reads its file.
        records: The folder with the shard itself; None is `root`.

    Returns:
        The summary of the new shard, with the digest of the plan that it comes from.

    Raises:
        RecordFault: A record that stays is damaged.
        StorageError: The index or the file of rejects is missing or damaged.
    """
    info = shard_of(manifest, name)
    # The index is checked against the manifest, so the rows are those of the shard's bytes.
    rows, before = read_index_of(root, name, info), read_summary(root, name)
    if before is None:
        raise StorageError(f"{root.path(name.sidecar)} does not describe its shard")
    if listed is None:
        listed = listed_rejects(root, manifest, name.rejects)
    stays = rows.filter(pc.invert(_is_among(rows, without)))
    contents = _Contents(manifest.schema, before)
    with (records or root).local_copy(name.shard) as file, to.open_sink(name.shard) as sink:
        crc32c = _copy(read_frames(file, stays), contents, sink)
    lost = rows.filter(_is_among(rows, {reject.id for reject in rejects}))
    stats = _statistics(stays, before.stats, lost["label"]) | contents.describe()
    summary = replace(
        before,
        num_records=stays.num_rows,
        num_bytes=sink.num_bytes,
        crc32c=crc32c,
        etag=sink.etag,
        rejects=count_reasons([*listed, *rejects]),
        stats=stats,
        reject_file=write_rejects(to, name.rejects, [*listed, *rejects]),
        signals_file=contents.write_signals(to, name),
    )
    # Last, as in a build: it marks the new shard as whole.
    return write_sidecar(to, summary, _shifted(stays))


def _is_among(rows: pa.Table, ids: Collection[str]) -> pa.ChunkedArray:
    return pc.is_in(rows["id"], value_set=pa.array(sorted(ids), pa.string()))


def read_frames(file: BinaryIO, rows: pa.Table) -> Iterator[tuple[Mapping[str, Any], bytes]]:
    """Yield the index rows, each with the bytes of its record's frame that can be read."""
    for batch in rows.to_batches():
        for row in batch.to_pylist():
            try:
                frame = os.pread(file.fileno(), row["length"], row["offset"])
            except OSError:  # of a bad sector: other records may be whole
                frame = b""
            yield row, frame


def _copy(
    frames: Iterable[tuple[Mapping[str, Any], bytes]], contents: _Contents, sink: Sink
) -> int:
    """Write the frames, and return the CRC32C of all."""
    crc32c = 0
    for row, frame in frames:
        # A damaged record must not get a new, valid checksum by being copied.
        check_record(row, frame)
        contents.add(row, frame)
        sink.write([frame])
        crc32c = google_crc32c.extend(crc32c, frame)
    return crc32c


def _shifted(rows: pa.Table) -> pa.Table:
    """Return index rows with the offsets that they have one after the other."""
    lengths, offsets, images = (
        rows[name].to_numpy() for name in ("length", "offset", "image_offset")
    )
    starts = np.cumsum(lengths) - lengths
    for name, values in (("offset", starts), ("image_offset", starts + images - offsets)):
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(name), pa.array(values, pa.int64()))
    return rows


def listed_rejects(root: Folder, manifest: Manifest, file: str) -> list[Reject]:
    """Return the rows of a file of rejects, [] if there is none.

    Raises:
        StorageError: The file is missing or damaged; damaged bytes never reach Arrow.
    """
    stated = manifest.files.get(file)
    if stated is None:
        return []
    fault = FileContent.of(root.read_bytes(file)).fault(stated)
    if fault is not None:
        raise StorageError(f"{root.path(file)} is damaged ({fault})")
    return read_rejects(root, file)


def _statistics(
    table: pa.Table, before: Mapping[str, Any], lost: pa.ChunkedArray
) -> dict[str, Any]:
    """Return the statistics of the index. The fixes of single images are not known, so they stay.

    Args:
        table: The rows that stay.
        before: The statistics of the shard as the build wrote it.
        lost: The labels of the records that became rejects.
    """
    stats = describe_rows(table, before.get("fixes"), lost)
    labels = Counter(before.get(REJECTED_LABELS, {}))
    labels.update(stats.get(REJECTED_LABELS, {}))
    return {**stats, REJECTED_LABELS: dict(labels)} if labels else stats


class _Contents:
    """The parts of records that statistics and signals need, of records in file order.

    Args:
        schema: The features.
        before: The summary of the shard as the build wrote it: it has the same statistics.
    """

    def __init__(self, schema: ExampleSchema, before: ShardSummary) -> None:
        self._schema = schema
        self._stored = stored_image(schema)
        self._columns: dict[Feature, list[Any]] = {
            feature: []
            for feature in schema.features
            if FEATURES in before.stats
            and feature.source == Source.COLUMN
            and feature.kind not in PICTURES
        }
        self._parts: list[MeasuredRecords] | None = None if before.signals_file is None else []

    def add(self, row: Mapping[str, Any], frame: bytes) -> None:
        """Add a record, given its index row and its frame."""
        if self._columns:
            values = parse_example(frame[HEADER_BYTES:-FOOTER_BYTES])
            for feature, column in self._columns.items():
                stored = feature.stored[0]
                found = values.get(stored.key, [])
                column.append(found if stored.shape else next(iter(found), None))
        if self._parts is not None:
            info = ImageInfo(row["format"] or "", row["width"] or 0, row["height"] or 0, 0)
            image = ImageToStore(image_in(row, frame), info)
            self._parts.append(measure_records([row["id"]], [image], self._stored))

    def write_signals(self, to: Folder, name: ShardName) -> FileContent | None:
        """Write the file of signals and return its content; None if the build had none."""
        measured = self._measured
        return None if measured is None else write_signals(to, name, measured.rows)

    @property
    def _measured(self) -> MeasuredRecords | None:
        return None if self._parts is None else join_records(self._parts)

    def describe(self) -> dict[str, Any]:
        """Return the statistics of features and of signals."""
        stats: dict[str, Any] = {}
        if self._columns:
            columns = {}
            for feature, values in self._columns.items():
                stored = feature.stored[0]
                kind = pa.list_(stored.type) if stored.shape else stored.type
                columns[extra_name(stored.key)] = pa.array(values, kind)
            stats |= describe_features(pa.RecordBatch.from_pydict(columns), self._schema)
        measured = self._measured
        if measured is not None:
            stats |= describe_pictures(signal_values(measured.rows), measured.channels)
        return stats
