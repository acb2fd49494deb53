"""Compute the statistics of a shard's records from its index, and merge them over shards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.format.manifest import Manifest
from shardwright.format.stats_keys import (
    CHANNELS,
    FEATURES,
    FIXES,
    LEAKS,
    NEAR_KEYS,
    SIGNALS,
)
from shardwright.transforms.publish.number_sums import published
from shardwright.transforms.rejects import REJECTED_LABELS

RANGES = ("image_length", "width", "height")


def describe_rows(
    rows: pa.Table, fixes: Mapping[str, int] | None = None, rejected_labels: pa.Array | None = None
) -> dict[str, Any]:
    """Return ranges of lengths (bytes) and sides (pixels), and counts of labels, formats, fixes.

    Args:
        rows: Rows of the index.
        fixes: Number of images by fix.
        rejected_labels: The label index of each reject, or null.
    """
    stats: dict[str, Any] = {}
    # A record without an image would make the least length 0.
    images = rows.filter(pc.greater(rows["image_length"], 0))
    for name in RANGES:
        column = images[name].drop_null()
        if len(column):
            ends = pc.min_max(column).as_py()
            stats[name] = {
                "min": ends["min"],
                "max": ends["max"],
                "sum": pc.sum(column).as_py(),
                "count": len(column),
            }
    stats |= {"labels": _count_values(rows["label"]), "formats": _count_values(rows["format"])}
    rejected = {} if rejected_labels is None else _count_values(rejected_labels)
    found = {FIXES: dict(fixes or {}), REJECTED_LABELS: rejected}
    return stats | {name: counts for name, counts in found.items() if counts}


def _count_values(column: pa.Array | pa.ChunkedArray) -> dict[str, int]:
    counted = pc.value_counts(column.drop_null()).to_pylist()
    return {str(item["values"]): item["counts"] for item in counted}


def with_stats(manifest: Manifest, found: Mapping[str, Mapping[str, Any]]) -> Manifest:
    """Return the manifest with more statistics, by split."""
    splits = {
        name: replace(split, stats={**split.stats, **found.get(name, {})})
        for name, split in manifest.splits.items()
    }
    return replace(manifest, splits=splits)


def without_found(stats: Mapping[str, Any]) -> dict[str, Any]:
    """Return a split's statistics without those that companions state."""

    def is_found(key: str) -> bool:
        if key not in (SIGNALS, CHANNELS):
            return key in (LEAKS, *NEAR_KEYS)
        each = stats[key] if key == CHANNELS else next(iter(stats[key].values()), {})
        return str(each.get("basis", "")).startswith("sample")

    return {key: value for key, value in stats.items() if not is_found(key)}


def as_published(total: Mapping[str, Any]) -> dict[str, Any]:
    """Return statistics as published, of a sum of the parts of `describe_rows`."""
    total = {"labels": {}, "formats": {}, **total}
    # Sorted, because the order of shards, and of keys in a sidecar, is not that of the rows.
    stats = {
        name: dict(sorted(total[name].items(), key=lambda item: (len(item[0]), item[0])))
        for name in (*RANGES, "labels", "formats", FIXES, REJECTED_LABELS)
        if name in total
    }
    features = {
        name: {"of": numbers["of"], **published(numbers)}
        for name, numbers in sorted(total.get(FEATURES, {}).items())
    }
    return {**stats, FEATURES: features} if features else stats
