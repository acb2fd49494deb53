"""A shard's plan: its digest, and pickling. `test_references` has the digest's details."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from shardwright.format.naming import ShardName
from shardwright.transforms.plan.packing import ShardPlan
from tests.support.helpers import references

NAME = ShardName("tiny", "train", 0, 1)


def digest(settings: bytes = b"s", ids: tuple[str, ...] = ("a", "b"), **columns: Any) -> str:
    labels = {"label_index": [0] * len(ids)} | columns
    return ShardPlan.make(NAME, references(ids, **labels), settings).digest


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": b"t"}, {"ids": ("b", "a")}, {"ids": ("a", "c")}, {"ids": ("a", "b", "c")},
        {"uri": ["/in/a", "/elsewhere/b"]}, {"num_bytes": [1000, 1001]}, {"etag": ["e", "f"]},
        {"etag": ["e", None]}, {"split": "test"}, {"label": ["cat", None]},
        {"label_index": [0, 1]}, {"x/age": [1, 2]},
    ],
    ids=str,
)  # fmt: skip
def test_the_digest_changes_with_all_that_decides_bytes(changes: dict[str, Any]) -> None:
    assert digest(**changes) != digest()


@pytest.mark.parametrize("changes", [{"row": [7, 3]}, {"group": ["g", "h"]}])
def test_the_digest_ignores_rows_and_groups(changes: dict[str, Any]) -> None:
    assert digest(**changes) == digest()


@pytest.mark.parametrize("start", [0, 1])
def test_a_plan_survives_pickling(start: int) -> None:
    lists = {"x/list": [[1, 2], [3], []]}
    batch = references(["z", "a", "ä\U0001f600"], labelled=True, extras=lists).slice(start, 2)
    plan = ShardPlan.make(NAME, batch, b"s")
    assert pickle.loads(pickle.dumps(plan)) == plan
