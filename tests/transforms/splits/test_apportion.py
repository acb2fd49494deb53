"""Whole numbers near exact shares: totals are kept, and no cell is off by more than one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.transforms.splits.split_rules import apportion, whole_parts


@pytest.mark.parametrize(
    ("exact", "parts"),
    [([0.0, 0.0], [0, 0]), ([24.0, 3.0, 3.0], [24, 3, 3]), ([1.5, 1.5], [2, 1]),
     ([5.6, 0.7, 0.7], [5, 1, 1]), ([1 / 3, 1 / 3, 1 / 3], [1, 0, 0]),
     ([0.1 * 30, 0.9 * 30], [3, 27])],  # 0.1 * 30 is 3.0000000000000004
)  # fmt: skip
def test_whole_parts(exact: list[float], parts: list[int]) -> None:
    assert whole_parts(np.array(exact)).tolist() == parts


@pytest.mark.parametrize(("counts", "totals", "cells"), [
    ([10, 10], [16, 2, 2], [[8, 1, 1], [8, 1, 1]]),
    ([5, 5], [8, 2], [[4, 1], [4, 1]]),
    ([1, 1, 1, 1], [2, 2], [[1, 0], [0, 1], [1, 0], [0, 1]]),
    ([2, 2], [2, 1, 1], [[1, 1, 0], [1, 0, 1]]),
    ([7], [5, 2], [[5, 2]]),
    ([0, 3], [3], [[0], [3]]),
    ([0], [0, 0], [[0, 0]]),
])  # fmt: skip
def test_cells(counts: list[int], totals: list[int], cells: list[list[int]]) -> None:
    assert apportion(np.array(counts), np.array(totals)).tolist() == cells


def test_no_classes() -> None:
    assert apportion(np.zeros(0, np.int64), np.array([0, 0])).shape == (0, 2)


COUNT = st.integers(0, 12) | st.integers(0, 100_000)
PARTS = st.integers(0, 40) | st.integers(0, 1000)


@given(
    counts=st.lists(COUNT, min_size=1, max_size=60),
    weights=st.lists(PARTS, min_size=1, max_size=5).filter(any),
)
def test_every_class_and_every_split_is_complete(counts: list[int], weights: list[int]) -> None:
    classes = np.array(counts)
    totals = whole_parts(classes.sum() * np.array(weights) / sum(weights))
    cells = apportion(classes, totals)
    assert cells.sum(axis=1).tolist() == counts
    assert cells.sum(axis=0).tolist() == totals.tolist()
    assert cells.min() >= 0
    exact = classes[:, None] * (totals / max(totals.sum(), 1))
    assert np.abs(cells - exact).max() <= 1 + 1e-6
