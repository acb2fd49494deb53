"""EstimateSizes: references -> how large their records will be. Reads and encodes a few images, before anything is planned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import AsSingleton

from transforms.planning.sizing import Sample, SizeEstimate, estimate_sizes
from transforms.writing.write_job import WriteJob


class EstimateSizes(beam.PTransform):
    """Estimate record sizes from a sample of up to 256 images: one SizeEstimate, or None where none of them is stored.

    Args:
        job: How records are made.
        seed: Of the shuffle, whose first records are the sample.
        settings: What decides the shards' bytes besides the references.
        vocabularies: The one dict of vocabularies.
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
            | "Sample" >> beam.CombineGlobally(_LowestKeys(self._seed))  # one Sample
            | "Estimate"
            >> beam.Map(
                _estimate, self._job, self._settings, vocabularies=AsSingleton(self._vocabularies)
            )
        )


class _LowestKeys(beam.CombineFn):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed

    def create_accumulator(self) -> Sample:
        return Sample()

    def add_input(self, sample: Sample, batch: pa.RecordBatch) -> Sample:
        return Sample.merged([sample, Sample.of(batch, self._seed)])

    def merge_accumulators(self, samples: Iterable[Sample]) -> Sample:
        return Sample.merged(samples)

    def extract_output(self, sample: Sample) -> Sample:
        return sample


def _estimate(
    sample: Sample, job: WriteJob, settings: bytes, vocabularies: Mapping[str, tuple[str, ...]]
) -> SizeEstimate | None:
    return estimate_sizes(sample, job.with_vocabularies(vocabularies), settings)
