"""Sampling while batches pass: rows at equal distances, whatever the batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from shardwright.pipelines.local.batches import MOST_SAMPLED, EvenSample
from tests.support.random_tests import examples


@given(st.lists(st.integers(0, 3000), max_size=8))
@examples(50)
def test_rows_at_equal_distances(lengths: list[int]) -> None:
    numbers = np.arange(sum(lengths))
    pieces = np.split(numbers, np.cumsum(lengths)[:-1]) if lengths else []
    batches = [pa.record_batch({"n": piece}) for piece in pieces]
    sample = EvenSample()
    assert list(sample.watch(batches)) == batches
    rows = sample.rows()
    if not sum(lengths):
        assert rows is None
        return
    assert rows is not None
    found = rows.column("n").to_numpy()
    step = 1 if len(found) == len(numbers) else int(found[1])
    assert found.tolist() == numbers[::step].tolist()
    assert len(found) <= 2 * MOST_SAMPLED
    assert step == 1 or len(found) >= MOST_SAMPLED
