"""Ids in bytes, found by their hashes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.transforms.erasure.byte_search import ByteSearch, Ends
from shardwright.transforms.erasure.wanted_ids import HashedIds, WantedIds, hash_of

IDS = ("a/000123.jpg", "photo.png", "ü/ñandú.png", "1.jpg", "a b c d.webp")


def searches(ids: tuple[str, ...]) -> list[ByteSearch]:
    ends = Ends.of("salt", ids)
    hashed = HashedIds("salt", [hash_of("salt", each) for each in ids])
    return [ByteSearch("salt", wanted, ends) for wanted in (WantedIds(ids), hashed)]


@given(
    st.sampled_from(IDS),
    st.binary(max_size=40),
    st.binary(max_size=40),
    st.sampled_from([b'"', b"'", b"\n", b",", b"\0"]),
)
def test_an_id_at_any_place(name: str, before: bytes, after: bytes, beside: bytes) -> None:
    data = before + beside + name.encode() + beside + after
    for search in searches(IDS):
        assert name in search.find(data, is_text=True)
        assert (name in search.find(data, is_text=False)) == (len(name.encode()) >= 8)


@pytest.mark.parametrize("text", ["b/photo.png", "photo.png#left", "xphoto.png", "my photo.png"])
def test_a_part_of_a_longer_name(text: str) -> None:
    for search in searches(IDS):
        assert search.find(f'"{text}"'.encode(), is_text=True) == set()


def test_the_length_before_a_text_in_an_example() -> None:
    name = "a" * 44 + ".png"  # of 48 bytes, as the digit 0 is
    [_, search] = searches((name,))
    assert search.find(b"\x0a0" + name.encode() + b"\x12", is_text=False) == {name}


def test_words_numbers_and_short_ids_are_not_searched(rng: np.random.Generator) -> None:
    for search in searches(("a.b", "train", "1234")):
        assert search.find(b'"a.b" "train" "1234"', is_text=True) == set()
        assert search.find(rng.bytes(1 << 20), is_text=True) == set()
    for search in searches(IDS):
        assert search.find(rng.bytes(1 << 20), is_text=False) == set()
