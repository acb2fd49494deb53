"""AssignSplits in a pipeline."""

from __future__ import annotations

from tests.helpers import references, run_transform
from transforms.assign_splits import AssignSplits
from transforms.splits import SplitFractions


def test_drawn_splits_do_not_depend_on_batches() -> None:
    ids = [str(number) for number in range(300)]
    fractions = SplitFractions(("train", "test"), (0.5, 0.5))
    whole = run_transform(AssignSplits(fractions), [references(ids)])
    parts = run_transform(AssignSplits(fractions), [references(ids[start : start + 7]) for start in range(0, 300, 7)])
    splits = {row["id"]: row["split"] for row in whole.rows}
    assert splits == {row["id"]: row["split"] for row in parts.rows}
    assert set(splits.values()) == {"train", "test"}
    assert (whole.rejects, whole.counters) == ([], {})


def test_without_fractions_all_is_train() -> None:
    run = run_transform(AssignSplits(), [references(["1", "2"])])
    assert [row["split"] for row in run.rows] == ["train", "train"]


def test_given_splits() -> None:
    run = run_transform(AssignSplits(given=True), [references(["1", "2"], split=["test", None]), references(["3"], split="not a name")])
    assert [(row["id"], row["split"]) for row in run.rows] == [("1", "test")]
    assert (run.rejects, run.counters) == ([("2", "unknown_split"), ("3", "unknown_split")], {"rejects_unknown_split": 2})


def test_nothing() -> None:
    run = run_transform(AssignSplits(), [])
    assert (run.rows, run.rejects, run.counters) == ([], [], {})
