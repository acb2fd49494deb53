"""Splits: stable for each id, near the requested fractions; groups stay whole."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import BuildError, UsageError
from shardwright.transforms.hashing import hash64
from shardwright.transforms.splits.split_rules import (
    SplitRule,
    assign_splits,
    parse_split,
    rule_for_additions,
)
from tests.support.helpers import references, rejects_of, rows_of

NAMES = ("train", "validation", "test")
THREE = SplitRule(NAMES, (0.8, 0.1, 0.1))
ONE = SplitRule(("all_of_it",), (1.0,))
IDS = [f"class_{number % 10}/image {number}.jpg" for number in range(10_000)]


TWO = ("train", "test")


@pytest.mark.parametrize(("text", "rule"), [
    ("train=0.8,validation=0.1,test=0.1", THREE),
    (" train = 0.25 , test=.75", SplitRule(TWO, (0.25, 0.75))),
    ("all_of_it", ONE),
    ("all_of_it=1", ONE),
    ("all_of_it=rest", ONE),
    (
        "train=0.3333333,validation=0.3333333,test=0.3333334",
        SplitRule(NAMES, (0.3333333, 0.3333333, 0.3333334)),
    ),
    ("train=1e-3,test=0.999", SplitRule(TWO, (0.001, 0.999))),
    ("train=0.25,test=rest", SplitRule(TWO, (0.25, 0.75))),
    ("train=5000, validation = 1000 ,test=rest", SplitRule(NAMES, (5000, 1000, None))),
    ("train=rest,test=1", SplitRule(TWO, (None, 1))),
    ("train=1e3,test=rest", SplitRule(TWO, (1000, None))),
])  # fmt: skip
def test_rules(text: str, rule: SplitRule) -> None:
    assert parse_split(text) == rule


SUM = "fractions must each be above 0 and add up to 1"
TWO_RESTS = (
    "--split: exactly one split must get the rest, got 2; use for example test=5000,train=rest"
)
MIXED = "use either fractions below 1 or whole numbers of records"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--split: '' is not a valid split name; use letters, digits and underscores"),
        ("train=0.8,", "'' is not a valid split name"), ("=1", "'' is not a valid split name"),
        ("hold-out=1", "'hold-out' is not a valid split name"),
        ("a/b=1", "'a/b' is not a valid split name"),
        ("rest=rest,test test=5", "'test test' is not a valid split name"),
        ("a=0.8;b=0.2",
         "'0.8;b=0.2' in 'a=0.8;b=0.2' is not a number; use for example train=0.8,test=0.2"),
        ("train=", "'' in 'train=' is not a number"), ("a,b=rest", "'' in 'a=' is not a number"),
        ("train=80%,test=20%", "'80%' in 'train=80%' is not a number"),
        ("test=x,train=rest", "'x' in 'test=x' is not a number"),
        ("train=0.5,train=0.5", "--split has a duplicate name: train, train"),
        ("test=5,test=rest", "--split has a duplicate name: test, test"),
        ("train=0.8,test=0.1", f"--split train=0.8,test=0.1: {SUM}"),
        ("train=80,test=20", SUM), ("train=1,test=0", SUM), ("train=1.5,test=-0.5", SUM),
        ("train=nan,test=1", SUM), ("train=inf", SUM), ("train,test", SUM),
        ("test=0.6,validation=0.6,train=rest", SUM),
        ("test=5000,train=rest,other=rest", TWO_RESTS), ("a=0.1,b=rest,c=rest", TWO_RESTS),
        ("test=0.5,validation=100,train=rest", MIXED), ("test=1.5,train=rest", MIXED),
        ("test=nan,train=rest", MIXED),
        ("test=0,train=rest", "--split: test=0 must be at least 1 record"),
        ("test=-5,train=rest", "test=-5 must be at least 1 record"),
    ],
)  # fmt: skip
def test_rule_errors(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_split(text)


def test_additions_need_no_other_records() -> None:
    assert rule_for_additions(None) is None
    assert rule_for_additions(THREE) == THREE
    wanted = SplitRule(("test",))
    assert rule_for_additions(SplitRule(TWO, (7, None))) == wanted


def test_totals() -> None:
    assert THREE.totals(7).tolist() == [5, 1, 1]
    rule = parse_split("test=3,train=rest,validation=2")
    assert rule.totals(10).tolist() == [3, 5, 2]
    assert rule.totals(5).tolist() == [3, 0, 2]
    message = "--split needs 5 records in test and validation, but INPUT has 4"
    with pytest.raises(BuildError, match=message):
        rule.totals(4)


def assigned(ids: list[str], fractions: SplitRule | None = THREE, **columns: Any) -> dict[str, str]:
    parts = assign_splits(references(ids, **columns), fractions, given=False)
    return {row["id"]: row["split"] for row in rows_of(parts)}


@pytest.fixture(scope="module")
def splits() -> dict[str, str]:
    return assigned(IDS)


def test_proportions(splits: dict[str, str]) -> None:
    """10,000 ids: a tenth is 1,000, and 150 is five standard deviations."""
    counts = Counter(splits.values())
    assert counts["train"] == pytest.approx(8000, abs=200)
    assert counts["validation"] == pytest.approx(1000, abs=150)
    assert counts["test"] == pytest.approx(1000, abs=150)


def test_golden_splits() -> None:
    """Another assignment would move test images of published datasets into training."""
    assert " ".join(split[:2] for split in assigned(IDS[:24]).values()) == (
        "te te tr tr tr te tr va va tr tr tr tr tr tr tr tr tr tr tr tr tr te tr"
    )


@given(some=st.lists(st.sampled_from(IDS), unique=True, min_size=1, max_size=50))
def test_an_id_keeps_its_split_with_any_others(splits: dict[str, str], some: list[str]) -> None:
    assert assigned(some) == {image_id: splits[image_id] for image_id in some}


def test_a_larger_split_keeps_its_ids(splits: dict[str, str]) -> None:
    """Fractions are ranges of one line, in order: moving one end moves nothing elsewhere."""
    after = assigned(IDS, SplitRule(NAMES, (0.8, 0.05, 0.15)))
    changes = {(splits[name], after[name]) for name in IDS if splits[name] != after[name]}
    assert changes == {("validation", "test")}


def test_groups_stay_together() -> None:
    patients = [f"patient {number % 700}" for number in range(len(IDS))]
    found = assigned(IDS, group=patients)
    pairs = {(patient, found[name]) for name, patient in zip(IDS, patients, strict=True)}
    assert len(pairs) == 700
    assert Counter(split for _, split in pairs)["test"] == pytest.approx(70, abs=40)


def test_without_a_group_the_id_counts(splits: dict[str, str]) -> None:
    groups = [None if number % 2 else "one patient" for number in range(1000)]
    found = assigned(IDS[:1000], group=groups)
    assert len({found[image_id] for image_id in IDS[:1000:2]}) == 1
    assert all(found[image_id] == splits[image_id] for image_id in IDS[1:1000:2])


def test_the_split_does_not_follow_the_order_of_the_shuffle(splits: dict[str, str]) -> None:
    """With one hash for both, test would be one end of the order."""
    order = np.argsort(hash64(pa.array(IDS), "shardwright/order/0"))
    in_first_half = sum(splits[IDS[position]] == "test" for position in order[:5000])
    assert in_first_half == pytest.approx(500, abs=110)


@pytest.mark.parametrize(("fractions", "name"), [(None, "train"), (ONE, "all_of_it")])
def test_one_split_for_all(fractions: SplitRule | None, name: str) -> None:
    assert set(assigned(IDS[:100], fractions).values()) == {name}


def test_given_splits() -> None:
    names = ["train", "my_split", None, "", "hold out", "a/b", "é", "Val2"]
    batch = references([str(number) for number in range(8)], split=names)
    parts = list(assign_splits(batch, None, given=True))
    assert rows_of(assign_splits(batch.slice(2, 2), None, given=True)) == []
    found = {row["id"]: row["split"] for row in rows_of(parts)}
    assert found == {"0": "train", "1": "my_split", "7": "Val2"}
    rule = "is empty or not a name of letters, digits and _"
    assert [(reject.id, str(reject.reason), reject.detail) for reject in rejects_of(parts)] == [
        (str(number), "unknown_split", f"split {names[number]!r} {rule}") for number in range(2, 7)
    ]
