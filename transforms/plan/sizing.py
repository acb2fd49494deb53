"""Estimate the sizes of re-encoded records from a sample, before shards are laid out.

The sample is the images with the lowest order keys, so it is random and the same on every runner.
They are read and encoded as in WriteShards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from shardwright.errors import NotADatasetError
from shardwright.format import naming
from shardwright.format.json_files import read_json
from shardwright.storage.addresses import temporary_name
from shardwright.transforms.features.vocabularies import Vocabularies
from shardwright.transforms.plan.packing import ORDER_KEY, SizeEstimate, known_sizes, order_keys
from shardwright.transforms.references import concat, digest_of, set_column
from shardwright.transforms.write.shard_chunks import (
    has_died,
    make_alone,
    make_chunks,
    noted_attempt,
)
from shardwright.transforms.write.write_job import Chunk, WriteJob

# One record in 50, enough for a meaningful mean but few enough for a fast plan.
FEWEST_SAMPLED, MOST_SAMPLED = 64, 256
_ONE_IN = 50
_IDENTITY = ["id", "uri", "offset", "num_bytes", "etag"]


@dataclass(frozen=True, slots=True)
class ReferenceSample:
    """The references with the lowest order keys among those seen so far.

    Attributes:
        num_records: Number of references seen.
        references: At most `MOST_SAMPLED` of them, in order, with `ORDER_KEY`; None without any.
    """

    num_records: int = 0
    references: pa.RecordBatch | None = None

    @classmethod
    def of(cls, batch: pa.RecordBatch, seed: int) -> ReferenceSample:
        """Return the sample of one batch."""
        keyed = set_column(batch, ORDER_KEY, pa.array(order_keys(batch.column("id"), seed)))
        return cls(batch.num_rows, _lowest(keyed)) if batch.num_rows else cls()

    @classmethod
    def merged(cls, samples: Iterable[ReferenceSample]) -> ReferenceSample:
        """Return the sample of all references that the given samples cover."""
        samples = list(samples)
        batches = [sample.references for sample in samples if sample.references is not None]
        return cls(
            sum(sample.num_records for sample in samples),
            _lowest(concat(batches)) if batches else None,
        )

    @property
    def chosen(self) -> pa.RecordBatch | None:
        """The references to encode."""
        if self.references is None:
            return None
        wanted = min(max(self.num_records // _ONE_IN, FEWEST_SAMPLED), MOST_SAMPLED)
        return self.references.slice(0, wanted).drop_columns([ORDER_KEY])


def _lowest(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the first rows in the order of `packing.sort_bucket`, at most `MOST_SAMPLED`."""
    order = [(name, "ascending") for name in (ORDER_KEY, "id", "row", "uri")]
    # Taken, not sliced: a pickled slice has the buffers of the whole batch.
    return batch.take(pc.sort_indices(batch, order)[:MOST_SAMPLED])


def estimate_sizes(
    sample: ReferenceSample,
    job: WriteJob,
    settings: bytes,
    vocabularies: Vocabularies,
    *,
    writes: bool = False,
) -> SizeEstimate | None:
    """Encode the sample, or return the estimate that OUTPUT holds for the same sample.

    So a resumed build makes the same plan even if an image has become unreadable, and a finished
    dataset is found up to date without encoding anything.

    Args:
        sample: Sample of all references.
        job: How records are made.
        settings: The settings that decide the shards' bytes, besides the references.
        vocabularies: Class names and words by feature name.
        writes: Note the attempt in OUTPUT; after one that died, try the images one by one.

    Returns:
        The estimate, or None if no image of the sample is stored.
    """
    chosen = sample.chosen
    if chosen is None:
        return None
    # Of what is sampled, not of INPUT: new images that do not get into the sample leave the
    # estimate as it is.
    digest = digest_of(settings, chosen.select(_IDENTITY))
    job = job.with_vocabularies(vocabularies)
    with suppress(NotADatasetError):  # of a version with other fields
        plan = read_json(job.root, naming.PLAN, _EstimatedPlan)
        if plan and plan.estimate and plan.estimate.sample == digest:
            return plan.estimate
    if writes:
        # A name that OUTPUT may hold before there is a plan.
        attempt = (job.root, temporary_name(naming.PLAN, digest[:8]), digest)
        make = make_alone if has_died(*attempt) else make_chunks
        with noted_attempt(*attempt):
            made = measure(chosen, job, make)
    else:
        made = measure(chosen, job)
    # Rejects have no size, and must not make the mean smaller.
    stored = made > 0
    if not stored.any():
        return None
    sizes = known_sizes(chosen).to_numpy()
    return SizeEstimate.of(sizes[stored], made[stored], sample=digest)


class _EstimatedPlan(Struct):
    estimate: SizeEstimate | None = None


def measure(
    references: pa.RecordBatch,
    job: WriteJob,
    make: Callable[[pa.RecordBatch, WriteJob], Iterator[Chunk]] = make_chunks,
) -> np.ndarray:
    """Return the bytes of each row in a shard, 0 for a reject: float64 [rows]."""
    made = np.zeros(references.num_rows)
    for chunk in make(references, job):
        # A function may make several records of a row.
        np.add.at(made, chunk.rows, chunk.framed.lengths)
    return made
