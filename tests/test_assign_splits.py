"""AssignSplits in a pipeline."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from shardwright.errors import BuildError
from tests.helpers import references, run_transform
from transforms.assign_splits import AssignSplits
from transforms.splitting.split_lists import SplitLists
from transforms.splitting.splits import SplitFractions, parse_split


def test_drawn_splits_do_not_depend_on_batches() -> None:
    ids = [str(number) for number in range(300)]
    fractions = SplitFractions(("train", "test"), (0.5, 0.5))
    whole = run_transform(AssignSplits(fractions), [references(ids)])
    parts = run_transform(
        AssignSplits(fractions), [references(ids[start : start + 7]) for start in range(0, 300, 7)]
    )
    splits = {row["id"]: row["split"] for row in whole.rows}
    assert splits == {row["id"]: row["split"] for row in parts.rows}
    assert set(splits.values()) == {"train", "test"}
    assert (whole.rejects, whole.counters) == ([], {})


def test_without_fractions_all_is_train() -> None:
    run = run_transform(AssignSplits(), [references(["1", "2"])])
    assert [row["split"] for row in run.rows] == ["train", "train"]


def test_given_splits() -> None:
    run = run_transform(
        AssignSplits(given=True),
        [references(["1", "2"], split=["test", None]), references(["3"], split="not a name")],
    )
    assert [(row["id"], row["split"]) for row in run.rows] == [("1", "test")]
    assert (run.rejects, run.counters) == (
        [("2", "unknown_split"), ("3", "unknown_split")],
        {"rejects_unknown_split": 2},
    )


def test_nothing() -> None:
    run = run_transform(AssignSplits(), [])
    assert (run.rows, run.rejects, run.counters) == ([], [], {})


LABELS = [f"class {number % 5}" for number in range(300)]


def splits_of(transform: AssignSplits, **columns: list[str]) -> dict[str, str]:
    """Of 300 references, the same in one batch and in many."""
    batch = references([str(number) for number in range(300)], label=LABELS, **columns)
    whole = run_transform(transform, [batch])
    parts = run_transform(transform, [batch.slice(start, 31) for start in range(0, 300, 31)])
    assert whole.rows == parts.rows
    assert whole.rejects == parts.rejects == []
    return {row["id"]: row["split"] for row in whole.rows}


@pytest.mark.parametrize("stratify", [True, False])
def test_counts(stratify: bool) -> None:
    splits = splits_of(AssignSplits(parse_split("test=37,train=rest"), stratify=stratify))
    assert Counter(splits.values()) == {"test": 37, "train": 263}
    by_class = Counter(
        LABELS[int(image_id)] for image_id, split in splits.items() if split == "test"
    )
    assert (set(by_class.values()) <= {7, 8}) == stratify


def test_stratified_fractions() -> None:
    splits = splits_of(AssignSplits(parse_split("train=0.8,test=0.2"), stratify=True))
    assert Counter((LABELS[int(image_id)], split) for image_id, split in splits.items()) == {
        (label, split): number
        for label in set(LABELS)
        for split, number in (("train", 48), ("test", 12))
    }


@pytest.mark.parametrize("stratify", [True, False])
def test_groups(stratify: bool) -> None:
    groups = [f"patient {number // 6}" for number in range(300)]
    splits = splits_of(
        AssignSplits(parse_split("test=60,train=rest"), stratify=stratify, grouped=True),
        group=groups,
    )
    assert Counter(splits.values()) == {"test": 60, "train": 240}
    assert all(
        len({splits[str(number)] for number in range(start, start + 6)}) == 1
        for start in range(0, 300, 6)
    )


def test_more_records_than_there_are() -> None:
    with pytest.raises(BuildError, match="--split asks for 301 records in test, and INPUT has 300"):
        splits_of(AssignSplits(parse_split("test=301,train=rest")))


@pytest.mark.parametrize("stratify", [True, False])
def test_counts_of_nothing(stratify: bool) -> None:
    run = run_transform(AssignSplits(parse_split("test=0.5,train=rest"), stratify=stratify), [])
    assert (run.rows, run.rejects) == ([], [])


def lists(folder: Path) -> SplitLists:
    (folder / "test.txt").write_text("".join(f"{number}\n" for number in range(290, 310)))
    return SplitLists.parse([f"test={folder / 'test.txt'}"])


@pytest.mark.parametrize(
    ("rule", "stratify", "counts"),
    [
        ("train=rest", False, {"test": 10, "train": 290}),
        ("a=100,b=rest", False, {"test": 10, "a": 100, "b": 190}),
        ("a=0.5,b=0.5", True, {"test": 10, "a": 145, "b": 145}),
        ("test=58,b=rest", False, {"test": 68, "b": 232}),
    ],
)
def test_what_is_not_listed_is_drawn(
    tmp_path: Path, rule: str, stratify: bool, counts: dict[str, int]
) -> None:
    batch = references([str(number) for number in range(300)], label=LABELS)
    transform = AssignSplits(parse_split(rule), stratify=stratify, listed=lists(tmp_path))
    run = run_transform(transform, [batch.slice(start, 50) for start in range(0, 300, 50)])
    assert Counter(row["split"] for row in run.rows) == counts
    assert {row["split"] for row in run.rows if int(row["id"]) >= 290} == {"test"}
    assert run.rejects == [(str(number), "unused_id") for number in range(300, 310)]


def test_what_is_not_listed_is_a_reject_where_nothing_is_drawn(tmp_path: Path) -> None:
    run = run_transform(AssignSplits(listed=lists(tmp_path)), [references(["1", "295"])])
    assert [(row["id"], row["split"]) for row in run.rows] == [("295", "test")]
    assert run.rejects[0] == ("1", "unknown_split")
    assert run.counters == {"rejects_unknown_split": 1, "rejects_unused_id": 19}
