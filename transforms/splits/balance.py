"""Compare the class fractions of each split with those of the whole dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any


def label_deviations(counts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, Any]]:
    """Return the mean and largest deviation of class fractions by split, with the latter's class.

    Args:
        counts: Number of records by split and label.
    """
    whole: Counter[str] = Counter()
    for labels in counts.values():
        whole.update(labels)
    return {
        split: _deviation(labels, whole)
        for split, labels in counts.items()
        if whole.total() and sum(labels.values())
    }


def _deviation(labels: Mapping[str, int], whole: Mapping[str, int]) -> dict[str, Any]:
    size, all_records = sum(labels.values()), sum(whole.values())
    off = {
        int(label): round(abs(labels.get(label, 0) / size - number / all_records), 6)
        for label, number in whole.items()
    }
    worst = max(sorted(off), key=off.__getitem__)
    return {"mean": round(sum(off.values()) / len(off), 6), "max": off[worst], "label": worst}
