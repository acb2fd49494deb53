"""Estimate the sizes of re-encoded records from a sample, before shards are laid out.

The sample is the images with the lowest order keys, so it is random and the same on every runner.
They are read and encoded as in WriteShards. The estimate is a mean, its uncertainty, and how far
single shards may deviate. Shards are planned to stay below the target size, with a margin that
follows from the sample's spread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

from shardwright.format.manifest import read_json
from shardwright.format.naming import PLAN
from shardwright.storage import Folder
from transforms.plan.packing import ORDER_KEY, known_sizes, order_keys
from transforms.references import concat, digest_of, from_ipc, set_column, to_ipc
from transforms.write.shard_writing import make_chunks
from transforms.write.write_job import WriteJob

# One record in 50, enough for a meaningful mean but few enough for a fast plan.
FEWEST_SAMPLED, MOST_SAMPLED = 64, 256
_ONE_IN = 50
_RISK = 0.001  # probability that the mean, or the largest shard, exceeds its margin
_IDENTITY = ["id", "uri", "offset", "num_bytes", "etag"]


@dataclass(frozen=True, slots=True)
class Sample:
    """The references with the lowest order keys among those seen so far.

    Attributes:
        num_records: Number of references seen.
        references: At most `MOST_SAMPLED` of them, in order, with `ORDER_KEY`; None without any.
    """

    num_records: int = 0
    references: pa.RecordBatch | None = None

    @classmethod
    def of(cls, batch: pa.RecordBatch, seed: int) -> Sample:
        """Return the sample of one batch."""
        keyed = set_column(batch, ORDER_KEY, pa.array(order_keys(batch.column("id"), seed)))
        return cls(batch.num_rows, _lowest(keyed)) if batch.num_rows else cls()

    @classmethod
    def merged(cls, samples: Iterable[Sample]) -> Sample:
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

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (
            self.num_records,
            None if self.references is None else to_ipc(self.references),
        )


def _restore(num_records: int, references: bytes | None) -> Sample:
    return Sample(num_records, None if references is None else from_ipc(references))


def _lowest(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the first rows in the order of `packing.sort_bucket`, at most `MOST_SAMPLED`."""
    return batch.sort_by([(name, "ascending") for name in (ORDER_KEY, "id", "row", "uri")]).slice(
        0, MOST_SAMPLED
    )


@dataclass(frozen=True, slots=True)
class SizeEstimate:
    """An estimate of record sizes in bytes, frames included.

    Attributes:
        sample: Hash of the sampled references and of the settings.
        num_sampled: Number of records made.
        num_records: Number of records that they were drawn from.
        mean: Mean size in the sample.
        spread: Standard deviation of one record.
        ratio: Bytes written per byte known to the plan; None if the mean predicts sizes better.
        error: Standard deviation of one record around the prediction by mean or ratio.
        skewness: Skewness of record sizes, at least 0. Above 0 the largest sizes are further out
            than the spread suggests.
    """

    sample: str
    num_sampled: int
    num_records: int
    mean: float
    spread: float
    ratio: float | None
    error: float
    skewness: float

    @classmethod
    def of(
        cls, known: np.ndarray, made: np.ndarray, *, num_records: int, sample: str
    ) -> SizeEstimate:
        """Compute the estimate from a sample.

        Args:
            known: Bytes of each record known to the plan, shape [n], n > 0.
            made: Bytes of each record as written, shape [n].
            num_records: Number of records that the sample was drawn from.
            sample: Hash of the sample.
        """
        mean, ratio = float(made.mean()), float(made.sum() / known.sum())
        spread, scatter = _deviation(made - mean, mean), _deviation(made - ratio * known, mean)
        skewness = max(float(((made - mean) ** 3).mean()) / spread**3, 0.0) if spread else 0.0
        by_ratio = scatter < spread
        return cls(
            sample,
            len(made),
            num_records,
            mean,
            spread,
            ratio if by_ratio else None,
            min(scatter, spread),
            skewness,
        )

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> SizeEstimate:
        return cls(**record)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def total(self, num_records: int, known_bytes: int) -> int:
        """Return the estimated bytes of records of which the plan knows `known_bytes`."""
        return round(self.mean * num_records if self.ratio is None else self.ratio * known_bytes)

    def shards_under(self, limit: int, *, num_records: int, num_bytes: int) -> int:
        """Return the fewest shards, equal to within one record, that should not exceed `limit`.

        Args:
            limit: Largest shard in bytes.
            num_records: Records of the split.
            num_bytes: Bytes of the split, from `total`.
        """
        shards = max(math.ceil(num_bytes / limit), 1)
        while (
            shards < num_records
            and self.largest_shard(shards, num_records=num_records, num_bytes=num_bytes) > limit
        ):
            shards += max(shards // 256, 1)
        return min(shards, num_records)

    def largest_shard(self, shards: int, *, num_records: int, num_bytes: int) -> float:
        """Return the bytes that the largest shard should not exceed.

        Two things are uncertain: the mean, which all shards share, and which records a shard gets.
        Both vanish if all records are sampled, or if one shard has all records. The largest of many
        sums of few skewed values is further out than a normal one, by the first term of the
        Cornish-Fisher expansion (1938).
        """
        size = math.ceil(num_records / shards)
        unseen = max(1 - self.num_sampled / self.num_records, 0)
        of_mean = (
            NormalDist().inv_cdf(1 - _RISK) * self.error * math.sqrt(unseen / self.num_sampled)
        )
        quantile = NormalDist().inv_cdf(1 - _RISK / shards)
        quantile += (quantile**2 - 1) / 6 * self.skewness / math.sqrt(size)
        of_shard = quantile * self.spread * math.sqrt(size * (1 - size / num_records))
        return size * (num_bytes / num_records + of_mean) + of_shard


def _deviation(errors: np.ndarray, mean: float) -> float:
    """Return the standard deviation of one record; a single record counts as fully uncertain."""
    return float(np.sqrt((errors**2).sum() / (len(errors) - 1))) if len(errors) > 1 else mean


def estimate_sizes(sample: Sample, job: WriteJob, settings: bytes) -> SizeEstimate | None:
    """Encode the sample, or return the estimate that OUTPUT holds for the same sample.

    So a resumed build makes the same plan even if an image has become unreadable, and a finished
    dataset is found up to date without encoding anything.

    Args:
        sample: Sample of all references.
        job: How records are made, with vocabularies.
        settings: The settings that decide the shards' bytes, besides the references.

    Returns:
        The estimate, or None if no image of the sample is stored.
    """
    chosen = sample.chosen
    if chosen is None:
        return None
    digest = digest_of(settings, chosen.select(_IDENTITY))
    known = _recorded(job.root, digest)
    if known is not None:
        return known
    made = measure(chosen, job)
    stored = made > 0
    if not stored.any():
        return None
    sizes = known_sizes(chosen).to_numpy()
    return SizeEstimate.of(
        sizes[stored], made[stored], num_records=sample.num_records, sample=digest
    )


def _recorded(root: Folder, digest: str) -> SizeEstimate | None:
    record = (read_json(root, PLAN) or {}).get("estimate") or {}
    return SizeEstimate.from_json(record) if record.get("sample") == digest else None


def measure(references: pa.RecordBatch, job: WriteJob) -> np.ndarray:
    """Return the bytes of each row in a shard, 0 for a reject: float64 [rows]."""
    made = np.zeros(references.num_rows)
    for chunk in make_chunks(references, job):
        np.add.at(made, chunk.rows, chunk.framed.lengths)
    return made
