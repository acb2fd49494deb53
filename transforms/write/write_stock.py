"""Write shards with Beam's own `WriteToTFRecord`, for builds that want stock parts only.

The records have the same bytes as those of `WriteShards`: the same code makes them. Limits:

* Every record crosses a GroupByKey with its image: about 7x the data in memory on the local runner.
* Each bundle deals records to a split's shards in turn, starting at a random one: counts are even
  on average only, sizes in bytes less so, and a shard may be empty.
* The order, and which record is in which shard, differ between runs.
* A stopped build does not resume; it starts over.
* Every worker that indexes holds the origin of each image in memory, about 200 bytes per image.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam import pvalue
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.pvalue import AsList, AsSingleton

from shardwright.format.index import ShardSummary, write_sidecar
from shardwright.format.naming import ShardName
from shardwright.format.records import FOOTER_BYTES, HEADER_BYTES
from shardwright.transforms.free_output import is_beam_leftover
from shardwright.transforms.metrics import count, count_rejects, count_written, timed
from shardwright.transforms.output_state import Clearance
from shardwright.transforms.plan.shard_plans import ShardPlan
from shardwright.transforms.progress import PROGRESS
from shardwright.transforms.references import record_bytes
from shardwright.transforms.reject_files import pack_rejects, unpack_rejects, write_rejects
from shardwright.transforms.rejects import count_reasons, rejects_in, rejects_to_table
from shardwright.transforms.routing import Routed
from shardwright.transforms.write.examples import ExampleEncoder, FramedRecords
from shardwright.transforms.write.image_chunks import MEASURED, chunk_bounds, measured
from shardwright.transforms.write.image_reads import start_reads
from shardwright.transforms.write.record_index import ORIGIN_SCHEMA, index_shard
from shardwright.transforms.write.write_job import Chunk, ReadRows, WriteJob
from shardwright.transforms.write.written_rows import original_column

_ORIGINS, _REJECTS = "origins", "rejects"
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
            _Record, **{_ORIGINS: pa.RecordBatch, _REJECTS: _PlacedRejects}
        )
        encoded = (
            plans
            | "Cut" >> beam.FlatMap(cut_plan).with_output_types(_PlannedChunk)
            | "Spread" >> beam.Reshuffle()  # (planned shard, references of a chunk)
            | "Encode" >> encode.with_outputs(_ORIGINS, _REJECTS, main="records")
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
                clearance=clearance,
                origins=AsList(encoded[_ORIGINS]),
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
    """A DoFn that encodes a chunk: yields (split, record), and tags its origins and rejects."""

    def process(
        self, planned: _PlannedChunk, job: WriteJob, clearance: Clearance
    ) -> Iterator[_Record | pvalue.TaggedOutput]:
        name, references = planned
        encoder = ExampleEncoder(job.with_vocabularies(clearance.vocabularies).schema)
        count("images_in", references.num_rows)
        with timed("encode_chunk_msec"):
            known = encoder.encode_known(references) if job.maker.encodes_rows else []
            reads = start_reads(references, job.storage, job.threads)
            chunk = job.maker.make(ReadRows(references, reads, 0, known, encoder), job)
        for record in unframe(chunk.framed):
            yield name.split, record
        yield pvalue.TaggedOutput(_ORIGINS, origins_of(chunk, references))
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


def origins_of(chunk: Chunk, references: pa.RecordBatch) -> pa.RecordBatch:
    """Return what the records of a chunk lack about their images, with `ORIGIN_SCHEMA`."""
    kept = references.take(pa.array(chunk.rows, pa.int64()))
    own = {
        name: pa.array(measured(chunk, name), ORIGIN_SCHEMA.field(name).type) for name in MEASURED
    }
    own["id"] = pa.array(chunk.ids, pa.string())
    arrays = [
        own[name] if name in own else original_column(kept, name) for name in ORIGIN_SCHEMA.names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ORIGIN_SCHEMA)


def _take_split(record: _Record, split: str) -> Iterator[bytes]:
    if record[0] == split:
        yield record[1]


def _finish_shard(
    known: tuple[str, Mapping[str, Sequence[Any]]],
    *,
    job: WriteJob,
    clearance: Clearance,
    origins: Sequence[pa.RecordBatch],
    written: Sequence[str],
) -> ShardSummary:
    # Only awaited: a file in place counts, even if a retried rename no longer reports its name.
    del written
    (name,), rejected = known[1]["name"], known[1]["rejects"]
    # The job was made before the vocabularies were learned, in the same graph.
    schema = job.with_vocabularies(clearance.vocabularies).schema
    with timed("index_shard_msec"):
        summary, rows = index_shard(
            job.root, name, schema, pa.Table.from_batches(origins, ORIGIN_SCHEMA)
        )
    rejects = [reject for packed in rejected for reject in rejects_in(unpack_rejects(packed))]
    file = write_rejects(job.root, name.rejects, rejects)
    summary = replace(summary, rejects=count_reasons(rejects), reject_file=file)
    summary = write_sidecar(job.root, summary, rows)
    count_written(summary)
    return summary


def remove_leftovers(root: str) -> None:
    """Remove the temporary folders that a stopped `WriteToTFRecord` leaves beside the shards."""
    if os.path.isdir(root):
        for filename in os.listdir(root):
            if is_beam_leftover(filename) and not os.path.islink(os.path.join(root, filename)):
                shutil.rmtree(os.path.join(root, filename))
