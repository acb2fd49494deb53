"""PlanShards in a pipeline: the pure plan of `test_packing`, whatever the batches, buckets and order of arrival."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from shardwright.naming import ShardName
from tests.helpers import Run, references, run_transform
from transforms.plan_shards import PlanShards
from transforms.planning.packing import ShardPolicy
from transforms.planning.shard_plans import ShardPlan
from transforms.references import digest_of

IDS = [f"c/{number}.png" for number in range(200)]
WHOLE = references(
    IDS,
    labelled=True,
    split=["test" if number % 5 == 0 else "train" for number in range(200)],
    group="g",
)


def plan(
    batches: list[pa.RecordBatch], num_buckets: int = 8, *, seed: int = 0, settings: bytes = b"s"
) -> Run:
    policy = ShardPolicy(num_records=30)
    return run_transform(
        PlanShards(
            name="pets", policy=policy, seed=seed, settings=settings, num_buckets=num_buckets
        ),
        batches,
    )


def shards_of(run: Run) -> dict[str, tuple[str, list[str]]]:
    return {
        shard.name.shard: (shard.digest, shard.references.column("id").to_pylist())
        for shard in run.outputs["shards"]
    }


def test_shards_and_layout() -> None:
    run = plan([WHOLE])
    shards = shards_of(run)
    assert [(name, len(ids)) for name, (_, ids) in sorted(shards.items())] == [
        ("pets-test.tfrecord-00000-of-00002", 30),
        ("pets-test.tfrecord-00001-of-00002", 10),
        *(
            (f"pets-train.tfrecord-{index:05d}-of-00006", 30 if index < 5 else 10)
            for index in range(6)
        ),
    ]
    assert sorted(image_id for _, ids in shards.values() for image_id in ids) == sorted(IDS)
    (layout,) = run.outputs["layout"]
    assert (layout.num_records, layout.num_shards, layout.cuts["train"].extremes) == (
        200,
        8,
        (10, 30),
    )
    assert (run.rejects, run.counters) == ([], {})
    shard = run.outputs["shards"][0]
    assert shard.digest == digest_of(b"s", shard.references)
    assert not {"row", "group", "order_key"} & set(shard.references.schema.names)


def test_the_plan_does_not_depend_on_how_it_is_made() -> None:
    expected = shards_of(plan([WHOLE]))
    backwards = WHOLE.take(pa.array(range(199, -1, -1)))
    scattered = [backwards.slice(start, 33) for start in range(0, 200, 33)]
    assert shards_of(plan(scattered, num_buckets=1)) == expected
    assert shards_of(plan(scattered[::-1], num_buckets=256)) == expected


def test_seed_and_settings_change_digests() -> None:
    first, seeded, other = plan([WHOLE]), plan([WHOLE], seed=1), plan([WHOLE], settings=b"t")
    orders = [
        [ids for _, (_, ids) in sorted(shards_of(run).items())] for run in (first, seeded, other)
    ]
    digests = [{digest for digest, _ in shards_of(run).values()} for run in (first, seeded, other)]
    assert orders[0] == orders[2] != orders[1]
    assert digests[0].isdisjoint(digests[1] | digests[2])


def test_ids_that_come_twice() -> None:
    again = references(
        ["c/7.png", "c/7.png", "c/8.png"],
        labelled=True,
        split="train",
        row=[900, 901, 902],
        group="g",
    )
    run = plan([again, WHOLE])
    assert shards_of(run) == shards_of(plan([WHOLE]))
    assert run.rejects == [
        ("c/7.png", "duplicate_id"),
        ("c/7.png", "duplicate_id"),
        ("c/8.png", "duplicate_id"),
    ]
    assert run.counters == {"rejects_duplicate_id": 3}


def test_nothing() -> None:
    run = plan([])
    assert (run.outputs["shards"], run.rejects) == ([], [])
    assert [layout.num_records for layout in run.outputs["layout"]] == [0]


@pytest.mark.parametrize("slice_of", [WHOLE, WHOLE.slice(50, 3)])
def test_a_plan_travels(slice_of: pa.RecordBatch) -> None:
    made = ShardPlan.make(ShardName("pets", "train", 0, 1), slice_of, b"s")
    travelled = pickle.loads(pickle.dumps(made))
    assert (travelled.name, travelled.digest, travelled.references.equals(made.references)) == (
        made.name,
        made.digest,
        True,
    )
