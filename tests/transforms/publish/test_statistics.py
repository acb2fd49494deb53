"""Statistics of index rows, and their sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from shardwright.transforms.publish.number_sums import merged
from shardwright.transforms.publish.statistics import as_published, describe_rows

SIDE = st.none() | st.integers(1, 9)
COLUMNS = {
    "image_length": (pa.int64(), st.integers(0, 2**31)),
    "width": (pa.int32(), SIDE),
    "height": (pa.int32(), SIDE),
    "label": (pa.int64(), st.none() | st.integers(0, 12)),
    "format": (pa.string(), st.none() | st.sampled_from(["jpeg", "png"])),
}
SCHEMA = pa.schema({name: kind for name, (kind, _) in COLUMNS.items()})
ROW = st.fixed_dictionaries({name: values for name, (_, values) in COLUMNS.items()})
ROWS = st.lists(ROW, max_size=12)


def describe(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return describe_rows(pa.Table.from_pylist(rows, schema=SCHEMA))


def merge_stats(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return as_published(merged(parts))


@given(rows=ROWS)
def test_ranges_and_counts_are_those_of_the_values(rows: list[dict[str, Any]]) -> None:
    stats = describe(rows)
    with_image = [row for row in rows if row["image_length"]]
    for name in COLUMNS:
        of = rows if name in ("label", "format") else with_image
        values = [row[name] for row in of if row[name] is not None]
        if name in ("label", "format"):
            assert stats[f"{name}s"] == {str(value): values.count(value) for value in values}
        elif values:
            extremes = {"min": min(values), "max": max(values)}
            assert stats[name] == {**extremes, "sum": sum(values), "count": len(values)}
        else:
            assert stats.get(name) is None


@given(rows=ROWS, cut=st.integers(0, 12))
def test_parts_merge_to_the_whole(rows: list[dict[str, Any]], cut: int) -> None:
    assert merge_stats([describe(rows[:cut]), describe(rows[cut:])]) == describe(rows)


def test_labels_are_in_the_order_of_their_index() -> None:
    rows = [{"image_length": 1, "label": label} for label in (10, 9, 2, 10)]
    labels = merge_stats([describe(rows[2:]), describe(rows[:2])])["labels"]
    assert list(labels.items()) == [("2", 1), ("9", 1), ("10", 2)]


def test_no_rows_have_no_range() -> None:
    assert merge_stats([]) == {"labels": {}, "formats": {}}


def test_rejected_labels_are_counted_if_there_are_any() -> None:
    rows = pa.Table.from_pylist([], schema=SCHEMA)
    labels = pa.array([10, 2, None, 10], pa.int64())
    parts = [describe_rows(rows, {"exif": 1}, part) for part in (labels, labels[:1], labels[2:3])]
    assert "rejected_labels" not in parts[2]
    whole = merge_stats(parts)
    assert list(whole["rejected_labels"].items()) == [("2", 1), ("10", 3)]
    assert whole["fixes"] == {"exif": 3}
