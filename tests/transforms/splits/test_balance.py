"""Deviations of the class fractions of each split from those of the whole."""

from __future__ import annotations

import pytest

from shardwright.transforms.splits.balance import label_deviations

Counts = dict[str, dict[str, int]]


def test_deviations() -> None:
    found = label_deviations({"train": {"0": 8, "1": 8}, "test": {"0": 3, "1": 1}})
    assert found["train"] == {"mean": 0.05, "max": 0.05, "label": 0}  # 8/16 against 11/20 and 9/20
    assert found["test"] == {"mean": 0.2, "max": 0.2, "label": 0}  # 3/4 and 1/4


def test_a_class_missing_in_a_split() -> None:
    found = label_deviations({"train": {"0": 5, "2": 5}, "test": {"10": 10}})
    assert found["test"] == {"mean": pytest.approx(1 / 3, abs=1e-6), "max": 0.5, "label": 10}


@pytest.mark.parametrize(("counts", "splits"), [
    ({}, []),
    ({"train": {}}, []),
    ({"train": {}, "test": {}}, []),
    ({"train": {"0": 5}, "test": {}}, ["train"]),
])  # fmt: skip
def test_empty_splits_are_left_out(counts: Counts, splits: list[str]) -> None:
    assert list(label_deviations(counts)) == splits
