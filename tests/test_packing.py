"""The global order and the cuts: exact sizes, and a result that depends on ids, seed and policy alone."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shardwright.errors import UsageError
from tests.helpers import references
from transforms.hashing import hash64
from transforms.planning.packing import (
    RECORD_OVERHEAD_BYTES,
    BucketCounts,
    Layout,
    ShardCuts,
    ShardPolicy,
    assemble,
    count_bucket,
    cut_bucket,
    lay_out,
    sort_bucket,
    spread,
)
from transforms.references import concat
from transforms.rejects import Reject, RejectReason

Shards = dict[tuple[str, int], list[str]]


def pack(
    batches: Sequence[pa.RecordBatch], policy: ShardPolicy, *, seed: int = 0, num_buckets: int = 32
) -> tuple[Shards, Layout, list[Reject]]:
    """The whole plan without Beam: ids of each shard in their order, the layout and the rejects."""
    buckets = defaultdict(list)
    for batch in batches:
        for bucket, part in spread(batch, seed, num_buckets):
            buckets[bucket].append(part)
    ordered, rejects = {}, []
    for bucket, parts in buckets.items():
        ordered[bucket], doubles = sort_bucket(parts)
        rejects += doubles
    layout = lay_out([count_bucket(bucket, batch) for bucket, batch in ordered.items()], policy)
    pieces = defaultdict(list)
    for bucket, batch in ordered.items():
        for shard, piece in cut_bucket(bucket, batch, layout):
            pieces[shard].append(piece)
    return (
        {shard: assemble(parts[::-1]).column("id").to_pylist() for shard, parts in pieces.items()},
        layout,
        rejects,
    )


def scattered(
    batch: pa.RecordBatch, order: Sequence[int], cuts: Sequence[int]
) -> list[pa.RecordBatch]:
    """The same rows in another order, in batches that end elsewhere."""
    shuffled = batch.take(pa.array(order, pa.int64()))
    ends = sorted({0, batch.num_rows, *(cut % (batch.num_rows + 1) for cut in cuts)})
    return [shuffled.slice(start, stop - start) for start, stop in itertools.pairwise(ends)]


POLICIES = st.one_of(
    st.builds(ShardPolicy, num_records=st.integers(1, 50)),
    st.builds(ShardPolicy, num_bytes=st.integers(1, 60_000), multiple_of=st.integers(1, 9)),
    st.builds(ShardPolicy, num_shards=st.integers(1, 40), multiple_of=st.integers(1, 9)),
)
IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
ROWS = st.lists(
    st.tuples(IDS, st.sampled_from(["train", "test", "validation"]), st.integers(1, 5000)),
    min_size=1,
    max_size=120,
)


def batch_of(rows: Sequence[tuple[str, str, int]]) -> pa.RecordBatch:
    ids, splits, sizes = (list(column) for column in zip(*rows, strict=True))
    return references(ids, split=splits, num_bytes=sizes)


@settings(max_examples=120, deadline=None)
@given(
    rows=ROWS, policy=POLICIES, seed=st.integers(0, 3), buckets=st.integers(0, 10), data=st.data()
)
def test_plan_is_exact_whatever_the_arrival(
    rows: list[Any], policy: ShardPolicy, seed: int, buckets: int, data: st.DataObject
) -> None:
    batch = batch_of(rows)
    order = data.draw(st.permutations(range(len(rows))))
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=6))
    shards, layout, rejects = pack(
        scattered(batch, order, cuts), policy, seed=seed, num_buckets=2**buckets
    )
    # The oracle: the first row of each id, each split sorted by (key, id).
    first = {image_id: (split, size) for image_id, split, size in reversed(rows)}
    keys = dict(
        zip(first, hash64(pa.array(list(first)), f"shardwright/order/{seed}").tolist(), strict=True)
    )
    for split in {split for split, _ in first.values()}:
        wanted = sorted(
            (i for i in first if first[i][0] == split), key=lambda i: (keys[i], i.encode())
        )
        got = [
            image_id for shard in sorted(shards) if shard[0] == split for image_id in shards[shard]
        ]
        assert got == wanted
        assert layout.num_bytes[split] == sum(
            first[i][1] + len(i.encode()) + RECORD_OVERHEAD_BYTES for i in wanted
        )
        check_sizes(
            np.array([len(shards[split, index]) for index in range(layout.cuts[split].num_shards)]),
            policy,
        )
    assert layout.num_shards == len(shards)
    assert sorted(reject.id for reject in rejects) == sorted(
        i for i in first for _ in range(sum(row[0] == i for row in rows) - 1)
    )
    assert {reject.reason for reject in rejects} <= {RejectReason.DUPLICATE_ID}


def check_sizes(sizes: np.ndarray, policy: ShardPolicy) -> None:
    assert sizes.min() > 0, "no shard is planned empty"
    if policy.num_records:
        assert (sizes[:-1] == policy.num_records).all()
        assert sizes[-1] <= policy.num_records
        return
    assert sizes.max() - sizes.min() <= 1
    assert len(sizes) % policy.multiple_of == 0 or sizes.sum() < policy.multiple_of


@settings(max_examples=40, deadline=None)
@given(
    ids=st.lists(IDS, min_size=1, max_size=60, unique=True),
    seeds=st.tuples(st.integers(0, 9), st.integers(10, 19)),
)
def test_seed_changes_order_and_nothing_else(ids: list[str], seeds: tuple[int, int]) -> None:
    (one, *_), (two, *_) = (
        pack([references(ids, split="train")], ShardPolicy(num_shards=1), seed=seed)
        for seed in seeds
    )
    assert sorted(one["train", 0]) == sorted(two["train", 0]) == sorted(ids)
    if len(ids) > 20:  # 1 in 20! to be equal by chance
        assert one != two


def test_golden_order() -> None:
    """An accidental change of hash, salt or tie-break would reorder every dataset made so far."""
    ids = [f"cat/{number}.jpg" for number in range(8)] + ["dog/ä.png", "dog/\U0001f415.png"]
    orders = {}
    for seed in (0, 1):
        shards, _, _ = pack([references(ids, split="train")], ShardPolicy(num_records=4), seed=seed)
        orders[seed] = [
            [ids.index(image_id) for image_id in shards["train", index]] for index in range(3)
        ]
    assert orders == GOLDEN_ORDER


GOLDEN_ORDER = {
    0: [[9, 0, 5, 3], [6, 2, 8, 7], [1, 4]],
    1: [[6, 1, 8, 7], [3, 5, 4, 0], [9, 2]],
}


@pytest.mark.parametrize(
    ("text", "salt", "key"),
    [
        ("cat/1.jpg", "shardwright/order/0", 0xDAEF8DF6B1EB1017),
        ("", "shardwright/order/0", 0x92C6AD92C9F6D204),
        ("dog/ä.png", "shardwright/split", 0x6DF9C8ABABB6A540),
    ],
)
def test_golden_hash(text: str, salt: str, key: int) -> None:
    """As `hashlib.blake2b((salt + text).encode(), digest_size=8)` gives it, the first byte highest."""
    assert hash64(pa.array([text]), salt).tolist() == [key]


def test_equal_keys_are_ordered_by_id() -> None:
    batch = references(["b", "a", "ab", "Z"], split="train", order_key=[7, 7, 7, 7])
    assert sort_bucket([batch])[0].column("id").to_pylist() == ["Z", "a", "ab", "b"]


def test_the_earliest_of_equal_ids_stays() -> None:
    """Earliest by row, then by uri, in whatever order they arrive."""
    batch = references(
        ["x", "x", "x"],
        split=["c", "a", "b"],
        row=[5, 2, 2],
        uri=["/1", "/3", "/2"],
        order_key=[7, 7, 7],
    )
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        kept, rejects = sort_bucket([batch.take(pa.array(order))])
        assert kept.column("split").to_pylist() == ["b"]
        assert [(reject.uri, reject.detail) for reject in rejects] == [
            ("/3", "row 2: an earlier input has the id 'x'"),
            ("/1", "row 5: an earlier input has the id 'x'"),
        ]


@settings(max_examples=100, deadline=None)
@given(
    num_records=st.integers(1, 10**9),
    policy=POLICIES,
    num_bytes=st.integers(1, 10**14),
    data=st.data(),
)
@example(500_000_000, ShardPolicy(num_bytes=150_000_000), 55 * 10**12, None)
def test_cuts_of_any_size(
    num_records: int, policy: ShardPolicy, num_bytes: int, data: st.DataObject | None
) -> None:
    cuts = policy.cut(num_records, min(num_bytes, 2 * 10**5 * (policy.num_bytes or num_bytes)))
    if cuts.num_shards > 10**6:
        return
    starts = cuts.starts
    assert starts[0] == 0
    assert starts[-1] == num_records
    check_sizes(np.diff(starts), policy)
    start = num_records // 3 if data is None else data.draw(st.integers(0, num_records - 1))
    stop = min(num_records, start + 1000)
    pieces = list(cuts.pieces(start, stop))
    assert [first for _, first, _ in pieces] == [start, *(last for _, _, last in pieces[:-1])]
    assert pieces[-1][2] == stop
    assert all(starts[shard] <= first < last <= starts[shard + 1] for shard, first, last in pieces)


def test_half_a_billion_records() -> None:
    """ImageNet a few hundred times over, from counts alone: 1,024 buckets, two splits."""
    counts = [
        BucketCounts(
            bucket, {"test": (48_828, 48_828 * 110_000), "train": (439_453, 439_453 * 110_000)}
        )
        for bucket in range(1024)
    ]
    layout = lay_out(counts[::-1], ShardPolicy(num_bytes=150_000_000, multiple_of=64))
    assert layout.num_records == 1024 * (48_828 + 439_453)
    assert layout.cuts["train"].num_records == 449_999_872
    assert (
        layout.cuts["train"].num_shards == 330_048
    )  # ceil(449,999,872 * 110 kB / 150 MB) = 330,000, then up to 64s
    assert layout.cuts["train"].extremes == (1363, 1364)
    assert layout.first_positions[1023, "train"] == 1023 * 439_453
    exact = ShardPolicy(num_records=1024).cut(500_000_000, 1)
    assert (exact.num_shards, exact.extremes) == (488_282, (256, 1024))
    assert list(exact.pieces(499_999_743, 500_000_000)) == [
        (488_280, 499_999_743, 499_999_744),
        (488_281, 499_999_744, 500_000_000),
    ]


@pytest.mark.parametrize(
    ("policy", "num_records", "num_bytes", "num_shards"),
    [
        (ShardPolicy(num_bytes=100), 10, 1000, 10),
        (ShardPolicy(num_bytes=100), 10, 1001, 10),  # 11 shards would leave one empty
        (ShardPolicy(num_bytes=1000), 10, 1001, 2),
        (ShardPolicy(num_bytes=1000, multiple_of=4), 10, 1001, 4),
        (ShardPolicy(num_shards=9, multiple_of=8), 100, 1, 16),
        (
            ShardPolicy(num_shards=9, multiple_of=8),
            15,
            1,
            8,
        ),  # 16 would leave one empty; 8 readers still get the same number
        (ShardPolicy(num_shards=9, multiple_of=8), 7, 1, 7),
        (ShardPolicy(num_records=3), 10, 1, 4),
        (ShardPolicy(num_records=3), 9, 1, 3),
        (ShardPolicy(num_records=10**9), 9, 1, 1),
        (ShardPolicy(num_bytes=10**18), 9, 1, 1),
        (ShardPolicy(num_shards=5), 0, 0, 0),
    ],
)
def test_number_of_shards(
    policy: ShardPolicy, num_records: int, num_bytes: int, num_shards: int
) -> None:
    assert policy.cut(num_records, num_bytes).num_shards == num_shards


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({}, "give one of --shard-size, --records-per-shard and --shard-count, not 0"),
        ({"num_bytes": 1, "num_records": 1}, r"not 2 \(--shard-size, --records-per-shard\)"),
        ({"num_records": 0}, "--records-per-shard is 0; it must be 1 or more"),
        ({"num_shards": -1}, "--shard-count is -1; it must be 1 or more"),
        (
            {"num_shards": 1, "multiple_of": 0},
            "--shard-count-multiple-of is 0; it must be 1 or more",
        ),
        (
            {"num_records": 4, "multiple_of": 2},
            "--shard-count-multiple-of cannot be kept with --records-per-shard",
        ),
    ],
)
def test_policy_errors(rules: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ShardPolicy(**rules)


def test_nothing_to_lay_out() -> None:
    layout = lay_out([], ShardPolicy(num_shards=3))
    assert (layout.num_records, layout.num_shards, dict(layout.cuts)) == (0, 0, {})
    assert ShardCuts(0, 0).extremes == (0, 0)


def test_rows_keep_their_columns_together() -> None:
    """A shuffle that moved one column and not another would mislabel every image."""
    ids = [str(number) for number in range(500)]
    batch = references(
        ids,
        split="train",
        label=[f"l{i}" for i in ids],
        uri=[f"u{i}" for i in ids],
        extras={"x/n": list(range(500))},
    )
    for _, part in spread(batch, 3, 16):
        ordered, _ = sort_bucket([part])
        for row in ordered.to_pylist():
            assert (row["label"], row["uri"], row["x/n"]) == (
                f"l{row['id']}",
                f"u{row['id']}",
                int(row["id"]),
            )
    assert concat([part for _, part in spread(batch, 3, 16)]).num_rows == 500
