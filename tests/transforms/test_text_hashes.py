"""Hashes of many texts equal MurmurHash3_x64_128 of each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.transforms import text_hashes
from shardwright.transforms.text_hashes import combined, hash128

_FULL = (1 << 64) - 1


def murmur(data: bytes) -> tuple[int, int]:
    """Return the hash by the algorithm's description, a byte string at a time."""

    def turned(value: int, by: int) -> int:
        return (value << by | value >> (64 - by)) & _FULL

    def scrambled(word: int, first: int, by: int, second: int) -> int:
        return turned(word * first & _FULL, by) * second & _FULL

    def final(value: int) -> int:
        value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _FULL
        value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _FULL
        return value ^ value >> 33

    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    one = two = 0
    for start in range(0, len(data), 16):
        block = data[start : start + 16]
        low = int.from_bytes(block[:8], "little")
        high = int.from_bytes(block[8:], "little")
        one ^= scrambled(low, c1, 31, c2)
        if len(block) == 16:
            one = ((turned(one, 27) + two) * 5 + 0x52DCE729) & _FULL
        two ^= scrambled(high, c2, 33, c1)
        if len(block) == 16:
            two = ((turned(two, 31) + one) * 5 + 0x38495AB5) & _FULL
    one, two = one ^ len(data), two ^ len(data)
    one = (one + two) & _FULL
    two = (two + one) & _FULL
    one, two = final(one), final(two)
    one = (one + two) & _FULL
    return one, (two + one) & _FULL


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", (0, 0)),
        ("hello", (0xCBD8A7B341BD9B02, 0x5B1E906A48AE1D19)),
        (
            "The quick brown fox jumps over the lazy dog",
            (0xE34BBC7BBC071B6C, 0x7A433CA9C49A9347),
        ),
    ],
)
def test_published_values(text: str, wanted: tuple[int, int]) -> None:
    assert tuple(int(half[0]) for half in hash128(pa.array([text]))) == wanted
    assert murmur(text.encode()) == wanted


@given(st.lists(st.none() | st.text(max_size=50)), st.integers(0, 3), st.integers(1, 5))
def test_every_text_has_its_own_hash(texts: list[str | None], skipped: int, at_once: int) -> None:
    array = pa.array(texts, pa.string()).slice(skipped)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_hashes, "_ROWS_AT_ONCE", at_once)
        found = hash128(array)
    wanted = [murmur((text or "").encode()) for text in texts[skipped:]]
    assert list(zip(*(half.tolist() for half in found), strict=True)) == wanted


def test_combined_hashes_depend_on_the_order() -> None:
    one, two = np.array([1, 2], np.uint64), np.array([2, 1], np.uint64)
    hashes = {*combined(one, two).tolist(), *combined(one).tolist(), *combined(two, one).tolist()}
    assert len(hashes) == 4  # those of (1, 2) and (2, 1) are the same in both calls
