"""CRC32C of concatenated parts: that of the bytes, by google_crc32c."""

from __future__ import annotations

import itertools

from google_crc32c import value
from hypothesis import given
from hypothesis import strategies as st

from shardwright.format.crc import combine, combine_all
from tests.support.random_tests import examples

PARTS = st.lists(st.binary(max_size=300), max_size=5)
# Lengths whose bytes differ in every position, up to that of the longest record.
LENGTHS = st.one_of(st.integers(0, 300), st.integers(0, 1 << 20), st.integers(0, (1 << 31) - 1))
CRCS = st.integers(0, (1 << 32) - 1)


@examples(50)
@given(PARTS, st.integers(0, 70_000))
def test_parts_together_have_the_checksum_of_their_bytes(parts: list[bytes], zeros: int) -> None:
    parts = [*parts, b"\xff" * zeros, *parts]
    crcs, sizes = [value(part) for part in parts], [len(part) for part in parts]
    assert combine_all(crcs, sizes) == value(b"".join(parts))
    pairs = combine(crcs[:-1], crcs[1:], sizes[1:]).tolist()
    assert pairs == [value(one + two) for one, two in itertools.pairwise(parts)]


@examples(50)
@given(CRCS, CRCS, CRCS, LENGTHS, LENGTHS)
def test_long_parts_combine_in_any_order(
    one: int, two: int, three: int, second: int, third: int
) -> None:
    left = combine(combine(one, two, second), three, third)
    right = combine(one, combine(two, three, third), second + third)
    assert int(left) == int(right) == combine_all([one, two, three], [0, second, third])


def test_a_long_part_of_zeros() -> None:
    assert int(combine(value(b"a"), value(bytes(40 << 20)), 40 << 20)) == value(
        b"a" + bytes(40 << 20)
    )


def test_nothing_has_the_checksum_of_no_bytes() -> None:
    assert combine_all([], []) == value(b"") == 0
