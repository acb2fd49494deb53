"""Read the statistics of signals and channels in a manifest: over all splits, and their drift."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardwright.errors import UsageError
from shardwright.format.manifest import Manifest
from shardwright.images.normalize import MeanStd
from shardwright.inspect.drift import histogram_drift

ALL = "all"
_ADVICE = "build it with --signals, or again with this release"


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
            if each["basis"] != ALL:
                return {}
            if "histogram" in each and not _add(found, name, each["histogram"]):
                return {}
    return found


def _add(found: dict[str, dict[str, list[Any]]], name: str, more: Mapping[str, list[Any]]) -> bool:
    """Add a histogram; return False if its edges are others."""
    there = found.setdefault(name, {"edges": more["edges"], "counts": [0] * len(more["counts"])})
    if there["edges"] != more["edges"]:
        return False
    pairs = zip(there["counts"], more["counts"], strict=True)
    there["counts"] = [one + other for one, other in pairs]
    return True


def mean_and_deviation(manifest: Manifest, split: str) -> MeanStd:
    """Return mean and standard deviation of each channel of a split's images, 0 to 1.

    Raises:
        UsageError: The split is unknown, or its statistics have no channels.
    """
    if split not in manifest.splits:
        raise UsageError(f"unknown split {split!r}; the splits are {', '.join(manifest.splits)}")
    found = manifest.splits[split].stats.get("channels")
    if manifest.schema.image is None:
        raise UsageError(f"the dataset {manifest.name!r} has no images, so it has no mean_std()")
    if not found:
        raise UsageError(
            f"the statistics of split {split!r} have no mean and deviation of channels: {_ADVICE}"
        )
    return MeanStd(tuple(found["mean"]), tuple(found["std"]))
