"""Measure how far two distributions of one property differ, from 0 (equal) to 1 (disjoint)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardwright.format.manifest import Manifest


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


def histogram_drift(old: Sequence[int], new: Sequence[int]) -> float | None:
    """Return the Kolmogorov-Smirnov distance of two histograms with equal edges.

    It is the largest difference, at any edge, between the shares of values below it; None if a
    histogram is empty. That of the values themselves is at least as large.
    """
    if not (sum(old) and sum(new)):
        return None
    before, after = (np.cumsum(counts) / sum(counts) for counts in (old, new))
    return float(np.abs(before - after).max())


def signal_drift(old: Manifest, new: Manifest) -> dict[str, float | None]:
    """Return the drift of each signal that both datasets have of all images, with equal edges.

    A sample is left out: the drift of two samples of one dataset may be above any useful limit.
    """
    before, after = _histograms(old), _histograms(new)
    return {
        name: histogram_drift(before[name]["counts"], after[name]["counts"])
        for name in before
        if name in after and before[name]["edges"] == after[name]["edges"]
    }


def _histograms(manifest: Manifest) -> dict[str, dict[str, list[Any]]]:
    """Return the histogram of each signal over all splits, {} unless all images are measured."""
    found: dict[str, dict[str, list[Any]]] = {}
    for split in manifest.splits.values():
        for name, each in split.stats.get("signals", {}).items():
            if each["basis"] != "all":
                return {}
            if (more := each.get("histogram")) is None:
                continue
            zeros = [0] * len(more["counts"])
            there = found.setdefault(name, {"edges": more["edges"], "counts": zeros})
            if there["edges"] != more["edges"]:
                return {}
            pairs = zip(there["counts"], more["counts"], strict=True)
            there["counts"] = [one + other for one, other in pairs]
    return found
