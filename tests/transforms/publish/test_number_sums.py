"""Summaries of numbers: exact, the same for any order of the parts, and bounded."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.transforms.publish.number_sums import MAX_BINS, describe_numbers, merged, published
from tests.support.random_tests import examples

Part = Mapping[str, Any]
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
INTS = st.integers(-(2**63), 2**63 - 1)
PARTS = st.one_of(  # a feature has one type
    st.lists(
        st.lists(FLOATS, max_size=20).map(lambda values: np.array(values, np.float32)), max_size=6
    ),
    st.lists(
        st.lists(INTS, max_size=20).map(lambda values: np.array(values, np.int64)), max_size=6
    ),
)


def total(parts: list[Any]) -> Part:
    found: Part = {}
    for part in parts:
        (described,) = describe_numbers([part])
        found = merged([found, json.loads(json.dumps(described))])  # as a sidecar stores it
    return found


@examples(40)
@given(parts=PARTS, cut=st.integers(0, 6), data=st.data())
def test_the_order_of_parts_changes_no_byte(
    parts: list[Any], cut: int, data: st.DataObject
) -> None:
    wanted = json.dumps(published(total(parts)))
    assert json.dumps(published(total(data.draw(st.permutations(parts))))) == wanted
    both = merged([total(parts[cut:]), total(parts[:cut])])
    assert json.dumps(published(both)) == wanted


@examples(40)
@given(parts=PARTS)
def test_columns_are_described_together_as_they_are_alone(parts: list[Any]) -> None:
    alone = [describe_numbers([part])[0] for part in parts]
    assert not parts or json.dumps(describe_numbers(parts)) == json.dumps(alone)


@examples(40)
@given(parts=PARTS)
def test_values_and_bins(parts: list[Any]) -> None:
    values = [value for part in parts for value in part.tolist()]
    found = published(total(parts))
    assert found["count"] == len(values)
    if not values:
        return
    assert (found["min"], found["max"]) == (min(values), max(values))
    assert found["zeros"] == values.count(0)
    most = max(map(abs, values))
    assert found["mean"] == pytest.approx(statistics.fmean(values), rel=1e-9, abs=1e-12 * most)
    deviation = float(np.std(np.array(values, np.float64)))
    assert found["std"] == pytest.approx(deviation, rel=1e-6, abs=1e-6 * most)
    edges, counts = found["histogram"]["edges"], found["histogram"]["counts"]
    assert sum(map(bool, counts)) <= MAX_BINS
    assert sum(counts) == len(values)
    assert edges == sorted(edges)
    assert len(edges) == len(counts) + 1
    assert edges[0] <= float(min(values))
    assert float(max(values)) <= edges[-1]


def test_each_value_is_inside_of_its_bin() -> None:
    values = [-7.0, -1.5, 0.0, 0.0, 0.25, 3.0, 3.2, 100.0]
    found = published(total([np.array(values, np.float32)]))["histogram"]
    edges = found["edges"]
    for low, high, count in zip(edges[:-1], edges[1:], found["counts"], strict=True):
        assert count == sum(low <= value < high for value in values), (low, high)


def test_small_whole_numbers_have_bins_of_their_own() -> None:
    found = published(total([np.array([1, 2, 2, 3, 5, 8], np.int64)]))["histogram"]
    counts = dict(zip(found["edges"], found["counts"], strict=False))
    assert {edge: count for edge, count in counts.items() if count} == {
        1: 1,
        2: 2,
        3: 1,
        5: 1,
        8: 1,
    }


def test_given_edges_hold_what_is_outside_too() -> None:
    edges = [0.0, 0.5, 1.0]
    (part,) = describe_numbers([np.array([-5.0, 0.0, 0.5, 1.0, 9.0])], edges)
    found = published(part, edges)
    assert found["histogram"] == {"edges": [0.0, 0.5, 1.0], "counts": [2, 3]}


def test_what_is_not_finite_is_counted_only() -> None:
    found = published(total([np.array([1.0, math.nan, math.inf]), np.array([math.nan])]))
    assert (found["count"], found["nonfinite"], found["mean"]) == (4, 3, 1.0)
    assert published(total([np.array([math.nan])])) == {"count": 1, "nonfinite": 1}
    assert describe_numbers([np.array([])]) == [{}]
