"""Splits: stable under whatever else is in the input, near the fractions asked for, and groups never torn apart."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.errors import BuildError, UsageError
from tests.helpers import references, rejects_of, rows_of
from transforms.hashing import hash64
from transforms.splitting.splits import SplitCounts, SplitFractions, assign_splits, parse_split

THREE = SplitFractions(("train", "validation", "test"), (0.8, 0.1, 0.1))
IDS = [f"class_{number % 10}/image {number}.jpg" for number in range(10_000)]


@pytest.mark.parametrize(
    ("text", "names", "fractions"),
    [
        ("train=0.8,validation=0.1,test=0.1", ("train", "validation", "test"), (0.8, 0.1, 0.1)),
        (" a = 0.25 , b=.75", ("a", "b"), (0.25, 0.75)),
        ("all_of_it", ("all_of_it",), (1.0,)),
        ("x=1", ("x",), (1.0,)),
        ("a=0.3333333,b=0.3333333,c=0.3333334", ("a", "b", "c"), (0.3333333, 0.3333333, 0.3333334)),
        ("a=1e-3,b=0.999", ("a", "b"), (0.001, 0.999)),
    ],
)
def test_fractions(text: str, names: tuple[str, ...], fractions: tuple[float, ...]) -> None:
    assert SplitFractions.parse(text) == SplitFractions(names, fractions)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--split: '' is no split name; use letters, digits and underscores"),
        ("train=0.8,", "'' is no split name"),
        ("=1", "'' is no split name"),
        ("hold-out=1", "'hold-out' is no split name"),
        ("a/b=1", "'a/b' is no split name"),
        (
            "train=0.8;test=0.2",
            "'0.8;test=0.2' in 'train=0.8;test=0.2' is no number; write train=0.8,test=0.2",
        ),
        ("train=", "'' in 'train=' is no number"),
        ("train=80%,test=20%", "'80%' in 'train=80%' is no number"),
        ("train=0.5,train=0.5", "--split names a split twice: train, train"),
        (
            "train=0.8,test=0.1",
            "--split train=0.8,test=0.1: fractions must each be above 0 and add up to 1",
        ),
        ("train=80,test=20", "above 0 and add up to 1"),
        ("train=1,test=0", "above 0 and add up to 1"),
        ("train=1.5,test=-0.5", "above 0 and add up to 1"),
        ("train=nan,test=1", "above 0 and add up to 1"),
        ("train=inf", "above 0 and add up to 1"),
        ("train,test", "above 0 and add up to 1"),
    ],
)
def test_fraction_errors(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SplitFractions.parse(text)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("train=0.8,test=0.2", SplitFractions(("train", "test"), (0.8, 0.2))),
        ("all_of_it", SplitFractions(("all_of_it",), (1.0,))),
        ("train=rest", SplitFractions(("train",), (1.0,))),
        ("test=0.25,train=rest", SplitFractions(("test", "train"), (0.25, 0.75))),
        (
            "test=5000, validation = 1000 ,train=rest",
            SplitCounts(("test", "validation", "train"), (5000, 1000, None)),
        ),
        ("train=rest,test=1", SplitCounts(("train", "test"), (None, 1))),
        ("test=1e3,train=rest", SplitCounts(("test", "train"), (1000, None))),
    ],
)
def test_rules(text: str, rule: SplitFractions | SplitCounts) -> None:
    assert parse_split(text) == rule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train=80,test=20", "above 0 and add up to 1"),
        (
            "test=5000,train=rest,other=rest",
            "--split: 2 splits are to get the rest; give one, as in test=5000,train=rest",
        ),
        ("test=0.1,train=rest,other=rest", "2 splits are to get the rest"),
        ("test=0.6,validation=0.6,train=rest", "fractions must each be above 0 and add up to 1"),
        (
            "test=0.5,validation=100,train=rest",
            "give fractions below 1, or whole numbers of records, and not both",
        ),
        ("test=1.5,train=rest", "give fractions below 1, or whole numbers"),
        ("test=nan,train=rest", "give fractions below 1, or whole numbers"),
        ("test=0,train=rest", "--split: test=0 is no number of records; give 1 or more"),
        ("test=-5,train=rest", "test=-5 is no number of records"),
        ("test=x,train=rest", "'x' in 'test=x' is no number"),
        ("test,train=rest", "'' in 'test=' is no number"),
        ("rest=rest,test test=5", "'test test' is no split name"),
        ("test=5,test=rest", "--split names a split twice: test, test"),
    ],
)
def test_rule_errors(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_split(text)


def test_totals() -> None:
    assert THREE.totals(7).tolist() == [5, 1, 1]
    rule = parse_split("test=3,train=rest,validation=2")
    assert rule.totals(10).tolist() == [3, 5, 2]
    assert rule.totals(5).tolist() == [3, 0, 2]
    with pytest.raises(
        BuildError,
        match="--split asks for 5 records in test and validation, and INPUT has 4 to draw from",
    ):
        rule.totals(4)


def assigned(
    ids: list[str], fractions: SplitFractions | None = THREE, **columns: Any
) -> dict[str, str]:
    return {
        row["id"]: row["split"]
        for row in rows_of(assign_splits(references(ids, **columns), fractions, given=False))
    }


def test_proportions() -> None:
    """10,000 ids: a tenth is 1,000, and 150 is five standard deviations."""
    counts = Counter(assigned(IDS).values())
    assert counts["train"] == pytest.approx(8000, abs=200)
    assert counts["validation"] == pytest.approx(1000, abs=150)
    assert counts["test"] == pytest.approx(1000, abs=150)


def test_golden_splits() -> None:
    """Another assignment would move test images of published datasets into training."""
    assert " ".join(split[:2] for split in assigned(IDS[:24]).values()) == (
        "te te tr tr tr te tr va va tr tr tr tr tr tr tr tr tr tr tr tr tr te tr"
    )


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_an_id_keeps_its_split_whatever_comes_or_goes(data: st.DataObject) -> None:
    some = data.draw(st.lists(st.sampled_from(IDS), unique=True, min_size=1, max_size=50))
    everything = assigned(IDS)
    assert assigned(some) == {image_id: everything[image_id] for image_id in some}


def test_a_larger_split_keeps_what_it_had() -> None:
    """Fractions are ranges of one line, in the order given: moving one end moves nothing elsewhere."""
    before, after = (
        assigned(IDS),
        assigned(IDS, SplitFractions(("train", "validation", "test"), (0.8, 0.05, 0.15))),
    )
    changes = {
        (before[image_id], after[image_id])
        for image_id in IDS
        if before[image_id] != after[image_id]
    }
    assert changes == {("validation", "test")}


def test_groups_stay_together() -> None:
    patients = [f"patient {number % 700}" for number in range(len(IDS))]
    splits = assigned(IDS, group=patients)
    of_group: dict[str, set[str]] = {}
    for image_id, patient in zip(IDS, patients, strict=True):
        of_group.setdefault(patient, set()).add(splits[image_id])
    assert {len(found) for found in of_group.values()} == {1}
    assert Counter(next(iter(found)) for found in of_group.values())["test"] == pytest.approx(
        70, abs=40
    )


def test_without_a_group_the_id_counts() -> None:
    groups = [None if number % 2 else "one patient" for number in range(1000)]
    splits = assigned(IDS[:1000], group=groups)
    assert len({splits[image_id] for image_id in IDS[:1000:2]}) == 1
    alone = assigned(IDS)
    assert all(splits[image_id] == alone[image_id] for image_id in IDS[1:1000:2])


def test_the_split_does_not_follow_the_order_of_the_shuffle() -> None:
    """Were both hashes the same, test would be one end of the order."""
    order = np.argsort(hash64(pa.array(IDS), "shardwright/order/0"))
    splits = assigned(IDS)
    in_first_half = sum(splits[IDS[position]] == "test" for position in order[:5000])
    assert in_first_half == pytest.approx(500, abs=110)


@pytest.mark.parametrize(
    ("fractions", "name"), [(None, "train"), (SplitFractions(("only",), (1.0,)), "only")]
)
def test_one_split_for_all(fractions: SplitFractions | None, name: str) -> None:
    assert set(assigned(IDS[:100], fractions).values()) == {name}


def test_given_splits() -> None:
    given_splits = ["train", "my_split", None, "", "hold out", "a/b", "é", "Val2"]
    batch = references([str(number) for number in range(8)], split=given_splits)
    parts = list(assign_splits(batch, None, given=True))
    assert {row["id"]: row["split"] for row in rows_of(parts)} == {
        "0": "train",
        "1": "my_split",
        "7": "Val2",
    }
    assert [(reject.id, str(reject.reason)) for reject in rejects_of(parts)] == [
        (str(number), "unknown_split") for number in range(2, 7)
    ]
    assert [reject.detail for reject in rejects_of(parts)][:3] == [
        "split None is empty or not a name of letters, digits and _",
        "split '' is empty or not a name of letters, digits and _",
        "split 'hold out' is empty or not a name of letters, digits and _",
    ]


@pytest.mark.parametrize("splits", [[], [None, None]])
def test_no_row_has_a_split(splits: list[str | None]) -> None:
    parts = list(
        assign_splits(
            references([str(n) for n in range(len(splits))], split=splits), None, given=True
        )
    )
    assert (rows_of(parts), len(rejects_of(parts))) == ([], len(splits))
