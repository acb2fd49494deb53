"""A shard's plan: what its digest depends on, and that it crosses processes whole."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from shardwright.naming import ShardName
from tests.helpers import references
from transforms.planning.shard_plans import ShardPlan
from transforms.references import set_column

NAME = ShardName("tiny", "train", 0, 1)


def digest(settings: bytes = b"s", ids: tuple[str, ...] = ("a", "b"), **columns: Any) -> str:
    labels = {"label_index": [0] * len(ids)} | columns
    return ShardPlan.make(NAME, references(ids, **labels), settings).digest


@pytest.mark.parametrize(
    "changes",
    [
        {"settings": b"t"},
        {"ids": ("b", "a")},
        {"ids": ("a", "c")},
        {"ids": ("a", "b", "c")},
        {"uri": ["/in/a", "/elsewhere/b"]},
        {"num_bytes": [1000, 1001]},
        {"etag": ["e", "f"]},
        {"etag": ["e", None]},
        {"split": "test"},
        {"label": ["cat", None]},
        {"label_index": [0, 1]},
        {"x/age": [1, 2]},
    ],
)
def test_the_digest_changes_with_all_that_decides_bytes(changes: dict[str, Any]) -> None:
    assert digest(**changes) != digest()


@pytest.mark.parametrize("changes", [{"row": [7, 3]}, {"group": ["g", "h"]}])
def test_the_digest_does_not_change_with_what_is_settled_before(changes: dict[str, Any]) -> None:
    assert digest(**changes) == digest()


def test_the_digest_of_a_slice_is_that_of_its_rows() -> None:
    whole = references(["z", "a", "b", "y"], labelled=True, row=0)
    assert ShardPlan.make(NAME, whole.slice(1, 2), b"s").digest == digest()


def test_values_cannot_slip_from_one_row_to_the_next() -> None:
    assert digest(ids=("ab", "c"), uri="/in") != digest(ids=("a", "bc"), uri="/in")
    lists = [
        digest(**{"x/tags": value})
        for value in ([["a"], []], [[], ["a"]], [["a", "b"], []], [["ab"], []])
    ]
    assert len(set(lists)) == 4


def test_a_null_is_not_an_empty_value() -> None:
    assert digest(label=[None, "a"]) != digest(label=["", "a"])
    assert digest(**{"x/n": pa.array([None, 1]).to_pylist()}) != digest(**{"x/n": [0, 1]})


def test_a_plan_survives_pickling() -> None:
    batch = set_column(
        references(["a", "ä\U0001f600"], labelled=True),
        "x/list",
        pa.array([[1, 2], []], pa.list_(pa.int64())),
    )
    plan = ShardPlan.make(NAME, batch, b"s")
    restored = pickle.loads(pickle.dumps(plan))
    assert restored == plan
