"""Compute the statistics of a shard's records from its index, and merge them over shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from transforms.rejects import REJECTED_LABELS

_RANGES = ("image_length", "width", "height")
_COUNTS = ("label", "format")
_ALWAYS = tuple(f"{name}s" for name in _COUNTS)
_ONLY_IF_ANY = ("fixes", REJECTED_LABELS)


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
    images = rows.filter(pc.greater(rows["image_length"], 0))
    for name in _RANGES:
        column = images[name].drop_null()
        if len(column):
            ends = pc.min_max(column).as_py()
            stats[name] = {
                "min": ends["min"],
                "max": ends["max"],
                "sum": pc.sum(column).as_py(),
                "count": len(column),
            }
    for name in _COUNTS:
        stats[f"{name}s"] = _count_values(rows[name])
    rejected = {} if rejected_labels is None else _count_values(rejected_labels)
    found = {"fixes": dict(sorted((fixes or {}).items())), REJECTED_LABELS: rejected}
    return stats | {name: counts for name, counts in found.items() if counts}


def _count_values(column: pa.Array | pa.ChunkedArray) -> dict[str, int]:
    counted = pc.value_counts(column.drop_null()).to_pylist()
    counted.sort(key=lambda item: item["values"])
    return {str(item["values"]): item["counts"] for item in counted}


class StatsSum:
    """The statistics of several shards together; its size does not grow with their number."""

    def __init__(self) -> None:
        self._ranges: dict[str, dict[str, int]] = {}
        self._counts: dict[str, Counter[str]] = {
            name: Counter() for name in (*_ALWAYS, *_ONLY_IF_ANY)
        }

    def add(self, part: Mapping[str, Any]) -> None:
        """Add the statistics of a shard, or of another sum."""
        for name in _RANGES:
            if name in part:
                self._ranges[name] = _merge_range(self._ranges.get(name), part[name])
        for name, counter in self._counts.items():
            counter.update(part.get(name, {}))

    def to_json(self) -> dict[str, Any]:
        """Return them as `describe_rows` does."""
        counts = {
            name: dict(sorted(counter.items(), key=lambda item: (len(item[0]), item[0])))
            for name, counter in self._counts.items()
            if counter or name in _ALWAYS
        }
        return {**self._ranges, **counts}


def _merge_range(left: Mapping[str, int] | None, right: Mapping[str, int]) -> dict[str, int]:
    if left is None:  # in this order, which a sidecar does not keep
        return {key: right[key] for key in ("min", "max", "sum", "count")}
    return {
        "min": min(left["min"], right["min"]),
        "max": max(left["max"], right["max"]),
        "sum": left["sum"] + right["sum"],
        "count": left["count"] + right["count"],
    }
