"""Counts and stratified splits: exact to a record, the same whatever the order of the input, and groups never torn."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.errors import BuildError
from tests.helpers import references, rows_of
from transforms.splitting import grouped_splits, stratified
from transforms.splitting.splits import SplitRule, parse_split, split_hash
from transforms.splitting.stratified import HashHistogram, count_hashes, merge_histograms

RULES = [
    parse_split(text)
    for text in (
        "train=0.8,validation=0.1,test=0.1",
        "a=0.5,b=0.5",
        "a=0.3,b=0.3,c=0.2,d=rest",
        "only",
    )
]
LABELS = st.lists(st.sampled_from(["cat", "dog", "eel", "fox", None]), min_size=1, max_size=120)


def drawn(
    batches: Sequence[pa.RecordBatch], rule: SplitRule, *, stratify: bool = True
) -> dict[str, str]:
    """The steps of AssignSplits, without Beam: id -> split."""
    cuts = stratified.find_cuts(
        merge_histograms(count_hashes(batch, stratify=stratify) for batch in batches),
        rule,
        stratify=stratify,
    )
    collected = [stratified.collect_hashes(batch, cuts, stratify=stratify) for batch in batches]
    thresholds = stratified.find_thresholds(collected, cuts, rule, stratify=stratify)
    return {
        row["id"]: row["split"]
        for row in rows_of(stratified.cut_batch(batch, thresholds) for batch in batches)
    }


def grouped(
    batches: Sequence[pa.RecordBatch], rule: SplitRule, *, stratify: bool = True
) -> dict[str, str]:
    buckets = defaultdict(list)
    for batch in batches:
        for bucket, pairs in grouped_splits.count_groups(batch, stratify=stratify):
            buckets[bucket].append(pairs)
    placed = grouped_splits.place_groups(
        [grouped_splits.find_kinds(parts) for parts in buckets.values()], rule, stratify=stratify
    )
    return {
        row["id"]: row["split"]
        for row in rows_of(grouped_splits.split_groups(batch, placed) for batch in batches)
    }


def batch_of(
    labels: Sequence[str | None], groups: Sequence[str | None] | None = None
) -> pa.RecordBatch:
    return references(
        [f"image {number}" for number in range(len(labels))],
        label=list(labels),
        group=list(groups) if groups else [None] * len(labels),
    )


def cut_up(batch: pa.RecordBatch, size: int) -> list[pa.RecordBatch]:
    return [batch.slice(start, size) for start in range(0, batch.num_rows, size)]


@settings(max_examples=150, deadline=None)
@given(labels=LABELS, rule=st.sampled_from(RULES))
def test_each_class_is_exact_to_a_record_and_totals_are_right(
    labels: list[str | None], rule: SplitRule
) -> None:
    if not any(labels):
        labels = [*labels, "cat"]
    splits = drawn([batch_of(labels)], rule)
    totals = rule.totals(len(labels))
    assert [Counter(splits.values())[name] for name in rule.names] == totals.tolist()
    for label, number in Counter(labels).items():
        counts = Counter(
            splits[f"image {row}"] for row, other in enumerate(labels) if other == label
        )
        for name, total in zip(rule.names, totals, strict=True):
            assert abs(counts[name] - number * total / len(labels)) <= 1 + 1e-9


@settings(max_examples=50, deadline=None)
@given(
    labels=LABELS,
    rule=st.sampled_from(RULES),
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(1, 50),
)
def test_order_and_batches_change_nothing(
    labels: list[str | None], rule: SplitRule, seed: int, size: int
) -> None:
    labels = ["cat", *labels]
    groups = [f"g{number % 40}" for number in range(len(labels))]
    batch = batch_of(labels, groups)
    order = np.random.default_rng(seed).permutation(batch.num_rows)
    mixed = cut_up(batch.take(pa.array(order)), size)
    for draw in (drawn, grouped):
        for stratify in (True, False):
            try:
                whole = draw([batch], rule, stratify=stratify)
            except BuildError:  # too few groups
                assert draw is grouped
                continue
            assert draw(mixed, rule, stratify=stratify) == whole


@pytest.mark.parametrize("stratify", [True, False])
def test_counts_are_exact(stratify: bool) -> None:
    labels = [f"class {number % 7}" for number in range(5000)]
    splits = drawn(
        cut_up(batch_of(labels), 777),
        parse_split("test=501,train=rest,validation=17"),
        stratify=stratify,
    )
    assert Counter(splits.values()) == {"test": 501, "validation": 17, "train": 4482}


def test_all_of_the_input_may_be_asked_for() -> None:
    assert Counter(
        drawn([batch_of(["cat"] * 10)], parse_split("test=4,train=6,none=rest")).values()
    ) == {"test": 4, "train": 6}


def test_more_than_there_is() -> None:
    with pytest.raises(
        BuildError,
        match="asks for 11 records in test, and INPUT has 10 to draw from: ask for fewer",
    ):
        drawn([batch_of(["cat"] * 10)], parse_split("test=11,train=rest"))


def test_the_cut_is_by_rank_of_the_same_hash_as_fractions() -> None:
    """So that a split by counts agrees with one by fractions as far as it can."""
    batch = batch_of(["cat"] * 1000)
    splits = drawn([batch], parse_split("a=100,b=rest"))
    order = np.argsort(split_hash(batch.column("id")))
    assert {f"image {row}" for row in order[:100]} == {
        image_id for image_id, split in splits.items() if split == "a"
    }


def test_an_added_image_moves_few() -> None:
    labels = ["cat", "dog"] * 500
    before = drawn([batch_of(labels)], RULES[0])
    after = drawn([batch_of([*labels, "dog"])], RULES[0])
    assert sum(after[image_id] != split for image_id, split in before.items()) <= 3


def test_large_histograms_are_coarsened_and_the_splits_stay_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = cut_up(batch_of([f"class {number % 11}" for number in range(3000)]), 200)
    whole = drawn(batches, RULES[0])
    monkeypatch.setattr(stratified, "MAX_ENTRIES", 100)
    merged = merge_histograms(count_hashes(batch, stratify=True) for batch in batches)
    assert (len(merged.counts) <= 100, merged.counts.sum(), merged.bits) == (True, 3000, 3)
    assert drawn(batches, RULES[0]) == whole
    monkeypatch.setattr(stratified, "MAX_ENTRIES", 1)  # one bucket of half the line is the least
    assert drawn(batches, RULES[0]) == whole


def test_histograms_of_different_buckets_are_merged() -> None:
    batches = cut_up(batch_of(["cat", "dog"] * 100), 50)
    fine, coarse = (
        merge_histograms(count_hashes(batch, stratify=True) for batch in some)
        for some in (batches[:2], batches[2:])
    )
    coarse = HashHistogram(4, coarse.classes, coarse.buckets >> np.uint64(8), coarse.counts)
    merged = merge_histograms([fine, coarse])
    assert (merged.bits, merged.counts.sum()) == (4, 200)
    assert len(merged.counts) <= 32


def test_nothing_to_draw() -> None:
    assert drawn([], RULES[0]) == {}
    assert drawn([batch_of([])], RULES[0]) == {}
    assert grouped([], RULES[0]) == {}


@pytest.mark.parametrize("draw", [drawn, grouped])
def test_without_labels_there_is_nothing_to_stratify_by(draw: object) -> None:
    with pytest.raises(BuildError, match="no record has a label of its own"):
        draw([batch_of([None] * 9)], RULES[0])  # type: ignore[operator]
    assert len(draw([batch_of([None] * 90)], RULES[0], stratify=False)) == 90  # type: ignore[operator]


def test_an_input_that_changes_between_the_passes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stratified, "MAX_ENTRIES", 1)  # so that the cuts are inside of buckets
    batches = cut_up(batch_of(["cat"] * 100), 10)
    cuts = stratified.find_cuts(
        merge_histograms(count_hashes(batch, stratify=True) for batch in batches),
        RULES[0],
        stratify=True,
    )
    with pytest.raises(BuildError, match="INPUT changed while its splits were drawn"):
        stratified.find_thresholds([], cuts, RULES[0], stratify=True)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["cat", "dog", "eel"]), st.integers(0, 60)),
        min_size=60,
        max_size=300,
    ),
    rule=st.sampled_from(RULES),
    stratify=st.booleans(),
)
def test_groups_are_never_torn(
    rows: list[tuple[str, int]], rule: SplitRule, stratify: bool
) -> None:
    groups = [f"group {number}" if number else None for _, number in rows]
    batch = batch_of([label for label, _ in rows], groups)
    try:
        splits = grouped([batch], rule, stratify=stratify)
    except BuildError:  # test_too_few_groups
        return
    of_group = defaultdict(set)
    for number, group in enumerate(groups):
        of_group[group or number].add(splits[f"image {number}"])
    assert {len(found) for found in of_group.values()} == {1}


def test_groups_come_near_to_sizes_and_classes() -> None:
    """1,400 patients of 1 to about 70 images, each with a disease of its own for most of them."""
    random = np.random.default_rng(1)
    groups = [f"patient {int(number)}" for number in random.exponential(300, 20_000)]
    own = {group: random.integers(10) for group in sorted(set(groups))}
    labels = [
        f"class {own[group] if random.random() < 0.7 else random.integers(10)}" for group in groups
    ]
    splits = grouped(cut_up(batch_of(labels, groups), 3000), RULES[0])
    counts = Counter(splits.values())
    assert [counts[name] for name in RULES[0].names] == pytest.approx([16_000, 2000, 2000], abs=5)
    for name in RULES[0].names:
        in_split = Counter(
            label for number, label in enumerate(labels) if splits[f"image {number}"] == name
        )
        for label, number in Counter(labels).items():
            assert in_split[label] / counts[name] == pytest.approx(number / 20_000, abs=0.002)


def test_groups_fill_counts() -> None:
    groups = [f"patient {number % 300}" for number in range(3000)]
    splits = grouped(
        [batch_of(["cat"] * 3000, groups)], parse_split("test=100,train=rest"), stratify=False
    )
    assert Counter(splits.values()) == {"test": 100, "train": 2900}


def test_too_few_groups() -> None:
    batch = batch_of(["cat"] * 100, ["left"] * 50 + ["right"] * 50)
    with pytest.raises(
        BuildError,
        match="no group fits into split validation and test: INPUT has 2 groups, which stay whole",
    ):
        grouped([batch], RULES[0])
