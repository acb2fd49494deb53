"""How large records will be that are encoded anew: estimated from a sample, before shards are laid out.

The sample is the images with the lowest order keys, so it is a random one, and the same for every runner. They are read and
encoded as WriteShards will do it, and the rest is statistics: a mean, what is uncertain about it, and how far single shards may
be from it. Shards are planned so that they stay at or under the size that is asked for, with a margin that follows from the
sample's spread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa

from shardwright.manifest import read_json
from shardwright.naming import PLAN
from shardwright.storage import Folder
from transforms.planning.packing import ORDER_KEY, known_sizes, order_keys
from transforms.references import concat, digest_of, from_ipc, set_column, to_ipc
from transforms.writing.shard_writing import make_chunks
from transforms.writing.write_job import WriteJob

# One record in fifty, but not so few that the mean says nothing, nor so many that it takes longer than a plan may.
FEWEST_SAMPLED, MOST_SAMPLED = 64, 256
_ONE_IN = 50
_RISK = 0.001  # that the mean, or the largest shard, is beyond its margin
_IDENTITY = ["id", "uri", "offset", "num_bytes", "etag"]


@dataclass(frozen=True, slots=True)
class Sample:
    """The references with the lowest order keys, of those that were looked at.

    Attributes:
        num_records: How many were looked at.
        references: Up to `MOST_SAMPLED` of them, in order, with `ORDER_KEY`; None where there were none.
    """

    num_records: int = 0
    references: pa.RecordBatch | None = None

    @classmethod
    def of(cls, batch: pa.RecordBatch, seed: int) -> Sample:
        """The sample of one batch."""
        keyed = set_column(batch, ORDER_KEY, pa.array(order_keys(batch.column("id"), seed)))
        return cls(batch.num_rows, _lowest(keyed)) if batch.num_rows else cls()

    @classmethod
    def merged(cls, samples: Iterable[Sample]) -> Sample:
        """The sample of all that these are samples of."""
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
    """Its first rows in the order of `packing.sort_bucket`, as far as a sample needs them."""
    return batch.sort_by([(name, "ascending") for name in (ORDER_KEY, "id", "row", "uri")]).slice(
        0, MOST_SAMPLED
    )


@dataclass(frozen=True, slots=True)
class SizeEstimate:
    """What a sample says of records' sizes, in bytes, all of a record counted.

    Attributes:
        sample: Hash of what was sampled, and of the settings.
        num_sampled: How many records were made.
        num_records: Of how many.
        mean: Of the sample.
        spread: Standard deviation of one record.
        ratio: Bytes written for each byte that a plan knows of, where that tells sizes better than the mean does; else None.
        error: Standard deviation of one record around what mean or ratio says of it.
        skewness: Of one record's size, 0 or more: how far its largest values lie beyond what the spread lets expect.
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
        """The estimate from a sample.

        Args:
            known: What a plan knows of each record's size, shape [n], n > 0.
            made: What each record took, shape [n].
            num_records: What the sample was drawn from.
            sample: Its hash.
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
        """The bytes that some records will take, of which a plan knows `known_bytes`."""
        return round(self.mean * num_records if self.ratio is None else self.ratio * known_bytes)

    def shards_under(self, limit: int, *, num_records: int, num_bytes: int) -> int:
        """The fewest shards of which none should be larger than `limit` bytes, equal to within one record.

        Args:
            limit: Bytes.
            num_records: Of the split.
            num_bytes: Of the split, as `total` gives them.
        """
        shards = max(math.ceil(num_bytes / limit), 1)
        while (
            shards < num_records
            and self.largest_shard(shards, num_records=num_records, num_bytes=num_bytes) > limit
        ):
            shards += max(shards // 256, 1)
        return min(shards, num_records)

    def largest_shard(self, shards: int, *, num_records: int, num_bytes: int) -> float:
        """The bytes that the largest of so many shards should not be above.

        Two things are uncertain: the mean, which all shards share, and which records a shard gets. Both shrink to nothing where
        there is nothing left to draw: a sample of all records, a shard of all records. The largest of many sums of few skewed
        values is further out than a normal one; the first term of Cornish and Fisher's expansion (1938) says by how much.
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
    """Of one record; of a single one nothing is known, so that it may be off by all of itself."""
    return float(np.sqrt((errors**2).sum() / (len(errors) - 1))) if len(errors) > 1 else mean


def estimate_sizes(sample: Sample, job: WriteJob, settings: bytes) -> SizeEstimate | None:
    """Encode the sample, or find the estimate that OUTPUT already has from the same one.

    So a build that goes on plans what it planned before, though an image could not be read meanwhile, and finds a finished
    dataset up to date without encoding anything.

    Args:
        sample: Of all references.
        job: How records are made, vocabularies included.
        settings: What decides the shards' bytes besides the references.

    Returns:
        None where there is nothing to estimate from: no image of the sample is stored.
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
    """The bytes that each row takes in a shard, 0 for a reject: shape [rows], float64."""
    made = np.zeros(references.num_rows)
    for chunk in make_chunks(references, job):
        np.add.at(made, chunk.rows, chunk.framed.lengths)
    return made
