"""Sizes and durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import UsageError
from shardwright.sizes import parse_size, show_bytes, show_seconds


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("1", 1),
        ("150MB", 150_000_000),
        ("150mb", 150_000_000),
        (" 1.5 GB ", 1_500_000_000),
        ("128MiB", 128 * 2**20),
        ("2k", 2000),
        ("1TiB", 2**40),
        ("0.5kib", 512),
    ],
)
def test_sizes(text: str, num_bytes: int) -> None:
    assert parse_size(text, "--shard-size") == num_bytes


@pytest.mark.parametrize(
    "text", ["", "MB", "0", "0MB", "-1MB", "1e6", "1 XB", "1.MB", "inf", "nan", "1,000", "0x10"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(
        UsageError,
        match=r"--shard-size .* is no size; write a number above 0 with a unit, such as 150MB",
    ):
        parse_size(text, "--shard-size")


def test_less_than_a_byte() -> None:
    with pytest.raises(UsageError, match=r"--shard-size '0.4' is less than a byte"):
        parse_size("0.4", "--shard-size")


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (153_200_000, "153.2 MB"),
        (2.5e12, "2.5 TB"),
        (3e16, "30000.0 TB"),
    ],
)
def test_showing_bytes(num_bytes: float, text: str) -> None:
    assert show_bytes(num_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (59.4, "0:59"), (59.6, "1:00"), (3599.6, "1:00:00"), (3723, "1:02:03")],
)
def test_showing_seconds(seconds: float, text: str) -> None:
    assert show_seconds(seconds) == text


@given(st.integers(1, 10**15))
def test_a_size_in_bytes_is_itself(num_bytes: int) -> None:
    assert parse_size(str(num_bytes), "x") == num_bytes
