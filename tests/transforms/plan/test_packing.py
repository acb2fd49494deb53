"""The global order and the cuts: exact sizes, decided by ids, seed and policy alone."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.errors import UsageError
from shardwright.transforms.hashing import hash64
from shardwright.transforms.plan import packing
from shardwright.transforms.plan.packing import (
    Layout,
    ShardCuts,
    ShardPolicy,
    draft_layout,
    lay_out,
    sort_bucket,
)
from shardwright.transforms.rejects import Reject, RejectReason
from tests.support.helpers import references

Shards = dict[tuple[str, int], list[str]]
P = ShardPolicy


def pack(
    batches: Sequence[pa.RecordBatch], policy: ShardPolicy, *, seed: int = 0, num_buckets: int = 32
) -> tuple[Shards, Layout, list[Reject]]:
    """Plan without Beam: return the ids of each shard in order, the layout and the rejects."""
    buckets = defaultdict(list)
    for batch in batches:
        for bucket, part in packing.spread(batch, seed, num_buckets):
            buckets[bucket].append(part)
    ordered, rejects = {}, []
    for bucket, parts in buckets.items():
        ordered[bucket], doubles = sort_bucket(parts)
        rejects += doubles
    sizes = [packing.size_bucket(bucket, batch) for bucket, batch in ordered.items()]
    draft = draft_layout(map(packing.count_bucket, sizes), policy)
    layout = lay_out(draft, [packing.place_bucket(bucket, draft) for bucket in sizes])
    pieces = defaultdict(list)
    for bucket, batch in ordered.items():
        for shard, piece in packing.cut_bucket(bucket, batch, layout):
            pieces[shard].append(piece)
    shards = {}
    for shard, parts in pieces.items():
        batch = packing.assemble(parts[::-1])
        shards[shard] = batch["id"].to_pylist()
        uris = [f"/in/{image_id}" for image_id in shards[shard]]
        assert batch["uri"].to_pylist() == uris, "rows keep their columns together"
    return shards, layout, rejects


POLICIES = st.one_of(
    st.builds(P, num_records=st.integers(1, 50)),
    st.builds(P, num_bytes=st.integers(1, 60_000), multiple_of=st.integers(1, 9)),
    st.builds(P, num_shards=st.integers(1, 40), multiple_of=st.integers(1, 9)),
)
IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
SPLITS = ["train", "test", "validation"]
ROWS = st.lists(
    st.tuples(IDS, st.sampled_from(SPLITS), st.integers(1, 5000)), min_size=1, max_size=120
)


def check_sizes(
    sizes: Sequence[int] | np.ndarray, policy: ShardPolicy, *, by_bytes: bool = False
) -> None:
    sizes = np.array(sizes)
    assert sizes.min() > 0, "no shard is planned empty"
    if policy.num_records:
        assert (sizes[:-1] == policy.num_records).all()
        assert sizes[-1] <= policy.num_records
        return
    # `test_layouts` has the properties of shards that are cut by bytes.
    assert by_bytes or sizes.max() - sizes.min() <= 1
    assert len(sizes) % policy.multiple_of == 0 or sizes.sum() < policy.multiple_of


@given(
    rows=ROWS, policy=POLICIES, seed=st.integers(0, 3), buckets=st.integers(0, 10), data=st.data()
)
def test_plan_is_exact_for_any_order_of_arrival(
    rows: list[Any], policy: ShardPolicy, seed: int, buckets: int, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(rows))))
    cuts = data.draw(st.lists(st.integers(0, len(rows)), max_size=6))
    ids, splits, sizes = (list(column) for column in zip(*rows, strict=True))
    batch = references(ids, split=splits, num_bytes=sizes).take(pa.array(order, pa.int64()))
    ends = sorted({0, len(rows), *cuts})
    batches = [batch.slice(start, stop - start) for start, stop in itertools.pairwise(ends)]
    shards, layout, rejects = pack(batches, policy, seed=seed, num_buckets=2**buckets)
    # The oracle: the first row of each id, each split sorted by (key, id).
    first = {image_id: (split, size) for image_id, split, size in reversed(rows)}
    hashes = hash64(pa.array(list(first)), f"shardwright/order/{seed}").tolist()
    keys = {name: (key, name.encode()) for name, key in zip(first, hashes, strict=True)}
    for split in {split for split, _ in first.values()}:
        wanted = sorted((name for name in first if first[name][0] == split), key=keys.__getitem__)
        planned = [shards[split, index] for index in range(layout.cuts[split].num_shards)]
        assert list(itertools.chain(*planned)) == wanted
        assert layout.num_bytes[split] == sum(
            first[name][1] + len(name.encode()) + packing.RECORD_OVERHEAD_BYTES for name in wanted
        )
        check_sizes(list(map(len, planned)), policy, by_bytes=policy.num_bytes is not None)
    assert layout.num_shards == len(shards)
    assert sorted([*first, *(reject.id for reject in rejects)]) == sorted(ids)
    assert {reject.reason for reject in rejects} <= {RejectReason.DUPLICATE_ID}


@given(
    ids=st.lists(IDS, min_size=1, max_size=60, unique=True),
    seeds=st.tuples(st.integers(0, 9), st.integers(10, 19)),
)
def test_seed_changes_order_and_nothing_else(ids: list[str], seeds: tuple[int, int]) -> None:
    batches = [references(ids, split="train")]
    one, two = (pack(batches, P(num_shards=1), seed=seed)[0]["train", 0] for seed in seeds)
    assert sorted(one) == sorted(two) == sorted(ids)
    if len(ids) > 20:  # 1 in 20! to be equal by chance
        assert one != two


GOLDEN_ORDER = {
    0: [[9, 0, 5, 3], [6, 2, 8, 7], [1, 4]],
    1: [[6, 1, 8, 7], [3, 5, 4, 0], [9, 2]],
}


@pytest.mark.parametrize("seed", GOLDEN_ORDER)
def test_golden_order(seed: int) -> None:
    """A change of hash, salt or tie-break would reorder every dataset made so far."""
    ids = [*(f"cat/{number}.jpg" for number in range(8)), "dog/ä.png", "dog/\U0001f415.png"]
    shards, _, _ = pack([references(ids, split="train")], P(num_records=4), seed=seed)
    found = [[ids.index(name) for name in shards["train", index]] for index in range(3)]
    assert found == GOLDEN_ORDER[seed]


@pytest.mark.parametrize(("text", "salt", "key"), [
    ("cat/1.jpg", "shardwright/order/0", 0xDAEF8DF6B1EB1017),
    ("", "shardwright/order/0", 0x92C6AD92C9F6D204),
    ("dog/ä.png", "shardwright/split", 0x6DF9C8ABABB6A540),
])  # fmt: skip
def test_golden_hash(text: str, salt: str, key: int) -> None:
    """Equals `hashlib.blake2b((salt + text).encode(), digest_size=8)`, first byte highest."""
    assert hash64(pa.array([text]), salt).tolist() == [key]


def test_equal_keys_are_ordered_by_id() -> None:
    batch = references(["b", "a", "ab", "Z"], split="train", order_key=7)
    assert sort_bucket([batch])[0]["id"].to_pylist() == ["Z", "a", "ab", "b"]


@pytest.mark.parametrize("keys", [[3, 1, 2], [3, 1, 1]])
def test_columns_of_a_sorted_bucket(keys: list[int]) -> None:
    batch = references(["a", "b", "b"], split=["x", "y", "z"], row=[0, 1, 2], order_key=keys)
    whole, rejects = sort_bucket([batch])
    assert sort_bucket([batch], ["split"]) == (whole.select(["split"]), rejects)


@pytest.mark.parametrize("order", itertools.permutations(range(3)))
def test_the_earliest_of_equal_ids_stays(order: tuple[int, ...]) -> None:
    """Earliest by row, then by uri, in any order of arrival."""
    uris, rows = ["/1", "/3", "/2"], [5, 2, 2]
    batch = references(["x"] * 3, split=["c", "a", "b"], row=rows, uri=uris, order_key=7)
    kept, rejects = sort_bucket([batch.take(pa.array(order))])
    assert kept["split"].to_pylist() == ["b"]
    assert [(reject.uri, reject.detail) for reject in rejects] == [
        ("/3", "row 2: an earlier input has the id 'x'"),
        ("/1", "row 5: an earlier input has the id 'x'"),
    ]


@given(st.integers(1, 10**9), POLICIES, st.integers(1, 10**14), st.floats(0, 1, exclude_max=True))
@example(500_000_000, P(num_bytes=150_000_000), 55 * 10**12, 1 / 3)
def test_cuts_of_any_size(
    num_records: int, policy: ShardPolicy, num_bytes: int, where: float
) -> None:
    cuts = policy.cut(num_records, min(num_bytes, 2 * 10**5 * (policy.num_bytes or num_bytes)))
    if cuts.num_shards > 10**6:
        return
    starts = cuts.starts
    assert (starts[0], starts[-1]) == (0, num_records)
    check_sizes(np.diff(starts), policy)
    start = int(where * num_records)
    stop = min(num_records, start + 1000)
    pieces = list(cuts.pieces(start, stop))
    assert [first for _, first, _ in pieces] == [start, *(last for _, _, last in pieces[:-1])]
    assert pieces[-1][2] == stop
    assert all(starts[shard] <= first < last <= starts[shard + 1] for shard, first, last in pieces)


@pytest.mark.parametrize(
    ("policy", "num_records", "num_bytes", "num_shards"),
    [
        (P(num_bytes=1000), 10, 1001, 2), (P(num_bytes=1000, multiple_of=4), 10, 1001, 4),
        (P(num_bytes=100), 10, 1000, 10),
        (P(num_bytes=100), 10, 1001, 10),  # 11 shards would leave one empty
        (P(num_shards=9, multiple_of=8), 100, 1, 16), (P(num_shards=9, multiple_of=8), 7, 1, 7),
        (P(num_shards=9, multiple_of=8), 15, 1, 8),  # 16 would leave one empty; 8 readers share 8
        (P(num_records=3), 10, 1, 4), (P(num_records=3), 9, 1, 3), (P(num_records=10**9), 9, 1, 1),
        (P(num_bytes=10**18), 9, 1, 1), (P(num_shards=5), 0, 0, 0),
    ],
)  # fmt: skip
def test_number_of_shards(policy: P, num_records: int, num_bytes: int, num_shards: int) -> None:
    assert policy.cut(num_records, num_bytes).num_shards == num_shards


MULTIPLE = "--shard-count-multiple-of"


@pytest.mark.parametrize(("rules", "message"), [
    ({}, "give one of --shard-size, --records-per-shard and --shard-count, not 0"),
    ({"num_bytes": 1, "num_records": 1}, r"not 2 \(--shard-size, --records-per-shard\)"),
    ({"num_records": 0}, "--records-per-shard must be at least 1, got 0"),
    ({"num_shards": -1}, "--shard-count must be at least 1, got -1"),
    ({"num_shards": 1, "multiple_of": 0}, f"{MULTIPLE} must be at least 1, got 0"),
    (
        {"num_records": 4, "multiple_of": 2},
        f"{MULTIPLE} cannot be combined with --records-per-shard",
    ),
])  # fmt: skip
def test_policy_errors(rules: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ShardPolicy(**rules)


def test_nothing_to_lay_out() -> None:
    layout = lay_out(draft_layout([], P(num_shards=3)), [])
    assert (layout.num_records, layout.num_shards, dict(layout.cuts)) == (0, 0, {})
    assert ShardCuts(0, 0).extremes == (0, 0)
    assert P(num_records=1024).cut(500_000_000, 1).extremes == (256, 1024)
