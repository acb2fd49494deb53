"""Write shards with Beam's own `WriteToTFRecord`, for builds that want stock parts only.

The records have the same bytes as those of `WriteShards`: the same code makes them. Limits:

* Every record crosses a GroupByKey with its image: about 7x the data in memory on the local runner.
* Each bundle deals records to a split's shards in turn, starting at a random one: counts are even
  on average only, sizes in bytes less so, and a shard may be empty.
* The order, and which record is in which shard, differ between runs.
* A stopped build does not resume; it starts over.
* Every worker that indexes holds the index row of each image in memory, about 250 bytes per image.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam import pvalue
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.pvalue import AsList, AsSingleton

from shardwright.format.index import INDEX_SCHEMA, ShardSummary, write_sidecar
from shardwright.format.naming import ShardName
from shardwright.format.records import FOOTER_BYTES, HEADER_BYTES
from shardwright.format.schema import Source
from shardwright.transforms.free_output import is_beam_leftover
from shardwright.transforms.metrics import count, count_rejects, count_written, timed
from shardwright.transforms.output_state import Clearance
from shardwright.transforms.plan.packing import ShardPlan
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.references import record_bytes
from shardwright.transforms.reject_files import pack_rejects, unpack_rejects, write_rejects
from shardwright.transforms.rejects import count_reasons, rejects_in, rejects_to_table
from shardwright.transforms.routing import Routed
from shardwright.transforms.write.examples import ExampleEncoder, FramedRecords
from shardwright.transforms.write.image_chunks import chunk_bounds
from shardwright.transforms.write.image_reads import start_reads
from shardwright.transforms.write.record_index import index_shard, moved_rows
from shardwright.transforms.write.write_job import Chunk, ReadRows, WriteJob
from shardwright.transforms.write.written_rows import WrittenRows

_ROWS, _REJECTS = "rows", "rejects"
_POSITION = "-SSSSS-of-NNNNN"  # Beam's template for the end of ShardName.shard

_PlannedChunk = tuple[ShardName, pa.RecordBatch]
_Record = tuple[str, bytes]
_PlacedRejects = tuple[str, bytes]  # (shard, packed rejects)


class WriteWithBeam(beam.PTransform):
    """A transform that writes each split with one `WriteToTFRecord` and indexes the shards.

    A reject is listed with the shard that its image was planned for.

    Args:
        job: The settings of all shards; the vocabularies come with the clearance.
        name: The dataset's name, which starts the shards' file names.
        shards: Number of shards by split; Beam needs both when the graph is built.
        clearance: The single Clearance; nothing is written before it arrives.
    """

    def __init__(
        self, job: WriteJob, *, name: str, shards: Mapping[str, int], clearance: beam.PCollection
    ) -> None:
        super().__init__()
        self._job = job
        self._name = name
        self._shards = dict(shards)
        self._clearance = clearance

    def expand(self, plans: beam.PCollection) -> Routed:
        clearance = AsSingleton(self._clearance)
        encode = beam.ParDo(_EncodeFn(), job=self._job, clearance=clearance).with_output_types(
            _Record, **{_ROWS: pa.RecordBatch, _REJECTS: _PlacedRejects}
        )
        encoded = (
            plans
            | "Cut" >> beam.FlatMap(cut_plan).with_output_types(_PlannedChunk)
            | "Spread" >> beam.Reshuffle()  # (planned shard, references of a chunk)
            | "Encode" >> encode.with_outputs(_ROWS, _REJECTS, main="records")
        )
        files = [self._write(encoded.records, split) for split in self._shards]
        written = files | "Written" >> beam.Flatten(
            pipeline=plans.pipeline
        )  # names of finished files
        shards = plans.pipeline | "Shards" >> beam.Create(self._shard_names())
        summaries = (
            {"name": shards, "rejects": encoded[_REJECTS]}
            | "SpreadShards" >> beam.CoGroupByKey()  # (shard, its ShardName and packed rejects)
            | "Index"
            >> beam.Map(
                _finish_shard,
                job=self._job,
                rows=AsList(encoded[_ROWS]),
                written=AsList(written),
            ).with_output_types(ShardSummary)
        )
        rejects = encoded[_REJECTS] | "Rejects" >> beam.Values()
        return Routed(summaries, rejects)

    def _write(self, records: beam.PCollection, split: str) -> beam.PCollection:
        writer = beam.io.WriteToTFRecord(
            self._prefix(split),
            num_shards=self._shards[split],
            shard_name_template=_POSITION,
            compression_type=CompressionTypes.UNCOMPRESSED,
        )
        of_split = records | f"Of_{split}" >> beam.FlatMap(_take_split, split).with_output_types(
            bytes
        )
        return of_split | f"WriteToTFRecord_{split}" >> writer  # file names

    def _prefix(self, split: str) -> str:
        first = ShardName(self._name, split, 0, self._shards[split]).shard
        return os.path.join(self._job.root.uri, first.rsplit("-", _POSITION.count("-"))[0])

    def _shard_names(self) -> list[tuple[str, ShardName]]:
        names = (
            ShardName(self._name, split, index, n)
            for split, n in self._shards.items()
            for index in range(n)
        )
        return [(name.shard, name) for name in names]


class _EncodeFn(beam.DoFn):
    """A DoFn that encodes a chunk: yields (split, record), and tags its index rows and rejects."""

    def process(
        self, planned: _PlannedChunk, job: WriteJob, clearance: Clearance
    ) -> Iterator[_Record | pvalue.TaggedOutput]:
        name, references = planned
        # The job was made before the vocabularies were learned, in the same graph.
        job = job.with_vocabularies(clearance.vocabularies)
        encoder = ExampleEncoder(job.schema)
        count("images_in", references.num_rows)
        with timed("encode_chunk_msec"):
            known = encoder.encode_known(references) if job.maker.encodes_rows else []
            reads = start_reads(references, job.storage, job.threads)
            chunk = job.maker.make(ReadRows(references, reads, 0, known, encoder), job)
        for record in unframe(chunk.framed):
            yield name.split, record
        for rows in index_rows(chunk, references, job).to_batches():
            yield pvalue.TaggedOutput(_ROWS, rows)
        count_rejects(chunk.rejects)
        if chunk.rejects:
            packed = pack_rejects(rejects_to_table(chunk.rejects))
            yield pvalue.TaggedOutput(_REJECTS, (name.shard, packed))
        for name_of_fix, number in chunk.fixes.items():
            count(f"fixed_{name_of_fix}", number)
        PROGRESS.add(images=references.num_rows)


def cut_plan(plan: ShardPlan) -> Iterator[_PlannedChunk]:
    """Yield the chunks of a planned shard, each with the shard's name."""
    for start, stop in chunk_bounds(record_bytes(plan.references)):
        yield plan.name, plan.references.slice(start, stop - start)


def unframe(framed: FramedRecords) -> Iterator[bytes]:
    """Yield the serialized tf.Examples of framed records, because Beam's writer frames them."""
    whole = b"".join(framed.pieces)
    start = 0
    for length in framed.lengths:
        yield whole[start + HEADER_BYTES : start + length - FOOTER_BYTES]
        start += length


def index_rows(chunk: Chunk, references: pa.RecordBatch, job: WriteJob) -> pa.Table:
    """Return the index rows of a chunk, with offsets from the start of each record."""
    collected = WrittenRows(references, job)
    collected.add(chunk, 0)
    rows = collected.to_table()
    return moved_rows(rows, pc.negate(rows["offset"]))


def _take_split(record: _Record, split: str) -> Iterator[bytes]:
    if record[0] == split:
        yield record[1]


def _finish_shard(
    known: tuple[str, Mapping[str, Sequence[Any]]],
    *,
    job: WriteJob,
    rows: Sequence[pa.RecordBatch],
    written: Sequence[str],
) -> ShardSummary:
    # Only awaited: a file in place counts, even if a retried rename no longer reports its name.
    del written
    (name,), rejected = known[1]["name"], known[1]["rejects"]
    id_feature = job.schema.find(Source.ID)
    assert id_feature is not None, "a build with `--writer beam` checks it"
    with timed("index_shard_msec"):
        summary, indexed = index_shard(
            job.root, name, id_feature, pa.Table.from_batches(rows, INDEX_SCHEMA)
        )
    rejects = [reject for packed in rejected for reject in rejects_in(unpack_rejects(packed))]
    file = write_rejects(job.root, name.rejects, rejects)
    summary = replace(summary, rejects=count_reasons(rejects), reject_file=file)
    summary = write_sidecar(job.root, summary, indexed)
    count_written(summary)
    return summary


def remove_leftovers(root: str) -> None:
    """Remove the temporary folders that a stopped `WriteToTFRecord` leaves beside the shards."""
    if os.path.isdir(root):
        for filename in os.listdir(root):
            if is_beam_leftover(filename) and not os.path.islink(os.path.join(root, filename)):
                shutil.rmtree(os.path.join(root, filename))
