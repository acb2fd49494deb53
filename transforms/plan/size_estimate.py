"""Estimates of the sizes of re-encoded records."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from shardwright.format.json_files import Number


@dataclass(frozen=True, slots=True)
class SizeEstimate:
    """An estimate of record sizes in bytes, frames included.

    Attributes:
        sample: Hash of the sampled references and of the settings.
        num_sampled: Number of records made.
        mean: Mean size in the sample.
        ratio: Bytes written per byte known to the plan; None if the mean predicts sizes better.
    """

    sample: str
    num_sampled: Annotated[int, Meta(ge=1)]
    mean: Number
    ratio: Number | None

    @classmethod
    def of(cls, known: np.ndarray, made: np.ndarray, *, sample: str) -> SizeEstimate:
        """Compute the estimate from a sample.

        Args:
            known: Bytes of each record known to the plan, shape [n], n > 0.
            made: Bytes of each record as written, shape [n].
            sample: Hash of the sample.
        """
        mean, ratio = float(made.mean()), float(made.sum() / max(known.sum(), 1))
        # After a resize all records are about as large; with re-encoding alone, large files stay
        # large.
        by_ratio = ((made - ratio * known) ** 2).sum() < ((made - mean) ** 2).sum()
        return cls(sample, len(made), mean, ratio if by_ratio else None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def total(self, num_records: int, known_bytes: int) -> int:
        """Return the estimated bytes of records of which the plan knows `known_bytes`."""
        return round(self.mean * num_records if self.ratio is None else self.ratio * known_bytes)
