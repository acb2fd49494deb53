"""Parts of splits: the records that TFDS takes for the same words, and a clear refusal of everything else."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tensorflow_datasets.core.splits import ReadInstruction, SplitInfo

from shardwright.errors import UsageError
from shardwright.reader.subsets import Span, parse_split

SIZES = {"train": 100, "test": 7, "validation": 0, "all_of_it": 3}
SIZE = st.one_of(st.integers(0, 400), st.integers(0, 10**10))
PERCENT = st.one_of(st.integers(0, 100).map(str), st.decimals(0, 100, places=2).map(str))


def spans(text: str, sizes: dict[str, int] | None = None) -> list[tuple[str, int, int]]:
    return [
        (span.split, span.start, span.stop)
        for span in parse_split(text, SIZES if sizes is None else sizes)
    ]


def by_tfds(text: str, sizes: dict[str, int]) -> list[tuple[str, int, int]]:
    """The records TFDS reads. `None` bounds are the split's own; where a slice ends before it starts, there are none."""
    infos = {
        name: SplitInfo(name=name, shard_lengths=[size], num_bytes=0)
        for name, size in sizes.items()
    }
    found = []
    for part in ReadInstruction.from_spec(text).to_absolute(infos):
        start, stop = part.from_ or 0, sizes[part.splitname] if part.to is None else part.to
        found.append((part.splitname, start, max(start, stop)))
    return found


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("train", [("train", 0, 100)]),
        (" train ", [("train", 0, 100)]),
        ("train[:]", [("train", 0, 100)]),
        ("train[:10%]", [("train", 0, 10)]),
        ("train[10%:20%]", [("train", 10, 20)]),
        ("train[-10%:]", [("train", 90, 100)]),
        ("train[:-10%]", [("train", 0, 90)]),
        ("train[-20%:-10%]", [("train", 80, 90)]),
        ("train[2.5%:12.5%]", [("train", 2, 12)]),
        ("train[50:]", [("train", 50, 100)]),
        ("train[-5:]", [("train", 95, 100)]),
        ("train[10:-5]", [("train", 10, 95)]),
        ("train[ 10 : 20 % ]", [("train", 10, 20)]),
        ("train[1_0:9_9]", [("train", 10, 99)]),
        ("train[50%:40%]", [("train", 50, 50)]),
        ("train[60:40]", [("train", 60, 60)]),
        ("train[:100%]", [("train", 0, 100)]),
        ("train[-100%:]", [("train", 0, 100)]),
        ("train[100%:]", [("train", 100, 100)]),
        ("train[0:0]", [("train", 0, 0)]),
        ("train[-0:]", [("train", 0, 100)]),
        # Beyond the split, as Python's slices (TFDS refuses these).
        ("train[:5000]", [("train", 0, 100)]),
        ("train[5000:]", [("train", 100, 100)]),
        ("train[-5000:]", [("train", 0, 100)]),
        ("train[:-5000]", [("train", 0, 0)]),
        # What rounds to nothing is nothing, from either end (TFDS takes the second for all of it).
        ("test[:1%]", [("test", 0, 0)]),
        ("test[-1%:]", [("test", 7, 7)]),
        ("test[:-1%]", [("test", 0, 7)]),
        ("validation[:50%]", [("validation", 0, 0)]),
        ("train+test", [("train", 0, 100), ("test", 0, 7)]),
        ("test[3:]+train[:1]+test[:3]", [("test", 3, 7), ("train", 0, 1), ("test", 0, 3)]),
        ("train[:0]+train[:0]+train", [("train", 0, 0), ("train", 0, 0), ("train", 0, 100)]),
        ("all", [("train", 0, 100), ("test", 0, 7), ("validation", 0, 0), ("all_of_it", 0, 3)]),
        (" all ", [("train", 0, 100), ("test", 0, 7), ("validation", 0, 0), ("all_of_it", 0, 3)]),
        ("all_of_it", [("all_of_it", 0, 3)]),
    ],
)
def test_what_is_named(text: str, wanted: list[tuple[str, int, int]]) -> None:
    assert spans(text) == wanted


def test_a_split_may_be_called_all() -> None:
    assert spans("all", {"all": 5, "train": 2}) == [("all", 0, 5)]
    assert spans("all[:2]+train", {"all": 5, "train": 2}) == [("all", 0, 2), ("train", 0, 2)]


def test_spans_count_their_records() -> None:
    assert [span.num_records for span in parse_split("train[10%:30%]+test[5:2]", SIZES)] == [20, 0]
    assert parse_split("test", SIZES) == (Span("test", 0, 7),)


def tfds_expressions() -> list[tuple[str, dict[str, int]]]:
    """What both understand: percent with percent, records with records inside the split, and no percentage below 0 that rounds to 0."""
    draw = random.Random(5)
    found = []
    for _ in range(3000):
        size = draw.choice(
            [1, 2, 5, 7, 10, 15, 99, 100, 101, 250, 1000, 1281167, draw.randrange(1, 10**9)]
        )
        limit = draw.choice([100, size])
        unit = "%" if (limit == 100 and draw.random() < 0.8) or size < limit else ""
        bounds = [draw.choice([draw.randint(-limit, limit), None]) for _ in range(2)]
        if unit and draw.random() < 0.3:
            bounds = [
                None if bound is None else bound / draw.choice([1, 4, 3.7]) for bound in bounds
            ]
        if unit and any(
            bound is not None and bound < 0 and not round(bound * size / 100) for bound in bounds
        ):
            continue
        if not unit:
            bounds = [None if bound is None else max(-size, min(size, bound)) for bound in bounds]
        if bounds != [None, None]:
            found.append(
                (
                    f"train[{':'.join('' if bound is None else f'{bound}{unit}' for bound in bounds)}]",
                    {"train": size, "test": 9},
                )
            )
    return found


def test_the_records_that_tfds_takes() -> None:
    expressions = tfds_expressions()
    assert len(expressions) > 1500
    for text, sizes in expressions:
        assert spans(text, sizes) == by_tfds(text, sizes), (text, sizes)


@pytest.mark.parametrize(
    "text",
    ["train", "all", "train+test", "train[:10%]+test[3:]", "train[99%:]+test[:50%]", "test[-3:-1]"],
)
def test_the_splits_that_tfds_takes(text: str) -> None:
    assert spans(text) == by_tfds(text, SIZES)


@settings(max_examples=300, deadline=None)
@given(SIZE, PERCENT)
@example(5, "10")
@example(5, "90")
@example(15, "50")
@example(1, "50")
def test_two_parts_cover_all_exactly_once(size: int, percent: str) -> None:
    """Half a record must fall to one side, the same in both parts: train[:10%] and train[10%:], and with -10% alike."""
    for text in (
        f"train[:{percent}%]+train[{percent}%:]",
        f"train[-{percent}%:]+train[:-{percent}%]",
    ):
        parts = sorted(
            (start, stop) for _, start, stop in spans(text, {"train": size}) if start < stop
        )
        assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])][: len(parts)]
        assert sum(stop - start for start, stop in parts) == size


@settings(max_examples=100, deadline=None)
@given(SIZE, st.integers(1, 20))
def test_many_parts_cover_all_exactly_once(size: int, step: int) -> None:
    """Cross-validation, as `train[0%:20%]`, `train[20%:40%]`, ...: no record is in two folds, or in none."""
    edges = [*range(0, 100, step), 100]
    folds = [
        spans(f"train[{one}%:{two}%]", {"train": size})[0] for one, two in itertools.pairwise(edges)
    ]
    assert folds[0][1] == 0
    assert folds[-1][2] == size
    assert all(one[2] == two[1] for one, two in itertools.pairwise(folds))
    assert all(
        abs(stop - start - size * (two - one) / 100) <= 1
        for (_, start, stop), (one, two) in zip(folds, itertools.pairwise(edges), strict=True)
    )


@settings(max_examples=200, deadline=None)
@given(SIZE, st.integers(-500, 500) | st.none(), st.integers(-500, 500) | st.none())
def test_records_are_counted_as_python_slices_are(
    size: int, start: int | None, stop: int | None
) -> None:
    text = f"train[{'' if start is None else start}:{'' if stop is None else stop}]"
    _, first, last = spans(text, {"train": size})[0]
    assert range(size)[first:last] == range(size)[start:stop]
    assert 0 <= first <= last <= size


HAS = "flowers, which has train, test, validation, all_of_it (several are joined by '+', 'all' is all of them)"
NOT_WRITTEN = "is not written as 'train', 'train[:10%]', 'train[5000:]' or 'train[10%:20%]'"
NOT_WHOLE = "must be a whole number of records, or percent, such as 5000 or 10%"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training", f"split 'training' is not in {HAS}"),
        ("train+tets", f"split 'tets' is not in {HAS}"),
        ("all[:10%]", f"split 'all' is not in {HAS}"),
        ("Train", f"split 'Train' is not in {HAS}"),
        (
            "",
            "split='' must be a name, such as 'train' or 'train[:10%]'; 'all' is all of train, test, validation, all_of_it",
        ),
        (
            "  ",
            "split='  ' must be a name, such as 'train' or 'train[:10%]'; 'all' is all of train, test, validation, all_of_it",
        ),
        (
            None,
            "split=None must be a name, such as 'train' or 'train[:10%]'; 'all' is all of train, test, validation, all_of_it",
        ),
        (
            ["train"],
            "split=['train'] must be a name, such as 'train' or 'train[:10%]'; 'all' is all of train, test, validation, all_of_it",
        ),
        ("train+", f"split='train+': '' {NOT_WRITTEN}"),
        ("train test", f"split='train test': 'train test' {NOT_WRITTEN}"),
        ("train[5]", f"split='train[5]': 'train[5]' {NOT_WRITTEN}"),
        ("train[]", f"split='train[]': 'train[]' {NOT_WRITTEN}"),
        ("train[:5", f"split='train[:5': 'train[:5' {NOT_WRITTEN}"),
        ("train[1:2:3]", f"split='train[1:2:3]': 'train[1:2:3]' {NOT_WRITTEN}"),
        ("train[:5][:3]", f"split='train[:5][:3]': 'train[:5][:3]' {NOT_WRITTEN}"),
        ("train[a:]", f"split='train[a:]': 'a' {NOT_WHOLE}"),
        ("train[:5.5]", f"split='train[:5.5]': '5.5' {NOT_WHOLE}"),
        ("train[:.5%]", f"split='train[:.5%]': '.5%' {NOT_WHOLE}"),
        ("train[:1e3]", f"split='train[:1e3]': '1e3' {NOT_WHOLE}"),
        ("train[:_]", f"split='train[:_]': '_' {NOT_WHOLE}"),
        ("train[:1__0]", f"split='train[:1__0]': '1__0' {NOT_WHOLE}"),
        ("train[:--5]", f"split='train[:--5]': '--5' {NOT_WHOLE}"),
        ("train[:5shard]", f"split='train[:5shard]': '5shard' {NOT_WHOLE}"),
        ("train[:%]", f"split='train[:%]': '%' {NOT_WHOLE}"),
        ("train[:101%]", "split='train[:101%]': 101% is more than 100 %"),
        ("train[-100.5%:]", "split='train[-100.5%:]': -100.5% is more than 100 %"),
        (
            "train+train",
            "split 'train+train' names records of 'train' twice: they would be read twice",
        ),
        (
            "train[:50%]+test+train[49:]",
            "split 'train[:50%]+test+train[49:]' names records of 'train' twice: they would be read twice",
        ),
    ],
)
def test_what_is_refused(text: object, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_split(text, SIZES, "flowers")
    assert str(caught.value) == message


@settings(max_examples=300, deadline=None)
@given(st.text("train+[]:%-_.0 5٣", max_size=14))
def test_any_text_gives_spans_or_a_usage_error(text: str) -> None:
    try:
        found = parse_split(f"train{text}", SIZES)
    except UsageError:
        return
    assert all(0 <= span.start <= span.stop <= SIZES[span.split] for span in found)
