"""Hashes of many texts are those of each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.transforms import text_hashes
from shardwright.transforms.text_hashes import combined, hash128


@pytest.mark.parametrize(("text", "wanted"), [
    ("", (0, 0)),
    ("hello", (0xCBD8A7B341BD9B02, 0x5B1E906A48AE1D19)),
    ("The quick brown fox jumps over the lazy dog", (0xE34BBC7BBC071B6C, 0x7A433CA9C49A9347)),
])  # fmt: skip
def test_published_values(text: str, wanted: tuple[int, int]) -> None:
    assert tuple(int(half[0]) for half in hash128(pa.array([text]))) == wanted


@given(st.lists(st.none() | st.text(max_size=50)), st.integers(0, 3), st.integers(1, 5))
def test_every_text_has_its_own_hash(texts: list[str | None], skipped: int, at_once: int) -> None:
    array = pa.array(texts, pa.string()).slice(skipped)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_hashes, "_ROWS_AT_ONCE", at_once)
        found = hash128(array)
    each = [hash128(pa.array([text or ""])) for text in texts[skipped:]]
    assert [half.tolist() for half in found] == [
        [int(one[half][0]) for one in each] for half in (0, 1)
    ]


def test_combined_hashes_depend_on_the_order() -> None:
    one, two = np.array([1, 2], np.uint64), np.array([2, 1], np.uint64)
    hashes = {*combined(one, two).tolist(), *combined(one).tolist(), *combined(two, one).tolist()}
    assert len(hashes) == 4  # those of (1, 2) and (2, 1) are the same in both calls
