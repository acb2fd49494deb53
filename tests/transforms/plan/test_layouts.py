"""Cuts by bytes: shards within one record of their target, for any sizes and any buckets."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.transforms.plan import packing
from shardwright.transforms.plan.packing import (
    BucketCounts,
    BucketSizes,
    Layout,
    ShardPolicy,
    SizeEstimate,
    draft_layout,
    lay_out,
    place_bucket,
)

P = ShardPolicy


def lay_out_sizes(
    sizes: Sequence[int],
    policy: ShardPolicy,
    ends: Sequence[int] = (),
    estimate: SizeEstimate | None = None,
) -> tuple[Layout, list[int]]:
    """Return the layout of a split, with buckets that end at `ends`, and its shards' bytes."""
    array = np.array(sizes, np.int64)
    edges = itertools.pairwise([0, *sorted(end for end in ends if end < len(sizes)), len(sizes)])
    buckets = [
        BucketSizes(number, {"train": array[start:stop]} if stop > start else {}, array[start:stop])
        for number, (start, stop) in enumerate(edges)
    ][::-1]
    draft = draft_layout(map(packing.count_bucket, buckets), policy, estimate)
    layout = lay_out(draft, [place_bucket(bucket, draft) for bucket in buckets])
    return layout, packing.shard_bytes(buckets, layout)["train"]


# Ten to a hundred million bytes, evenly by order of magnitude: the tail is as heavy as it gets.
SIZES = st.lists(st.floats(1, 8).map(lambda power: int(10**power)), min_size=1, max_size=80)


@given(sizes=SIZES, target=st.floats(1, 9), ends=st.lists(st.integers(0, 80), max_size=9))
@example(sizes=[1] * 30 + [970], target=1.0, ends=[])
@example(sizes=[1, 10], target=1.0, ends=[])
def test_shards_are_within_one_record_of_their_target(
    sizes: list[int], target: float, ends: list[int]
) -> None:
    size = int(10**target)
    layout, found = lay_out_sizes(sizes, P(num_bytes=size), ends)
    starts = layout.cuts["train"].starts
    shards = [sizes[start:stop] for start, stop in itertools.pairwise(starts)]
    assert ([*map(sum, shards)], list(itertools.chain(*shards))) == (found, sizes)
    num_shards = -(-sum(sizes) // size)
    even = -(-sum(sizes) // num_shards)  # at most `size`
    assert all(shards)
    assert len(shards) <= num_shards
    for number, shard in enumerate(shards):
        assert sum(shard) <= even + max(shard)
        if number < len(shards) - 1:
            before = shards[number - 1][-1] if number else 0
            assert even - sum(shard) <= max(before, shards[number + 1][0])
    assert lay_out_sizes(sizes, P(num_bytes=size))[0].cuts == layout.cuts, "for any buckets"


@given(sizes=SIZES, target=st.floats(1, 9), multiple=st.integers(1, 9))
def test_a_multiple_of_shards(sizes: list[int], target: float, multiple: int) -> None:
    layout, found = lay_out_sizes(sizes, P(num_bytes=int(10**target), multiple_of=multiple))
    assert (min(found) > 0, sum(found)) == (True, sum(sizes))
    assert len(found) % multiple == 0 or len(sizes) < multiple
    assert layout.num_shards == len(found) <= len(sizes)


def test_equal_sizes_are_cut_evenly() -> None:
    layout, found = lay_out_sizes([1000] * 1000, P(num_bytes=150_000))
    assert sorted(found) == [142_000] + [143_000] * 6
    assert layout.cuts["train"].extremes == (142, 143)


@pytest.mark.parametrize("policy", [P(num_records=4), P(num_shards=3)])
def test_cuts_by_records_do_not_look_at_bytes(policy: ShardPolicy) -> None:
    layout, found = lay_out_sizes([1, 1000, 1, 1, 1, 1, 1, 1, 1, 1], policy, [5])
    assert layout.cuts["train"] == policy.cut(10, 1009)
    assert found == [1003, 4, 2] if policy.num_records else [1003, 3, 3]


def estimate_of(ratio: float | None, mean: float = 100.0) -> SizeEstimate:
    return SizeEstimate("s", 10, mean, ratio)


def test_an_estimate_by_ratio_cuts_known_bytes_and_one_by_mean_cuts_records() -> None:
    sizes = [1000, 3000, 2000, 2000, 500, 3500]
    by_ratio, found = lay_out_sizes(sizes, P(num_bytes=1000), estimate=estimate_of(0.25))
    assert (by_ratio.cuts["train"].positions, found) == ((0, 2, 4), [1000, 1000, 1000])
    by_mean, found = lay_out_sizes(sizes, P(num_bytes=300), estimate=estimate_of(None))
    assert (by_mean.cuts["train"], found) == (P(num_shards=2).cut(6, 0), [300, 300])


def test_half_a_billion_records() -> None:
    """Draft the layout of ImageNet a few hundred times over, and place its last bucket."""
    records = {"test": 48_828, "train": 439_453}
    in_bucket = {split: (number, number * 110_000) for split, number in records.items()}
    counts = [BucketCounts(bucket, in_bucket) for bucket in range(1024)]
    policy = P(num_bytes=150_000_000, multiple_of=64)
    draft = draft_layout(counts[::-1], policy)
    assert draft.layout.num_records == 1024 * (48_828 + 439_453)
    train = draft.layout.cuts["train"]
    # ceil(449,999,872 * 110 kB / 150 MB) = 330,000, rounded up to a multiple of 64
    assert (train.num_records, train.num_shards) == (449_999_872, 330_048)
    assert draft.targets["train"] == -(-449_999_872 * 110_000 // 330_048)
    assert draft.layout.first_positions[1023, "train"] == 1023 * 439_453
    last = BucketSizes(1023, {"train": np.full(439_453, 110_000)}, np.empty(0))
    shards, placed = place_bucket(last, draft)["train"]
    assert (shards[-1], placed.sum(), set(placed[1:-1])) == (330_047, 439_453, {1363, 1364})


@pytest.mark.parametrize(
    ("sizes", "policy", "warning"),
    [
        ([500] * 300, P(num_bytes=100), "--shard-size 100 is less than 10 records of the median "
         "size, 500 B, so 300 records are in 300 shards: use --shard-size 5000 (5.0 kB) or more"),
        ([500] * 300, P(num_bytes=5000), ""),
        ([1] * 199 + [100_000] * 101, P(num_bytes=5000), ""),  # few are large
        ([500] * 9, P(num_bytes=4999), ""),  # one shard has all
        ([500] * 300, P(num_shards=300), ""), ([500] * 300, P(num_records=1), ""),
    ],
)  # fmt: skip
def test_a_warning_of_small_shards(sizes: list[int], policy: ShardPolicy, warning: str) -> None:
    assert lay_out_sizes(sizes, policy, [7, 100])[0].warning == warning


def test_the_median_is_of_the_first_records_for_any_buckets() -> None:
    sizes = np.random.default_rng(0).integers(1, 10**6, 3000)
    policy: Any = P(num_bytes=10)
    one, many = (lay_out_sizes(sizes.tolist(), policy, ends)[0] for ends in ([], range(0, 3000, 9)))
    assert one.warning == many.warning != ""
