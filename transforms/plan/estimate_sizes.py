"""Estimate record sizes from a few images, before shards are planned."""

from __future__ import annotations

import apache_beam as beam
from apache_beam.pvalue import AsSingleton

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
