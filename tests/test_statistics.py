"""Statistics of index rows, and their sums."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from transforms.publishing.statistics import describe_rows, merge_stats

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "image_length": st.integers(0, 2**31),
            "width": st.none() | st.integers(1, 9),
            "height": st.none() | st.integers(1, 9),
            "label": st.none() | st.integers(0, 12),
            "format": st.none() | st.sampled_from(["jpeg", "png"]),
        }
    ),
    max_size=12,
)
SCHEMA = pa.schema(
    {
        "image_length": pa.int64(),
        "width": pa.int32(),
        "height": pa.int32(),
        "label": pa.int64(),
        "format": pa.string(),
    }
)


def describe(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return describe_rows(pa.Table.from_pylist(rows, schema=SCHEMA))


@given(rows=ROWS)
def test_ranges_and_counts_are_those_of_the_values(rows: list[dict[str, Any]]) -> None:
    stats = describe(rows)
    for name in ("image_length", "width", "height"):
        values = [row[name] for row in rows if row[name] is not None]
        expected = (
            {"min": min(values), "max": max(values), "sum": sum(values), "count": len(values)}
            if values
            else None
        )
        assert stats.get(name) == expected
    for name in ("label", "format"):
        values = [row[name] for row in rows if row[name] is not None]
        assert stats[f"{name}s"] == {str(value): values.count(value) for value in set(values)}


@given(rows=ROWS, cut=st.integers(0, 12))
def test_parts_merge_to_the_whole(rows: list[dict[str, Any]], cut: int) -> None:
    assert merge_stats([describe(rows[:cut]), describe(rows[cut:])]) == describe(rows)


def test_labels_are_in_the_order_of_their_index() -> None:
    rows = [{"image_length": 1, "label": label} for label in (10, 9, 2, 10)]
    assert list(merge_stats([describe(rows[2:]), describe(rows[:2])])["labels"].items()) == [
        ("2", 1),
        ("9", 1),
        ("10", 2),
    ]


def test_nothing_has_no_range() -> None:
    assert merge_stats([]) == {"labels": {}, "formats": {}}
