"""PlanShards in a pipeline: the pure plan of `test_packing`, with any batches and buckets."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from shardwright.transforms.plan.packing import ShardPolicy
from shardwright.transforms.plan.plan_shards import PlanShards
from shardwright.transforms.references import digest_of
from tests.support.helpers import Run, references, run_transform

IDS = [f"c/{number}.png" for number in range(200)]
SPLITS = ["test" if number % 5 == 0 else "train" for number in range(200)]
SIZES = [1000 + 10**6 // (1 + number % 37) ** 2 for number in range(200)]  # a few are most of it
WHOLE = references(IDS, labelled=True, split=SPLITS, group="g", num_bytes=SIZES)
BY_RECORDS, BY_BYTES = ShardPolicy(num_records=30), ShardPolicy(num_bytes=2_000_000)
BACKWARDS = WHOLE.take(pa.array(range(199, -1, -1)))
SCATTERED = [BACKWARDS.slice(start, 33) for start in range(0, 200, 33)]


def plan(
    batches: list[pa.RecordBatch],
    num_buckets: int = 8,
    policy: ShardPolicy = BY_RECORDS,
) -> Run:
    options: Any = {"seed": 0, "settings": b"s", "num_buckets": num_buckets}
    return run_transform(PlanShards(name="pets", policy=policy, **options), batches)


def shards_of(run: Run) -> dict[str, tuple[str, list[str]]]:
    """Return the digest and the ids of each shard, by file name."""
    shards = sorted(run.outputs["shards"], key=lambda shard: shard.name)
    return {s.name.shard: (s.digest, s.references["id"].to_pylist()) for s in shards}


@pytest.fixture(scope="module")
def whole() -> Run:
    return plan([WHOLE])


def test_shards_and_layout(whole: Run) -> None:
    shards = shards_of(whole)
    train = {f"pets-train.tfrecord-{index:05d}-of-00006": 30 for index in range(5)}
    assert {name: len(ids) for name, (_, ids) in shards.items()} == train | {
        "pets-train.tfrecord-00005-of-00006": 10,
        "pets-test.tfrecord-00000-of-00002": 30,
        "pets-test.tfrecord-00001-of-00002": 10,
    }
    assert sorted(image_id for _, ids in shards.values() for image_id in ids) == sorted(IDS)
    (layout,) = whole.outputs["layout"]
    assert (layout.num_records, layout.num_shards) == (200, 8)
    assert layout.cuts["train"].extremes == (10, 30)
    assert (whole.rejects, whole.counters) == ([], {})
    shard = whole.outputs["shards"][0]
    assert shard.digest == digest_of(b"s", shard.references)
    assert not {"row", "group", "order_key"} & set(shard.references.schema.names)


@pytest.mark.parametrize(("batches", "num_buckets"), [(SCATTERED, 1), (SCATTERED[::-1], 256)])
def test_the_plan_does_not_depend_on_batches_and_buckets(
    whole: Run, batches: list[pa.RecordBatch], num_buckets: int
) -> None:
    assert shards_of(plan(batches, num_buckets)) == shards_of(whole)


@pytest.mark.long
def test_shards_of_equal_bytes_do_not_depend_on_batches_and_buckets() -> None:
    run = plan([WHOLE], policy=BY_BYTES)
    assert shards_of(plan(SCATTERED, 64, policy=BY_BYTES)) == shards_of(run)
    sizes = dict(zip(IDS, SIZES, strict=True))
    shards = [[sizes[image_id] for image_id in ids] for _, ids in shards_of(run).values()]
    assert sum(map(len, shards)) == 200
    assert max(sum(shard) - max(shard) for shard in shards) <= 2_000_000
    assert len(shards) == run.outputs["layout"][0].num_shards == 6
    assert len(set(map(len, shards))) > 2, "the numbers of records follow the sizes"


def test_duplicate_ids(whole: Run) -> None:
    ids = ["c/7.png", "c/7.png", "c/8.png"]
    again = references(ids, labelled=True, split="train", row=[900, 901, 902], group="g")
    run = plan([again, WHOLE])
    assert shards_of(run) == shards_of(whole)
    assert run.rejects == [(image_id, "duplicate_id") for image_id in ids]
    assert run.counters == {"rejects_duplicate_id": 3}


def test_nothing() -> None:
    run = plan([])
    assert (run.outputs["shards"], run.rejects) == ([], [])
    assert [layout.num_records for layout in run.outputs["layout"]] == [0]
