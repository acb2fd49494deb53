"""Estimates of the sizes of re-encoded records, and the number of shards that follows from one."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from shardwright.format.json_files import Number

_RISK = 0.001  # probability that the mean, or the largest shard, exceeds its margin


@dataclass(frozen=True, slots=True)
class SizeEstimate:
    """An estimate of record sizes in bytes, frames included.

    Attributes:
        sample: Hash of the sampled references and of the settings.
        num_sampled: Number of records made.
        num_records: Number of records that they were drawn from.
        mean: Mean size in the sample.
        ratio: Bytes written per byte known to the plan; None if the mean predicts sizes better.
        error: Standard deviation of one record around the prediction by mean or ratio.
        skewness: Skewness of these deviations, at least 0. Above 0 the largest are further out than
            the error suggests.
    """

    sample: str
    num_sampled: Annotated[int, Meta(ge=1)]
    num_records: Annotated[int, Meta(ge=1)]
    mean: Number
    ratio: Number | None
    error: Number
    skewness: Number

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
        mean, ratio = float(made.mean()), float(made.sum() / max(known.sum(), 1))
        off_mean, off_ratio = made - mean, made - ratio * known
        # After a resize all records are about as large; with re-encoding alone, large files stay
        # large.
        by_ratio = _deviation(off_ratio, mean) < _deviation(off_mean, mean)
        off = off_ratio if by_ratio else off_mean
        error = _deviation(off, mean)
        skewness = max(float((off**3).mean()) / error**3, 0.0) if error else 0.0
        return cls(
            sample, len(made), num_records, mean, ratio if by_ratio else None, error, skewness
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def total(self, num_records: int, known_bytes: int) -> int:
        """Return the estimated bytes of records of which the plan knows `known_bytes`."""
        return round(self.mean * num_records if self.ratio is None else self.ratio * known_bytes)

    def shards_under(self, limit: int, *, num_records: int, num_bytes: int) -> int:
        """Return the fewest shards, equal in their prediction, that should not exceed `limit`.

        Args:
            limit: Largest shard in bytes.
            num_records: Records of the split.
            num_bytes: Bytes of the split, from `total`.
        """
        shards = max(math.ceil(num_bytes / limit), 1)
        # No closed form: the margin itself depends on the number of shards. Steps of 1/256 keep the
        # search short, at the cost of at most 0.4 % more shards.
        while (
            shards < num_records
            and self.largest_shard(shards, num_records=num_records, num_bytes=num_bytes) > limit
        ):
            shards += max(shards // 256, 1)
        return min(shards, num_records)

    def largest_shard(self, shards: int, *, num_records: int, num_bytes: int) -> float:
        """Return the bytes that the largest shard should not exceed.

        Two things are uncertain: the mean or ratio, which all shards share, and the deviations of a
        shard's own records. Both vanish if all records are sampled and one shard has all records.
        The largest of many sums of few skewed values is further out than a normal one, by the first
        term of the Cornish-Fisher expansion (1938).
        """
        size = math.ceil(num_records / shards)
        unseen = max(1 - self.num_sampled / self.num_records, 0)
        of_mean = (
            NormalDist().inv_cdf(1 - _RISK) * self.error * math.sqrt(unseen / self.num_sampled)
        )
        quantile = NormalDist().inv_cdf(1 - _RISK / shards)
        quantile += (quantile**2 - 1) / 6 * self.skewness / math.sqrt(size)
        # Without replacement: a shard that has all records of its split cannot deviate from them.
        of_shard = quantile * self.error * math.sqrt(size * (1 - size / num_records))
        return size * (num_bytes / num_records + of_mean) + of_shard


def _deviation(errors: np.ndarray, mean: float) -> float:
    """Return the standard deviation of one record; a single record counts as fully uncertain."""
    return float(np.sqrt((errors**2).sum() / (len(errors) - 1))) if len(errors) > 1 else mean
