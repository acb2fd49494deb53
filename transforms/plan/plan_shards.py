"""Plan shards: estimate sizes from a few images, put references in the global order and cut it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsList, AsSingleton

from shardwright.format.naming import ShardName
from shardwright.transforms.plan import packing
from shardwright.transforms.plan.packing import Layout, ShardPlan, ShardPolicy
from shardwright.transforms.plan.sizing import ReferenceSample, estimate_sizes
from shardwright.transforms.references import from_ipc, to_ipc
from shardwright.transforms.rejects import Reject
from shardwright.transforms.routing import Route
from shardwright.transforms.write.write_job import WriteJob


class EstimateSizes(beam.PTransform):
    """A transform that estimates record sizes from at most 256 images.

    Its output is one SizeEstimate, or None if none of the sampled images is stored.

    Args:
        job: How records are made.
        seed: Seed of the shuffle; its first records are the sample.
        settings: The settings that decide the shards' bytes, besides the references.
        vocabularies: The single dict of vocabularies.
    """

    def __init__(
        self, job: WriteJob, *, seed: int, settings: bytes, vocabularies: beam.PCollection
    ) -> None:
        super().__init__()
        self._job = job
        self._seed = seed
        self._settings = settings
        self._vocabularies = vocabularies

    def expand(self, references: beam.PCollection) -> beam.PCollection:
        return (
            references
            | "Lowest" >> beam.Map(ReferenceSample.of, self._seed)  # ReferenceSample
            | "Sample" >> beam.CombineGlobally(ReferenceSample.merged)  # one ReferenceSample
            | "Estimate"
            >> beam.Map(
                estimate_sizes,
                self._job,
                self._settings,
                AsSingleton(self._vocabularies),
                writes=True,
            )
        )


_Piece = tuple[int, pa.RecordBatch]
# Shuffles move batches as bytes: a runner that groups decoded values holds all of them in memory,
# at four times the size.
_PackedPiece = tuple[int, bytes]


class Planned(NamedTuple):
    """The shards to write (ShardPlan), the single Layout, and the rejects (duplicate ids)."""

    shards: beam.PCollection
    layout: beam.PCollection
    rejects: beam.PCollection


class PlanShards(beam.PTransform):
    """A transform that puts references in the global order and cuts it into shard plans.

    Args:
        name: The dataset's name, which starts the shards' file names.
        policy: The number or size of shards.
        seed: Seed of the shuffle.
        settings: The settings that decide the shards' bytes, part of every digest.
        num_buckets: A power of two. More buckets need less memory per worker; the result is equal.
        estimate: The single SizeEstimate or None, for re-encoded images and a shard size in bytes.
    """

    def __init__(
        self,
        *,
        name: str,
        policy: ShardPolicy,
        seed: int,
        settings: bytes,
        num_buckets: int,
        estimate: beam.PCollection | None = None,
    ) -> None:
        super().__init__()
        self._name = name
        self._policy = policy
        self._seed = seed
        self._settings = settings
        self._num_buckets = num_buckets
        self._estimate = estimate

    def expand(self, references: beam.PCollection) -> Planned:
        buckets = (
            references
            | "Spread"
            >> beam.FlatMap(_spread, self._seed, self._num_buckets).with_output_types(_PackedPiece)
            | "Buckets" >> beam.GroupByKey()  # (bucket, [packed references])
            | "Sort" >> Route(_sort, _Piece)  # (bucket, references in order)
        )
        layout = self._lay_out(buckets.main)
        shards = (
            buckets.main
            | "Cut"
            >> beam.FlatMap(_cut, layout=AsSingleton(layout)).with_output_types(
                tuple[tuple[str, int], _PackedPiece]
            )
            | "Shards"
            >> beam.GroupByKey()  # ((split, shard), [(first position, packed references)])
            | "Assemble"
            >> beam.Map(
                _assemble, self._name, self._settings, layout=AsSingleton(layout)
            )  # ShardPlan
        )
        return Planned(shards, layout, buckets.rejects)

    def _lay_out(self, buckets: beam.PCollection) -> beam.PCollection:
        """Return one Layout."""
        sizes = buckets | "Sizes" >> beam.MapTuple(packing.size_bucket)  # BucketSizes
        draft = (
            sizes
            | "Count" >> beam.Map(packing.count_bucket)  # BucketCounts
            | "AllCounts" >> beam.combiners.ToList()
            | "DraftLayout"
            >> beam.Map(
                packing.draft_layout,
                self._policy,
                None if self._estimate is None else AsSingleton(self._estimate),
            )  # one Draft
        )
        placed = sizes | "Place" >> beam.Map(packing.place_bucket, AsSingleton(draft))
        return draft | "LayOut" >> beam.Map(packing.lay_out, AsList(placed))


def _spread(batch: pa.RecordBatch, seed: int, num_buckets: int) -> Iterator[_PackedPiece]:
    for bucket, references in packing.spread(batch, seed, num_buckets):
        yield bucket, to_ipc(references)


def _sort(bucket: tuple[int, Iterable[bytes]]) -> Iterator[_Piece | Reject]:
    number, batches = bucket
    ordered, rejects = packing.sort_bucket([from_ipc(batch) for batch in batches])
    yield from rejects
    yield number, ordered


def _cut(bucket: _Piece, *, layout: Layout) -> Iterator[tuple[tuple[str, int], _PackedPiece]]:
    for shard, (start, references) in packing.cut_bucket(*bucket, layout):
        yield shard, (start, to_ipc(references))


def _assemble(
    shard: tuple[tuple[str, int], Iterable[_PackedPiece]],
    dataset: str,
    settings: bytes,
    *,
    layout: Layout,
) -> ShardPlan:
    (split, index), pieces = shard
    name = ShardName(dataset, split, index, layout.cuts[split].num_shards)
    return ShardPlan.make(
        name, packing.assemble([(start, from_ipc(batch)) for start, batch in pieces]), settings
    )
