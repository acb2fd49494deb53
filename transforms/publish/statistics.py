"""Compute the statistics of a shard's records from its index, and merge them over shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.transforms.publish.feature_statistics import FEATURES
from shardwright.transforms.publish.number_sums import NumberSum
from shardwright.transforms.publish.picture_statistics import PictureSum
from shardwright.transforms.rejects import REJECTED_LABELS

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
        self._features: dict[str, tuple[str, NumberSum]] = {}
        self._pictures = PictureSum()

    def add(self, part: Mapping[str, Any]) -> None:
        """Add the statistics of a shard."""
        for name in _RANGES:
            if name in part:
                self._ranges[name] = _merge_range(self._ranges.get(name), part[name])
        for name, counter in self._counts.items():
            counter.update(part.get(name, {}))
        for name, numbers in part.get(FEATURES, {}).items():
            self._feature(name, numbers["of"]).add(numbers)
        self._pictures.add(part)

    def add_all(self, other: StatsSum) -> None:
        """Add another sum."""
        for name, found in other._ranges.items():
            self._ranges[name] = _merge_range(self._ranges.get(name), found)
        for name, counter in self._counts.items():
            counter.update(other._counts[name])
        for name, (of, numbers) in other._features.items():
            self._feature(name, of).add_all(numbers)
        self._pictures.add_all(other._pictures)

    def _feature(self, name: str, of: str) -> NumberSum:
        return self._features.setdefault(name, (of, NumberSum()))[1]

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as published."""
        counts = {
            name: dict(sorted(counter.items(), key=lambda item: (len(item[0]), item[0])))
            for name, counter in self._counts.items()
            if counter or name in _ALWAYS
        }
        features = {
            name: {"of": of, **numbers.to_json()}
            for name, (of, numbers) in sorted(self._features.items())
        }
        told = {FEATURES: features} if features else {}
        return {**self._ranges, **counts, **told, **self._pictures.to_json()}


def _merge_range(left: Mapping[str, int] | None, right: Mapping[str, int]) -> dict[str, int]:
    if left is None:  # in this order, which a sidecar does not keep
        return {key: right[key] for key in ("min", "max", "sum", "count")}
    return {
        "min": min(left["min"], right["min"]),
        "max": max(left["max"], right["max"]),
        "sum": left["sum"] + right["sum"],
        "count": left["count"] + right["count"],
    }
