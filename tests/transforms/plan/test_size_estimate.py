"""Estimates of record sizes: the better of two models, and shards that keep to their cap."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from shardwright.format.json_files import typed
from shardwright.transforms.plan.layouts import (
    BucketSizes,
    count_bucket,
    draft_layout,
    lay_out,
    place_bucket,
)
from shardwright.transforms.plan.packing import ShardPolicy
from shardwright.transforms.plan.size_estimate import SizeEstimate


def estimate_of(
    made: np.ndarray, known: np.ndarray | None = None, num_records: int | None = None
) -> SizeEstimate:
    known = np.ones(len(made)) if known is None else known
    return SizeEstimate.of(known, made, num_records=num_records or len(made), sample="s")


def test_the_model_with_the_smaller_error_is_used() -> None:
    """A ratio where records shrink in proportion, the mean where all have about one size."""
    known = np.array([1000.0, 2000, 4000, 8000])
    shrunk = estimate_of(known * 0.25, known)
    assert (shrunk.ratio, shrunk.total(10, 100_000)) == (pytest.approx(0.25), 25_000)
    alike = estimate_of(np.array([500.0, 501, 499, 500]), known)
    assert (alike.ratio, alike.total(10, 100_000)) == (None, 5_000)


def test_json_round_trip() -> None:
    estimate = estimate_of(np.array([1.0, 2, 4]), np.array([2.0, 4, 8]), 10)
    assert typed(json.loads(json.dumps(estimate.to_json())), SizeEstimate) == estimate


@pytest.mark.parametrize(
    ("made", "num_records", "num_bytes", "limit", "shards"),
    [
        # Records of one size need no margin.
        (np.full(100, 1000.0), 10_000, 10_000_000, 100_000, 100),
        (np.full(100, 1000.0), 10_000, 10_000_000, 99_999, math.ceil(10_000 / 99)),
        # Neither does a split in one shard that was sampled completely.
        (np.array([10.0, 1000, 500]), 3, 1510, 1510, 1),
        (np.array([10.0, 1000, 500]), 3, 1510, 1509, 3),
        # With a cap below one record, each has a shard.
        (np.array([1000.0, 1200]), 50, 55_000, 1, 50),
        (np.array([1000.0, 1200]), 50, 55_000, 100, 50),
    ],
)
def test_number_of_shards(
    made: np.ndarray, num_records: int, num_bytes: int, limit: int, shards: int
) -> None:
    estimate = estimate_of(made, num_records=num_records)
    assert estimate.shards_under(limit, num_records=num_records, num_bytes=num_bytes) == shards


@pytest.mark.parametrize(
    ("per_shard", "noise", "most_margin"), [(20, 0.3, 0.7), (100, 0.3, 0.35), (1000, 0.1, 0.1)]
)
def test_the_cap_holds_to_one_record_for_cuts_by_bytes(
    per_shard: int, noise: float, most_margin: float
) -> None:
    """Sizes have a heavy tail, and re-encoded ones follow them with a lognormal error."""
    rng, over, margins = np.random.default_rng(7), 0, []
    for _ in range(30):
        known = rng.lognormal(math.log(40_000), 1, 20_000).astype(np.int64)
        made = known * rng.lognormal(math.log(0.25), noise, len(known))
        limit = int(per_shard * made.mean())
        estimate = estimate_of(made[:256], known[:256], len(known))
        assert estimate.ratio is not None
        whole = BucketSizes(0, {"train": known}, known[:9])
        draft = draft_layout([count_bucket(whole)], ShardPolicy(num_bytes=limit), estimate)
        cuts = lay_out(draft, [place_bucket(whole, draft)]).cuts["train"]
        written = np.add.reduceat(made, cuts.starts[:-1])
        over += (written > limit + np.maximum.reduceat(made, cuts.starts[:-1])).any()
        margins.append(1 - np.median(written) / limit)
    assert over <= 1
    assert np.mean(margins) < most_margin


@pytest.mark.parametrize(
    ("per_shard", "spread", "most_margin"),
    [(20, 0.1, 0.2), (20, 0.5, 0.65), (100, 0.5, 0.35), (1000, 0.1, 0.06), (1000, 0.5, 0.2),
     (1000, 1.0, 0.35)],
)  # fmt: skip
def test_the_cap_holds(per_shard: int, spread: float, most_margin: float) -> None:
    """In 100 datasets of 20,000 records, at most two have a shard above the cap.

    Sizes are like those of photos. A cap of 20 records could be broken a thousand times in each.
    """
    rng, limit, over, margins = np.random.default_rng(7), per_shard * 10_000, 0, []
    for _ in range(100):
        sizes = rng.lognormal(math.log(10_000) - spread**2 / 2, spread, 20_000)
        estimate = estimate_of(sizes[:256], num_records=len(sizes))
        total = estimate.total(len(sizes), 0)
        shards = ShardPolicy(num_bytes=limit).cut(len(sizes), total, estimate)
        written = np.add.reduceat(sizes, shards.starts[:-1])
        over += written.max() > limit
        margins.append(1 - written.mean() / limit)
    assert over <= 2
    assert np.mean(margins) < most_margin
