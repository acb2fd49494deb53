"""Appends, compactions, collections, erasures and readers at the same time, in a store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.builds.test_interleavings import (
    check_collections_within,
    check_erasure,
    check_interleaving,
)
from tests.support.buckets import Bucket, on_s3_and_gcs


@pytest.mark.long_but_first
@on_s3_and_gcs
@pytest.mark.weight(15)
def test_no_commit_is_lost(bucket: Bucket, tmp_path: Path, rng: np.random.Generator) -> None:
    check_interleaving(bucket.folder(f"{tmp_path.name}/out"), tmp_path, rng)


@on_s3_and_gcs
@pytest.mark.long
@pytest.mark.weight(10)
def test_an_erasure_beside_others(bucket: Bucket, tmp_path: Path, rng: np.random.Generator) -> None:
    check_erasure(bucket.folder(f"{tmp_path.name}/out"), tmp_path, rng)


@pytest.mark.long
@on_s3_and_gcs
def test_collections_within_an_append_and_a_compaction(bucket: Bucket, tmp_path: Path) -> None:
    check_collections_within(bucket.folder(f"{tmp_path.name}/out"), tmp_path, share=0.1)
