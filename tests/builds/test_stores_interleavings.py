"""Appends, compactions, collections, erasures and readers at the same time, in a store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.builds.test_interleavings import NUM_LONG, check_erasure, check_interleaving
from tests.support.buckets import Bucket, on_s3_and_gcs
from tests.support.random_tests import is_long

pytestmark = pytest.mark.timeout(1800)


@on_s3_and_gcs
def test_no_commit_is_lost(bucket: Bucket, tmp_path: Path, rng: np.random.Generator) -> None:
    for number in range(NUM_LONG if is_long() else 2):
        check_interleaving(bucket.folder(f"{number}/out"), tmp_path / str(number), rng)


@on_s3_and_gcs
@pytest.mark.long
def test_an_erasure_beside_others(bucket: Bucket, tmp_path: Path, rng: np.random.Generator) -> None:
    for number in range(20):
        check_erasure(bucket.folder(f"{number}/out"), tmp_path / str(number), rng)
