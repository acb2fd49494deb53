"""Whole numbers near exact shares: every record goes somewhere, totals are kept, no cell is off by more than one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.splitting.apportion import apportion, whole_parts


@pytest.mark.parametrize(
    ("exact", "parts"),
    [
        ([0.0, 0.0], [0, 0]),
        ([24.0, 3.0, 3.0], [24, 3, 3]),
        ([0.1 * 30, 0.9 * 30], [3, 27]),  # 0.1 * 30 is 3.0000000000000004
        ([1.5, 1.5], [2, 1]),
        ([5.6, 0.7, 0.7], [5, 1, 1]),
        ([1 / 3, 1 / 3, 1 / 3], [1, 0, 0]),
    ],
)
def test_whole_parts(exact: list[float], parts: list[int]) -> None:
    assert whole_parts(np.array(exact)).tolist() == parts


@pytest.mark.parametrize(
    ("counts", "totals", "cells"),
    [
        ([10, 10], [16, 2, 2], [[8, 1, 1], [8, 1, 1]]),
        ([5, 5], [8, 2], [[4, 1], [4, 1]]),
        ([1, 1, 1, 1], [2, 2], [[1, 0], [0, 1], [1, 0], [0, 1]]),
        ([2, 2], [2, 1, 1], [[1, 1, 0], [1, 0, 1]]),
        ([7], [5, 2], [[5, 2]]),
        ([0, 3], [3], [[0], [3]]),
    ],
)
def test_cells(counts: list[int], totals: list[int], cells: list[list[int]]) -> None:
    assert apportion(np.array(counts), np.array(totals)).tolist() == cells


def test_nothing() -> None:
    assert apportion(np.zeros(0, np.int64), np.array([0, 0])).shape == (0, 2)
    assert apportion(np.array([0]), np.array([0, 0])).tolist() == [[0, 0]]


@settings(max_examples=300, deadline=None)
@given(
    counts=st.lists(
        st.one_of(st.integers(0, 12), st.integers(0, 100_000)), min_size=1, max_size=60
    ),
    weights=st.lists(st.integers(1, 1000), min_size=1, max_size=5),
)
def test_every_class_and_every_split_comes_out_whole(counts: list[int], weights: list[int]) -> None:
    classes = np.array(counts)
    totals = whole_parts(classes.sum() * np.array(weights) / sum(weights))
    cells = apportion(classes, totals)
    assert cells.sum(axis=1).tolist() == counts
    assert cells.sum(axis=0).tolist() == totals.tolist()
    assert cells.min() >= 0
    exact = classes[:, None] * (totals / max(totals.sum(), 1))
    assert np.abs(cells - exact).max() <= 1 + 1e-6


@settings(max_examples=200, deadline=None)
@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=30), data=st.data())
def test_counts_are_kept_exactly(counts: list[int], data: st.DataObject) -> None:
    num_records = sum(counts)
    test = data.draw(st.integers(1, num_records))
    validation = data.draw(st.integers(0, num_records - test))
    totals = np.array([test, validation, num_records - test - validation])
    cells = apportion(np.array(counts), totals)
    assert cells.sum(axis=0).tolist() == totals.tolist()
    assert cells.sum(axis=1).tolist() == counts
    assert cells.min() >= 0
    assert np.abs(cells - np.array(counts)[:, None] * totals / num_records).max() <= 1 + 1e-6
