"""Charts: every value is in one bin, whatever the values are."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardwright.report.charts import histogram, histogram_of
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


def test_bins_have_a_height_by_their_count() -> None:
    svg = histogram("x", [0, 1, 2, 3], [0, 5, 10], show_number)
    assert re.findall(r' height="([\d.]+)"', svg) == ["0.0", "50.0", "100.0"]
    assert "1 to 2: 5" in svg


def test_a_bar_stays_in_its_box() -> None:
    widths = [re.findall(r'width="([\d.]+)"', bar(share))[0] for share in (-1, 0.25, 7)]
    assert widths == ["0.0", "25.0", "100.0"]
