"""Charts: every value is in one bin, whatever the values are."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.report.charts import density, heatmap, histogram, histogram_of, rank_curve
from shardwright.report.markup import bar
from shardwright.sizes import show_number
from tests.support.random_tests import examples

TITLES = re.compile(r"<title>[^<]*: ([\d,]+)</title>")


def counts_in(svg: str) -> list[int]:
    """Return the counts that show on hover."""
    return [int(found.replace(",", "")) for found in TITLES.findall(svg)]


@examples(50)
@given(st.lists(st.integers(-(10**12), 10**12) | st.integers(0, 9), min_size=5))
def test_a_histogram_counts_every_number(values: list[int]) -> None:
    svg = histogram_of("x", np.array(values, np.int64), show_number)
    if len(set(values)) > 1:
        assert sum(counts_in(svg)) == len(values)
    else:
        assert f"{show_number(float(values[0]))} in all {len(values):,}" in svg


@examples(50)
@given(st.lists(st.tuples(st.integers(1, 65535), st.integers(1, 65535)), min_size=1))
def test_a_heatmap_counts_every_pair(pairs: list[tuple[int, int]]) -> None:
    x, y = np.array(pairs).T
    svg = heatmap("sizes", x, y, ("width", "height"))
    assert sum(counts_in(svg)) == len(pairs)
    assert "nan" not in svg


@examples(30)
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=500))
def test_a_curve_falls_from_the_largest_count_to_the_least(counts: list[int]) -> None:
    svg = rank_curve("classes", [*counts, 1])
    assert f"most: {max([*counts, 1]):,}" in svg
    (points,) = re.findall(r'points="([^"]*)"', svg)
    heights = [float(point.split(",")[1]) for point in points.split()[1:-1]]
    assert heights == sorted(heights)
    assert len(heights) <= 160


def test_bins_have_a_height_by_their_count() -> None:
    svg = histogram("x", [0, 1, 2, 3], [0, 5, 10], show_number)
    assert re.findall(r' height="([\d.]+)"', svg) == ["0.0", "50.0", "100.0"]
    assert "1 to 2: 5" in svg


def test_the_area_of_a_bar_is_its_count() -> None:
    svg = density("x", [0, 1, 3, 8], [4, 8, 0], (0, 4), show_number)
    sides = re.findall(r' width="([\d.]+)" height="([\d.]+)"', svg)
    first, second = (float(width) * float(height) for width, height in sides)
    assert second / first == pytest.approx(2, rel=0.02)
    assert counts_in(svg) == [4, 8]
    assert "7 in all 3" in density("x", [4, 8], [3], (7, 7), show_number)


@examples(50)
@given(st.lists(st.tuples(st.floats(1e-6, 10), st.integers(0, 99)), min_size=2, max_size=60))
def test_joined_bins_keep_every_count(bins: list[tuple[float, int]]) -> None:
    edges = [0.0, *np.cumsum([width for width, _ in bins]).tolist()]
    counts = [count for _, count in bins]
    svg = density("x", edges, counts, (edges[0], edges[-1]), show_number)
    assert sum(counts_in(svg)) == sum(counts)
    assert len(counts_in(svg)) <= 33


def test_few_numbers_are_listed() -> None:
    assert "1, 3" in histogram_of("shards", np.array([3, 1]), show_number)


def test_a_bar_stays_in_its_box() -> None:
    widths = [re.findall(r'width="([\d.]+)"', bar(share))[0] for share in (-1, 0.25, 7)]
    assert widths == ["0.0", "25.0", "100.0"]
