"""Counts and stratified splits: exact to a record in any order of input; groups stay whole."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import BuildError
from shardwright.transforms.splits.split_rules import SplitDraw, SplitRule, parse_split, split_hash
from tests.support.helpers import references, rows_of
from tests.support.random_tests import examples

THREE = parse_split("train=0.8,validation=0.1,test=0.1")
RULES = [
    THREE,
    *map(parse_split, ("a=0.5,b=0.5", "a=0.3,b=0.3,c=0.2,d=rest", "only", "a=1,b=rest")),
]
LABELS = st.lists(st.sampled_from(["cat", "dog", "eel", "fox", None]), min_size=1, max_size=120)
SEEDS = st.integers(0, 2**32 - 1)
LABEL_AND_GROUP = st.tuples(st.sampled_from(["cat", "dog", "eel"]), st.integers(0, 60))
Batches = Sequence[pa.RecordBatch]


def splits_in(batches: Batches) -> dict[str, str]:
    return {row["id"]: row["split"] for row in rows_of(batches)}


def drawn(
    batches: Batches, rule: SplitRule, *, stratify: bool = True, grouped: bool = False
) -> dict[str, str]:
    """Take the steps of DrawSplits without Beam: return id -> split."""
    draw = SplitDraw(rule, stratify, grouped)
    found = draw.decide(map(draw.hashes_of, batches))
    return splits_in([found.split(batch) for batch in batches])


def batch_of(
    labels: Sequence[str | None], groups: Sequence[str | None] | None = None
) -> pa.RecordBatch:
    ids = [f"image {number}" for number in range(len(labels))]
    return references(ids, label=list(labels), group=list(groups) if groups else None)


def cut_up(batch: pa.RecordBatch, size: int) -> list[pa.RecordBatch]:
    return [batch.slice(start, size) for start in range(0, batch.num_rows, size)]


@given(labels=LABELS, rule=st.sampled_from(RULES))
def test_classes_are_exact_to_a_record_and_totals_exactly(
    labels: list[str | None], rule: SplitRule
) -> None:
    if not any(labels):
        labels = [*labels, "cat"]
    splits = drawn([batch_of(labels)], rule)
    totals = dict(zip(rule.names, rule.totals(len(labels)).tolist(), strict=True))
    cells = Counter((label, splits[f"image {row}"]) for row, label in enumerate(labels))
    assert Counter(splits.values()) == Counter(totals)
    for label, number in Counter(labels).items():
        for name, total in totals.items():
            assert abs(cells[label, name] - number * total / len(labels)) <= 1 + 1e-9


@examples(25)
@given(labels=LABELS, rule=st.sampled_from(RULES), seed=SEEDS, size=st.integers(1, 50))
def test_order_and_batches_change_nothing(
    labels: list[str | None], rule: SplitRule, seed: int, size: int
) -> None:
    labels = ["cat", *labels]
    groups = [f"g{number % 40}" for number in range(len(labels))]
    order = np.random.default_rng(seed).permutation(len(labels))
    batch = batch_of(labels, groups)
    mixed = cut_up(batch.take(pa.array(order)), size)
    for stratify, grouped in itertools.product((True, False), repeat=2):
        try:
            whole = drawn([batch], rule, stratify=stratify, grouped=grouped)
        except BuildError:  # too few groups
            assert grouped
            continue
        assert drawn(mixed, rule, stratify=stratify, grouped=grouped) == whole


def test_counts_cut_by_rank_of_the_hash_that_fractions_use() -> None:
    """Splits by counts and by fractions agree as far as they can."""
    batch = batch_of(["cat"] * 1000)
    splits = drawn([batch], parse_split("a=100,b=rest"))
    lowest = {f"image {row}" for row in np.argsort(split_hash(batch.column("id")))[:100]}
    assert {name for name, split in splits.items() if split == "a"} == lowest
    assert drawn([batch_of(["cat"] * 1000, ["g"] * 1000)], parse_split("a=100,b=rest")) == splits


def test_an_added_image_moves_few() -> None:
    labels = ["cat", "dog"] * 500
    before, after = (drawn([batch_of(some)], THREE) for some in (labels, [*labels, "dog"]))
    assert sum(after[image_id] != split for image_id, split in before.items()) <= 3


def test_nothing_to_draw() -> None:
    assert drawn([], THREE) == drawn([batch_of([])], THREE) == drawn([], THREE, grouped=True) == {}


@pytest.mark.parametrize("grouped", [False, True])
def test_stratify_needs_labels(grouped: bool) -> None:
    with pytest.raises(BuildError, match="no record has a label of its own"):
        drawn([batch_of([None] * 9)], THREE, grouped=grouped)
    splits = drawn([batch_of([None] * 90)], THREE, stratify=False, grouped=grouped)
    assert Counter(splits.values()) == {"train": 72, "validation": 9, "test": 9}


@examples(25)
@given(st.lists(LABEL_AND_GROUP, min_size=60, max_size=300), st.sampled_from(RULES), st.booleans())
def test_groups_stay_whole(rows: list[tuple[str, int]], rule: SplitRule, stratify: bool) -> None:
    groups = [f"group {number}" if number else None for _, number in rows]
    batch = batch_of([label for label, _ in rows], groups)
    try:
        splits = drawn([batch], rule, stratify=stratify, grouped=True)
    except BuildError:  # test_too_few_groups
        return
    pairs = {(group or row, splits[f"image {row}"]) for row, group in enumerate(groups)}
    assert len(pairs) == len({group for group, _ in pairs})


def test_groups_come_near_to_sizes_and_classes() -> None:
    """1,400 patients of 1 to about 70 images, most of them of the patient's own disease."""
    random = np.random.default_rng(1)
    groups = [f"patient {int(number)}" for number in random.exponential(300, 20_000)]
    own = {group: random.integers(10) for group in sorted(set(groups))}
    labels = [
        f"class {own[group] if random.random() < 0.7 else random.integers(10)}" for group in groups
    ]
    splits = drawn(cut_up(batch_of(labels, groups), 3000), THREE, grouped=True)
    counts = Counter(splits.values())
    assert [counts[name] for name in THREE.names] == pytest.approx([16_000, 2000, 2000], abs=5)
    cells = Counter((label, splits[f"image {row}"]) for row, label in enumerate(labels))
    for label, number in Counter(labels).items():
        shares = [cells[label, name] / counts[name] for name in THREE.names]
        assert shares == pytest.approx([number / 20_000] * 3, abs=0.002)


def test_too_few_groups() -> None:
    batch = batch_of(["cat"] * 100, ["left"] * 50 + ["right"] * 50)
    message = "no group fits into split validation and test: INPUT has 2 groups, which stay whole"
    with pytest.raises(BuildError, match=message):
        drawn([batch], THREE, grouped=True)
