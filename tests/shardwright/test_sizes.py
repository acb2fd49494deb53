"""Sizes and durations as people write them."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.errors import ImageFault, UsageError
from shardwright.format.contents import FileContent
from shardwright.format.records import RecordFault, frame_header, read_record
from shardwright.format.splits import ShardInfo
from shardwright.images.headers import read_header
from shardwright.reader.shard_files import shard_fault
from shardwright.sizes import counted, parse_size, show_bytes, show_seconds


def test_sizes() -> None:
    sizes = {
        "1": 1,
        "150MB": 150_000_000,
        "150mb": 150_000_000,
        " 1.5 GB ": 1_500_000_000,
        "128MiB": 128 * 2**20,
        "2k": 2000,
        "1TiB": 2**40,
        "0.5kib": 512,
    }
    assert {text: parse_size(text, "--shard-size") for text in sizes} == sizes


def test_texts_that_are_no_size() -> None:
    told = r"--shard-size .* is not a size: write a number above 0 with a unit, such as 150MB"
    wrong = ("", "MB", "0", "0MB", "-1MB", "1e6", "1 XB", "1.MB", "inf", "nan", "1,000", "0x10")
    for text in wrong:
        with pytest.raises(UsageError, match=told):
            parse_size(text, "--shard-size")
    with pytest.raises(UsageError, match=r"--shard-size '0.4' is less than one byte"):
        parse_size("0.4", "--shard-size")


def test_showing_bytes_and_seconds() -> None:
    sizes = {
        0: "0 B",
        999: "999 B",
        1000: "1.0 kB",
        153_200_000: "153.2 MB",
        2.5e12: "2.5 TB",
        3e16: "30000.0 TB",
    }
    assert {num_bytes: show_bytes(num_bytes) for num_bytes in sizes} == sizes
    times = {0: "0:00", 59.4: "0:59", 59.6: "1:00", 3599.6: "1:00:00", 3723: "1:02:03"}
    assert {seconds: show_seconds(seconds) for seconds in times} == times


@given(st.integers(1, 10**15))
def test_a_size_in_bytes_is_itself(num_bytes: int) -> None:
    assert parse_size(str(num_bytes), "x") == num_bytes


@pytest.mark.parametrize(
    "fail",
    [
        lambda: read_header(b"\xff"),
        lambda: read_record(io.BytesIO(frame_header(1)), 0),
    ],
)
def test_a_message_about_one_byte_has_no_plural(fail: Callable[[], object]) -> None:
    with pytest.raises((ImageFault, RecordFault), match=r"1 byte\b"):
        fail()


def test_a_fault_of_one_record_or_byte_has_no_plural() -> None:
    shard = ShardInfo(0, 1, 1, 0, "", 0, 0)
    for told in (shard_fault("a/b", shard, 1), FileContent(1, 0).fault(FileContent(2, 0))):
        assert "1 byte" in str(told)
        assert not re.search(r"\b1 \w+s\b", str(told))


def test_counts() -> None:
    found = [counted(number, "shard") for number in (0, 1, 2, 1024)]
    assert found == ["0 shards", "1 shard", "2 shards", "1,024 shards"]
    assert (counted(2, "class"), counted(1, "more class")) == ("2 classes", "1 more class")
    assert (counted(1, "index", "indices"), counted(3, "index", "indices")) == (
        "1 index", "3 indices",
    )  # fmt: skip
