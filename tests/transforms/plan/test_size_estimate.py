"""Estimates of record sizes: the better of two models."""

from __future__ import annotations

import json

import numpy as np
import pytest

from shardwright.format.json_files import typed
from shardwright.transforms.plan.packing import SizeEstimate


def test_the_model_with_the_smaller_error_is_used() -> None:
    """A ratio where records shrink in proportion, the mean where all have about one size."""
    known = np.array([1000.0, 2000, 4000, 8000])
    shrunk = SizeEstimate.of(known, known * 0.25, sample="s")
    assert (shrunk.ratio, shrunk.total(10, 100_000)) == (pytest.approx(0.25), 25_000)
    alike = SizeEstimate.of(known, np.array([500.0, 501, 499, 500]), sample="s")
    assert (alike.ratio, alike.total(10, 100_000)) == (None, 5_000)
    one = SizeEstimate.of(known[:1], known[1:2], sample="s")
    assert (one.ratio, one.mean, one.num_sampled) == (None, 2000, 1)


def test_json_round_trip() -> None:
    estimate = SizeEstimate.of(np.array([2.0, 4, 8]), np.array([1.0, 2, 4]), sample="s")
    assert typed(json.loads(json.dumps(estimate.to_json())), SizeEstimate) == estimate
