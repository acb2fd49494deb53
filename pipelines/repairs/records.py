"""Make damaged records again from INPUT, whatever else in INPUT has changed, and mend shards."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, BinaryIO

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import MissingError, RecordFault
from shardwright.format.contents import FileContent
from shardwright.format.example import one_value, parse_example
from shardwright.format.index import check_record, image_in, read_index, read_index_of
from shardwright.format.manifest import Manifest, shard_of
from shardwright.format.naming import ShardName
from shardwright.format.records import FOOTER_BYTES, HEADER_BYTES
from shardwright.format.schema import ExampleSchema, Feature, Source
from shardwright.images.decode import stored_image
from shardwright.images.kinds import ImageInfo
from shardwright.images.signals_file import write_signals
from shardwright.pipelines.job.build import BuildJob
from shardwright.pipelines.local.references import LocalReferences
from shardwright.pipelines.repairs.broken_files import BrokenShard, LostRecord
from shardwright.storage.folder import Folder
from shardwright.transforms.changes.schema_differences import known_vocabularies
from shardwright.transforms.images.storing import ImageToStore
from shardwright.transforms.near_duplicates.options import NearDuplicateOptions
from shardwright.transforms.plan.shard_plans import ShardPlan
from shardwright.transforms.references import concat, set_column
from shardwright.transforms.write.image_chunks import join_records, measure_records
from shardwright.transforms.write.shard_writing import write_shard
from shardwright.transforms.write.write_job import WriteJob

Row = Mapping[str, Any]


def write_job_of(job: BuildJob, manifest: Manifest, folder: Folder) -> WriteJob:
    """Return the settings to write shards of a dataset to another folder."""
    names = known_vocabularies(manifest.schema, manifest.schema)
    return replace(job.write_job.with_vocabularies(names), root=folder)


def find_references(job: BuildJob, manifest: Manifest, rows: pa.Table) -> pa.RecordBatch | None:
    """Return the references in INPUT of these index rows, with the indices that the dataset has.

    The dataset states the rest: class names and words, which records are in it, and their splits.
    In a new build these could be others, if INPUT has changed elsewhere.

    Raises:
        ShardwrightError: INPUT cannot be listed.
    """
    references = LocalReferences(_without_choices(job))
    references.vocabularies = known_vocabularies(manifest.schema, manifest.schema)
    found = [references_in(batch, rows, job.write_job) for batch in references.batches()]
    found = [batch for batch in found if batch.num_rows]
    if not found:
        return None
    # Of rows with one id the first one by row and uri is in the dataset, as in the plan.
    keys = [(name, "ascending") for name in ("id", "row", "uri")]
    ordered = concat(found).sort_by(keys)
    again = pc.equal(ordered.column("id")[1:], ordered.column("id")[:-1])
    keep = pa.array([True, *pc.invert(again).to_pylist()])
    return ordered.filter(keep)


def references_in(batch: pa.RecordBatch, rows: pa.Table, job: WriteJob) -> pa.RecordBatch:
    """Return the references of index rows: by their ids, and by their images after a function.

    A `--transform` function may make several records of an image, with other ids.
    """
    keep = pc.is_in(batch.column("id"), value_set=rows["id"].combine_chunks())
    if job.transforms:
        known = rows["uri"].drop_null().combine_chunks()
        keep = pc.or_(keep, pc.is_in(batch.column("uri"), value_set=known))
    return batch.filter(keep)


def _without_choices(job: BuildJob) -> BuildJob:
    """Return a job that lists all of INPUT, without duplicates to find or splits to draw."""
    options = replace(
        job.options,
        duplicates="keep",
        near=NearDuplicateOptions(),
        split=None,
        split_ids=(),
        stratify=False,
    )
    return replace(job, options=options)


class FreshRecords:
    """The records of a shard that were made again, in a shard of their own.

    Args:
        references: As `find_references` returns them; None if there are none.
        name: The shard.
        wanted: The index rows of the records to make.
        job: As `write_job_of` returns it, with a folder that holds no such shard; None without
            INPUT.
        why: Why there is no INPUT, or "".

    Attributes:
        folder: The folder of the shard; None if it holds no record.

    Raises:
        StorageError: The records cannot be written, or a store cannot be read.
    """

    def __init__(
        self,
        references: pa.RecordBatch | None,
        name: ShardName,
        wanted: pa.Table,
        job: WriteJob | None,
        why: str = "",
    ) -> None:
        self.folder: Folder | None = None
        self._rows: dict[str, Row] = {}
        self._rejects: dict[str, str] = {}
        self._why = why
        if references is None or job is None:
            return
        mine = references_in(references, wanted, job)
        if not mine.num_rows:
            return
        mine = set_column(mine, "split", pa.array([name.split] * mine.num_rows, pa.string()))
        _, rejects = write_shard(ShardPlan(name, "", mine.drop_columns(["row", "group"])), job)
        self.folder = job.root
        self._rejects = {reject.id: reject.detail for reject in rejects}
        self._rows = {row["id"]: row for row in read_index(job.root, name).to_pylist()}

    def find(self, wanted: Row) -> Row | None:
        """Return the index row of a record with the same bytes as an index row of the dataset."""
        found = self._rows.get(wanted["id"])
        # The checksum is of the image only, so length and label are compared for the rest. In the
        # end the whole file is compared.
        same = found is not None and all(
            found[key] == wanted[key] for key in ("length", "image_length", "crc32c", "label")
        )
        return found if same else None

    def why_not(self, wanted: Row) -> str:
        """Return why there is no record with the same bytes."""
        if self._why:
            return self._why
        if wanted["id"] in self._rejects:
            return self._rejects[wanted["id"]]
        if wanted["id"] not in self._rows:
            return "INPUT does not have it any more"
        return "its source has changed since the build"


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


def read_frames(file: BinaryIO, rows: pa.Table) -> Iterator[tuple[Row, bytes]]:
    """Yield the index rows, each with the bytes of its record's frame that can be read."""
    for batch in rows.to_batches():
        for row in batch.to_pylist():
            try:
                frame = os.pread(file.fileno(), row["length"], row["offset"])
            except OSError:  # of a bad sector: other records may be whole
                frame = b""
            yield row, frame


def make_signals(root: Folder, manifest: Manifest, name: ShardName, *, to: Folder) -> FileContent:
    """Measure the signals of a sound shard again, from its stored images, and stage their file.

    Raises:
        StorageError: The shard or its index cannot be read.
    """
    rows, stored = (
        read_index_of(root, name, shard_of(manifest, name)),
        stored_image(manifest.schema),
    )
    parts = []
    with root.local_copy(name.shard) as file:
        for row, frame in read_frames(file, rows):
            info = ImageInfo(row["format"] or "", row["width"] or 0, row["height"] or 0, 0)
            image = ImageToStore(image_in(row, frame), info)
            parts.append(measure_records([row["id"]], [image], stored))
    return write_signals(to, name, join_records(parts).rows)


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
    name, lost, crc32c = damaged.broken.name, [], 0
    with ExitStack() as stack:
        has_sound = len(damaged.ids) < damaged.rows.num_rows
        old = stack.enter_context(root.local_copy(name.shard)) if has_sound else None
        folder = fresh.folder
        new = stack.enter_context(folder.local_copy(name.shard)) if folder else None
        sink = stack.enter_context(to.open_sink(name.shard))
        for row in chain.from_iterable(map(pa.RecordBatch.to_pylist, damaged.rows.to_batches())):
            if row["id"] not in damaged.ids and old is not None:
                frame = os.pread(old.fileno(), row["length"], row["offset"])
            elif new is not None and (found := fresh.find(row)) is not None:
                frame = os.pread(new.fileno(), found["length"], found["offset"])
            else:
                lost.append(LostRecord(row["id"], row["uri"] or "", fresh.why_not(row)))
                # Zeros keep all other records at the offsets that the index states.
                frame = bytes(row["length"])
            sink.write([frame])
            # While it is written, because a shard need not fit into memory.
            crc32c = google_crc32c.extend(crc32c, frame)
    return FileContent(sink.num_bytes, crc32c), lost
