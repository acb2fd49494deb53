"""Estimate record sizes from a few images, before shards are planned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsSingleton

from shardwright.transforms.plan.size_estimate import SizeEstimate
from shardwright.transforms.plan.sizing import ReferenceSample, estimate_sizes
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
            | "Sample" >> beam.CombineGlobally(_LowestKeys(self._seed))  # one ReferenceSample
            | "Estimate"
            >> beam.Map(
                _estimate, self._job, self._settings, vocabularies=AsSingleton(self._vocabularies)
            )
        )


class _LowestKeys(beam.CombineFn):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed

    def create_accumulator(self) -> ReferenceSample:
        return ReferenceSample()

    def add_input(self, sample: ReferenceSample, batch: pa.RecordBatch) -> ReferenceSample:
        return ReferenceSample.merged([sample, ReferenceSample.of(batch, self._seed)])

    def merge_accumulators(self, samples: Iterable[ReferenceSample]) -> ReferenceSample:
        return ReferenceSample.merged(samples)

    def extract_output(self, sample: ReferenceSample) -> ReferenceSample:
        return sample


def _estimate(
    sample: ReferenceSample,
    job: WriteJob,
    settings: bytes,
    vocabularies: Mapping[str, tuple[str, ...]],
) -> SizeEstimate | None:
    return estimate_sizes(sample, job.with_vocabularies(vocabularies), settings, writes=True)
