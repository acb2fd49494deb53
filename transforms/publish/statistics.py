"""Compute the statistics of a shard's records from its index, and merge them over shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_RANGES = ("image_length", "width", "height")
_COUNTS = ("label", "format")


def describe_rows(rows: pa.Table, fixes: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return ranges of lengths (bytes) and sides (pixels), and counts of labels, formats, fixes."""
    stats: dict[str, Any] = {}
    for name in _RANGES:
        column = rows[name].drop_null()
        if len(column):
            ends = pc.min_max(column).as_py()
            stats[name] = {
                "min": ends["min"],
                "max": ends["max"],
                "sum": pc.sum(column).as_py(),
                "count": len(column),
            }
    for name in _COUNTS:
        counted = pc.value_counts(rows[name].drop_null()).to_pylist()
        stats[f"{name}s"] = {
            str(item["values"]): item["counts"]
            for item in sorted(counted, key=lambda item: item["values"])
        }
    if fixes:
        stats["fixes"] = dict(sorted(fixes.items()))
    return stats


def merge_stats(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the statistics of several shards together."""
    merged: dict[str, Any] = {}
    counts: dict[str, Counter[str]] = {f"{name}s": Counter() for name in _COUNTS}
    fixes: Counter[str] = Counter()
    for part in parts:
        for name in _RANGES:
            if name in part:
                merged[name] = _merge_range(merged.get(name), part[name])
        for name, counter in counts.items():
            counter.update(part.get(name, {}))
        fixes.update(part.get("fixes", {}))
    for name, counter in counts.items():
        merged[name] = dict(sorted(counter.items(), key=lambda item: (len(item[0]), item[0])))
    return merged | ({"fixes": dict(sorted(fixes.items()))} if fixes else {})


def _merge_range(left: Mapping[str, int] | None, right: Mapping[str, int]) -> dict[str, int]:
    if left is None:  # in this order, which a sidecar does not keep
        return {key: right[key] for key in ("min", "max", "sum", "count")}
    return {
        "min": min(left["min"], right["min"]),
        "max": max(left["max"], right["max"]),
        "sum": left["sum"] + right["sum"],
        "count": left["count"] + right["count"],
    }
