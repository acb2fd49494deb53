"""Ranges of keys: together they are all keys, for any names, and cost few requests."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import islice, pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shardwright.errors import StorageError
from shardwright.storage.addresses import key_problem
from shardwright.storage.key_ranges import ALL_KEYS, KeyRange, SeenKeys, cut_range, middle
from shardwright.storage.listing import ObjectRow, Page, list_in_parallel

PREFIX = "p/"
NAMES = st.text("019az-. /_éä日🎈", min_size=1, max_size=6)
NUMBERS = st.integers(0, 300).map("train/{:06d}.png".format)
KEYS = st.sets(NAMES.map(PREFIX.__add__), max_size=60) | st.sets(
    NUMBERS.map(PREFIX.__add__), max_size=120
)


class Store:
    """Keys in memory, listed as by obstore: in pages, without the slash at the end of a name."""

    def __init__(self, keys: set[str], page_keys: int) -> None:
        self.keys, self.page_keys, self.requests = sorted(keys), page_keys, 0

    def pages_after(self, key: str | None) -> Iterator[list[str]]:
        first = bisect_right(self.keys, key) if key is not None else 0
        for start in range(first, max(len(self.keys), first + 1), self.page_keys):
            self.requests += 1
            page = self.keys[start : start + self.page_keys]
            yield [name.removesuffix("/") for name in page]

    def rows_after(self, key: str | None) -> Iterator[Page]:
        for page in self.pages_after(key):
            yield [ObjectRow(name, 1, "") for name in page]

    def listed(self, keys: KeyRange = ALL_KEYS) -> Counter[str]:
        rows = self.rows_after(keys.after)
        pages = list_in_parallel(self.rows_after, rows, keys, self.page_keys)
        return Counter(row.key for page in pages for row in page)

    def cut(self, wanted: int) -> list[KeyRange]:
        return cut_range(lambda key: next(self.pages_after(key)), PREFIX, self.page_keys, wanted)


def names_of(keys: set[str]) -> Counter[str]:
    return Counter(key.removesuffix("/") for key in keys)


def most_requests(keys: set[str], page_keys: int) -> int:
    """Return two for each full page, and the last one."""
    return 2 * (len(keys) // page_keys) + 1


@given(KEYS, st.integers(2, 9))
def test_threads_list_every_key_once(keys: set[str], page_keys: int) -> None:
    store = Store(keys, page_keys)
    found, expected = store.listed(), names_of(keys)
    # A placeholder is seen twice if a cut is its name without the slash.
    assert {name: n for name, n in found.items() if n > expected[name]}.keys() <= {
        key.removesuffix("/") for key in keys if key.endswith("/")
    }
    assert found.keys() == expected.keys()
    assert store.requests <= most_requests(keys, page_keys)


@given(KEYS, st.integers(2, 9), st.integers(1, 20))
def test_ranges_are_all_keys(keys: set[str], page_keys: int, wanted: int) -> None:
    store = Store(keys, page_keys)
    ranges = store.cut(wanted)
    assert store.requests <= (1 if len(keys) < page_keys else most_requests(keys, page_keys))
    assert 1 <= len(ranges) <= wanted
    assert ranges == Store(keys, page_keys).cut(wanted)
    assert [KeyRange.of_text(one.to_text()) for one in ranges] == ranges
    assert (ranges[0].after, ranges[-1].up_to) == (None, None)
    assert all(low.up_to == high.after for low, high in pairwise(ranges))
    parts = [store.listed(one) for one in ranges]
    assert all(parts) or not keys
    assert sum(parts, Counter()).keys() == names_of(keys).keys()


@given(NAMES, st.none() | NAMES, st.sets(st.characters()))
def test_a_cut_is_a_key_between(low: str, high: str | None, letters: set[str]) -> None:
    low, high = PREFIX + low, high and PREFIX + high
    assume(high is None or low < high)
    cut = middle(low, high, PREFIX, letters)
    if cut is not None:
        assert low < cut < (high or "q")
        assert not key_problem(cut)
        assert cut[-1] in letters


@pytest.mark.parametrize(
    "name",
    [
        "{:06d}.jpg",
        "class_{:05d}/r.jpg",
        "train/n{0:08d}/n{0:08d}.JPEG",
        "deep/er/{:05d}",
        "{:06x}",
    ],
)
def test_a_range_is_cut_among_its_keys(name: str) -> None:
    """A cut above all of them would give the thread that waits nothing to list."""
    keys, seen = [PREFIX + name.format(number) for number in range(9000)], SeenKeys()
    seen.add(keys[0], keys[1999])
    cut = seen.middle_of(KeyRange(keys[1999]))
    assert cut is not None
    assert keys[2200] < cut < keys[-1]


def test_even_names_are_cut_evenly() -> None:
    keys = {f"{PREFIX}photos/{number:06d}.jpg" for number in range(20_000)}
    store = Store(keys, 100)
    sizes = [store.listed(one).total() for one in store.cut(16)]
    assert len(sizes) == 16
    assert sum(sizes) == len(keys)
    assert max(sizes) < len(keys) / 4


def test_a_store_without_order_is_an_error() -> None:
    pages = [[ObjectRow(f"p/{name}", 1, "") for name in "bac"]]
    with pytest.raises(StorageError, match="lists 'p/a/' after 'p/b', so keys may be missing"):
        list(list_in_parallel(lambda _: iter(pages), iter(pages), ALL_KEYS, 3))


def test_a_store_that_begins_anywhere_else_is_an_error() -> None:
    store = Store({f"p/{number:03d}" for number in range(100)}, 10)
    rows = store.rows_after
    with pytest.raises(StorageError, match="so keys may be missing"):
        list(islice(list_in_parallel(lambda _: rows(None), rows(None), ALL_KEYS, 10), 1000))
