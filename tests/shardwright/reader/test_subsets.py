"""Parts of splits: the records that TFDS takes for the same text, and errors."""

from __future__ import annotations

import operator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tensorflow_datasets.core.splits import ReadInstruction, SplitInfo

from shardwright.errors import UsageError
from shardwright.reader.subsets import parse_split
from tests.support.random_tests import examples

SIZES = {"train": 100, "test": 7, "validation": 0, "all_of_it": 3}
SIZE = st.one_of(st.integers(0, 400), st.integers(0, 10**10))
PERCENT = st.one_of(st.integers(0, 100).map(str), st.decimals(0, 100, places=2).map(str))


def spans(text: str, sizes: dict[str, int] = SIZES) -> list[tuple[str, int, int]]:
    return [(span.split, span.start, span.stop) for span in parse_split(text, sizes)]


def by_tfds(text: str, sizes: dict[str, int]) -> list[tuple[str, int, int]]:
    """Return the records that TFDS reads; none where a slice ends before it starts."""
    infos = {
        name: SplitInfo(name=name, shard_lengths=[size], num_bytes=0)
        for name, size in sizes.items()
    }
    found = []
    for part in ReadInstruction.from_spec(text).to_absolute(infos):
        start, stop = part.from_ or 0, sizes[part.splitname] if part.to is None else part.to
        found.append((part.splitname, start, max(start, stop)))
    return found


@pytest.mark.parametrize(("text", "wanted"), [
    ("train", [("train", 0, 100)]),
    ("train[:10%]", [("train", 0, 10)]),
    ("train[-10%:]", [("train", 90, 100)]),
    ("train[2.5%:12.5%]", [("train", 2, 12)]),
    ("train[ 10 : 20 % ]", [("train", 10, 20)]),
    ("train[1_0:9_9]", [("train", 10, 99)]),
    ("train[50%:40%]", [("train", 50, 50)]),
    ("train[-0:]", [("train", 0, 100)]),
    # Beyond the split, as Python's slices (TFDS rejects it).
    ("train[:-5000]", [("train", 0, 0)]),
    # A part that rounds to no record is empty, at either end (TFDS takes all for the second).
    ("test[:1%]", [("test", 0, 0)]),
    ("test[-1%:]", [("test", 7, 7)]),
    ("test[:-1%]", [("test", 0, 7)]),
    ("test[3:]+train[:1]+test[:3]", [("test", 3, 7), ("train", 0, 1), ("test", 0, 3)]),
    ("train[:0]+train[:0]+train", [("train", 0, 0), ("train", 0, 0), ("train", 0, 100)]),
    ("all", [("train", 0, 100), ("test", 0, 7), ("validation", 0, 0), ("all_of_it", 0, 3)]),
    ("all_of_it", [("all_of_it", 0, 3)]),
])  # fmt: skip
def test_parts(text: str, wanted: list[tuple[str, int, int]]) -> None:
    assert spans(text) == wanted
    sizes = [span.num_records for span in parse_split(text, SIZES)]
    assert sizes == [stop - start for _, start, stop in wanted]


def test_a_split_may_be_called_all() -> None:
    assert spans("all", {"all": 5, "train": 2}) == [("all", 0, 5)]
    assert spans("all[:2]+train", {"all": 5, "train": 2}) == [("all", 0, 2), ("train", 0, 2)]


@st.composite
def tfds_expressions(draw: st.DrawFn) -> tuple[str, int]:
    """Draw a text that TFDS understands alike, and the size of the split.

    That is percent with percent and records with records, inside the split; and no percentage
    below 0 that rounds to no record.
    """
    size = draw(st.sampled_from([1, 2, 5, 7, 10, 15, 99, 100, 101, 250, 1000, 1281167])
                | st.integers(1, 10**9))  # fmt: skip
    if draw(st.booleans()):
        percent = st.integers(-100, 100)
        number = percent | st.builds(operator.truediv, percent, st.sampled_from([4, 3.7]))
        unit, number = "%", number.filter(lambda one: one >= 0 or round(one * size / 100) != 0)
    else:
        unit, number = "", st.integers(-size, size)
    start, stop = draw(
        st.tuples(st.none() | number, st.none() | number).filter(lambda two: two != (None, None))
    )
    return f"train[{bound(start, unit)}:{bound(stop, unit)}]", size


def bound(number: float | None, unit: str) -> str:
    return "" if number is None else f"{number}{unit}"


@pytest.mark.long
@examples(300)
@given(tfds_expressions())
def test_the_records_that_tfds_takes(expression: tuple[str, int]) -> None:
    text, size = expression
    sizes = {"train": size, "test": 9}
    assert spans(text, sizes) == by_tfds(text, sizes)


@examples(100)
@given(SIZE, PERCENT)
@example(5, "10")
@example(5, "90")
@example(15, "50")
@example(1, "50")
def test_two_parts_cover_all_exactly_once(size: int, percent: str) -> None:
    """train[:10%] and train[10%:] put half a record on the same side, as do those of -10%."""
    for edge in (f"{percent}%", f"-{percent}%"):
        found = spans(f"train[:{edge}]+train[{edge}:]", {"train": size})
        parts = sorted((start, stop) for _, start, stop in found if start < stop)
        assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])][: len(parts)]
        assert sum(stop - start for start, stop in parts) == size


@examples(100)
@given(SIZE, st.integers(-500, 500) | st.none(), st.integers(-500, 500) | st.none())
def test_slices_are_those_of_python(size: int, start: int | None, stop: int | None) -> None:
    text = f"train[{bound(start, '')}:{bound(stop, '')}]"
    _, first, last = spans(text, {"train": size})[0]
    assert range(size)[first:last] == range(size)[start:stop]
    assert 0 <= first <= last <= size


HAS = (
    "flowers, which has train, test, validation, all_of_it "
    "(join several with '+'; 'all' is all of them)"
)
NOT_WRITTEN = "is invalid; write 'train', 'train[:10%]', 'train[5000:]' or 'train[10%:20%]'"
NOT_WHOLE = "must be a whole number of records or a percentage, such as 5000 or 10%"
NOT_A_NAME = (
    "must be a name, such as 'train' or 'train[:10%]'; "
    "'all' is all of train, test, validation, all_of_it"
)
TWICE = "selects some records of 'train' twice: its parts must not overlap"


@pytest.mark.parametrize(("text", "message"), [
    ("training", f"split 'training' is not in {HAS}"),
    ("train+tets", f"split 'tets' is not in {HAS}"),
    ("all[:10%]", f"split 'all' is not in {HAS}"),
    ("", f"split='' {NOT_A_NAME}"),
    (None, f"split=None {NOT_A_NAME}"),
    (["train"], f"split=['train'] {NOT_A_NAME}"),
    ("train+", f"split='train+': '' {NOT_WRITTEN}"),
    ("train test", f"split='train test': 'train test' {NOT_WRITTEN}"),
    ("train[5]", f"split='train[5]': 'train[5]' {NOT_WRITTEN}"),
    ("train[1:2:3]", f"split='train[1:2:3]': 'train[1:2:3]' {NOT_WRITTEN}"),
    ("train[a:]", f"split='train[a:]': 'a' {NOT_WHOLE}"),
    ("train[:5.5]", f"split='train[:5.5]': '5.5' {NOT_WHOLE}"),
    ("train[:.5%]", f"split='train[:.5%]': '.5%' {NOT_WHOLE}"),
    ("train[:1__0]", f"split='train[:1__0]': '1__0' {NOT_WHOLE}"),
    ("train[:101%]", "split='train[:101%]': 101% is more than 100 %"),
    ("train[-100.5%:]", "split='train[-100.5%:]': -100.5% is more than 100 %"),
    ("train+train", f"split 'train+train' {TWICE}"),
    ("train[:50%]+test+train[49:]", f"split 'train[:50%]+test+train[49:]' {TWICE}"),
])  # fmt: skip
def test_invalid_splits(text: object, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_split(text, SIZES, "flowers")
    assert str(caught.value) == message


@examples(200)
@given(st.text("train+[]:%-_.0 5٣", max_size=14))
def test_any_text_gives_spans_or_a_usage_error(text: str) -> None:
    try:
        found = parse_split(f"train{text}", SIZES)
    except UsageError:
        return
    assert all(0 <= span.start <= span.stop <= SIZES[span.split] for span in found)
