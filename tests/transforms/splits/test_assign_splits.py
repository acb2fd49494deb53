"""AssignSplits, DrawSplits and ListSplits in a pipeline."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shardwright.transforms.references import set_column
from shardwright.transforms.splits.assign_splits import AssignSplits, DrawSplits
from shardwright.transforms.splits.list_splits import ListSplits
from shardwright.transforms.splits.split_lists import SplitLists
from shardwright.transforms.splits.split_rules import parse_split
from tests.support.helpers import Run, references, run_transform

LABELS = [f"class {number % 5}" for number in range(300)]
ALL = references([str(number) for number in range(300)], label=LABELS)
PATIENTS = [f"patient {number // 6}" for number in range(300)]
GROUPED = set_column(ALL, "group", pa.array(PATIENTS))


def step(
    rule: str | None, listed: SplitLists | None = None, **options: bool
) -> AssignSplits | DrawSplits | ListSplits:
    """Return the transform of a rule, as a build chooses it."""
    parsed = None if rule is None else parse_split(rule)
    if parsed is not None and (parsed.is_exact or any(options.values())):
        drawn: AssignSplits | DrawSplits = DrawSplits(parsed, **options)
    else:
        drawn = AssignSplits(parsed)
    return drawn if listed is None else ListSplits(listed, rule and drawn)


def assign(rule: str | None = None, *, batch: Any = ALL, size: int = 31, **options: Any) -> Run:
    """Assign splits to 300 references in batches of a size."""
    transform = step(rule, **options)
    return run_transform(transform, [batch.slice(at, size) for at in range(0, 300, size)])


def splits_in(run: Run) -> list[str]:
    """Return the splits in the order of the references; there must be no rejects."""
    assert (run.rejects, run.counters) == ([], {})
    splits = {int(row["id"]): row["split"] for row in run.rows}
    return [splits[number] for number in range(300)]


def test_given_splits() -> None:
    batches = [references(["1", "2"], split=["test", None]), references(["3"], split="not a name")]
    run = run_transform(AssignSplits(given=True), batches)
    assert [(row["id"], row["split"]) for row in run.rows] == [("1", "test")]
    assert run.rejects == [("2", "unknown_split"), ("3", "unknown_split")]
    assert run.counters == {"rejects_unknown_split": 2}


@pytest.mark.long_but_first
@pytest.mark.parametrize("stratify", [True, False])
@pytest.mark.parametrize(
    ("rule", "counts"),
    [("test=37,train=rest", [37, 263]), ("test=0.2,train=0.8", [60, 240])],
)
def test_drawn_splits(rule: str, counts: list[int], stratify: bool) -> None:
    splits = splits_in(assign(rule, stratify=stratify))
    test, train = splits.count("test"), splits.count("train")
    if stratify or "rest" in rule:
        assert [test, train] == counts
    else:
        assert splits == splits_in(assign(rule, size=300)), "batches change no split"
        assert (test, train) == (pytest.approx(60, abs=30), 300 - test)
    cells = Counter(zip(LABELS, splits, strict=True))
    in_class = {counts[0] // 5, -(-counts[0] // 5)}
    assert ({cells[label, "test"] for label in LABELS} <= in_class) == stratify


def test_exact_numbers_are_not_assigned_one_by_one() -> None:
    with pytest.raises(ValueError, match="states exact numbers: use DrawSplits"):
        AssignSplits(parse_split("test=37,train=rest"))


def test_groups() -> None:
    run = assign("test=60,train=rest", batch=GROUPED, stratify=True, grouped=True)
    splits = splits_in(run)
    assert Counter(splits) == {"test": 60, "train": 240}
    assert all(len(set(splits[start : start + 6])) == 1 for start in range(0, 300, 6))


def test_nothing() -> None:
    for transform in (step(None), step("test=0.5,train=rest", stratify=True)):
        run = run_transform(transform, [])
        assert (run.rows, run.rejects, run.counters) == ([], [], {})


@pytest.fixture
def listed(tmp_path: Path) -> SplitLists:
    """A list of 20 ids of test, 10 of them missing in the input."""
    (tmp_path / "test.txt").write_text("".join(f"{number}\n" for number in range(290, 310)))
    return SplitLists.parse([f"test={tmp_path}/test.txt"])


@pytest.mark.parametrize(("rule", "stratify", "counts"), [
    ("train=rest", False, {"test": 10, "train": 290}),
    ("a=0.5,b=0.5", True, {"test": 10, "a": 145, "b": 145}),
])  # fmt: skip
def test_ids_not_listed_are_drawn(
    listed: SplitLists, rule: str, stratify: bool, counts: dict[str, int]
) -> None:
    run = assign(rule, stratify=stratify, listed=listed, size=50)
    assert Counter(row["split"] for row in run.rows) == counts
    assert {row["split"] for row in run.rows if int(row["id"]) >= 290} == {"test"}
    assert run.rejects == [(str(number), "unused_id") for number in range(300, 310)]


def test_ids_not_listed_are_rejects_without_a_rule(listed: SplitLists) -> None:
    run = run_transform(ListSplits(listed), [references(["1", "295"])])
    assert [(row["id"], row["split"]) for row in run.rows] == [("295", "test")]
    assert run.rejects[0] == ("1", "unknown_split")
    assert run.counters == {"rejects_unknown_split": 1, "rejects_unused_id": 19}
