"""Measure how far two distributions of one property differ, from 0 (equal) to 1 (disjoint)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


def share_drift(old: Mapping[str, int], new: Mapping[str, int]) -> float | None:
    """Return the total variation distance of two distributions over classes, None without records.

    It is the share of records that would have to change class to make the shares equal.
    """
    before, after = sum(old.values()), sum(new.values())
    if not (before and after):
        return None
    changes = (abs(old.get(name, 0) / before - new.get(name, 0) / after) for name in {*old, *new})
    return sum(changes) / 2


def number_drift(old: NDArray[np.int64], new: NDArray[np.int64]) -> float | None:
    """Return the Kolmogorov-Smirnov distance of two samples, None if one is empty.

    It is the largest difference, at any value, between the shares of records up to that value.
    """
    if not (len(old) and len(new)):
        return None
    old, new = np.sort(old), np.sort(new)
    values = np.unique(np.concatenate([old, new]))
    before = np.searchsorted(old, values, "right") / len(old)
    after = np.searchsorted(new, values, "right") / len(new)
    return float(np.abs(before - after).max())
