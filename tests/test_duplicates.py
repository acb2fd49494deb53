"""Images with the same bytes: which are read, which one stays, and what is told of the others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardwright.storage import NO_OPTIONS
from tests.helpers import references
from transforms import duplicates
from transforms.duplicates import (
    CONTENT,
    count_lengths,
    find_duplicates,
    hash_images,
    is_among,
    leave_out,
    merge_lengths,
    row_keys,
    spread_hashed,
    take_candidates,
)
from transforms.inputs.file_rules import etag_of


def files(root: Path, **contents: bytes) -> pa.RecordBatch:
    """References to files of these contents, by id."""
    for name, data in contents.items():
        (root / name).write_bytes(data)
    paths = [root / name for name in contents]
    return references(
        list(contents),
        uri=[str(path) for path in paths],
        num_bytes=[len(data) for data in contents.values()],
        etag=[etag_of(path.stat()) for path in paths],
    )


def hashed(rows: list[tuple[str, bytes]], **columns: Any) -> pa.RecordBatch:
    batch = references([image_id for image_id, _ in rows], **columns).select(
        ["id", "uri", "row", "label"]
    )
    return batch.append_column(CONTENT, pa.array([content for _, content in rows], pa.binary()))


@settings(max_examples=100, deadline=None)
@given(lengths=st.lists(st.integers(1, 8), max_size=30), size=st.integers(1, 7))
def test_lengths_that_come_again(lengths: list[int], size: int) -> None:
    batches = [references([str(row) for row in range(start, start + len(part))], num_bytes=part)
               for start in range(0, len(lengths), size) if (part := lengths[start : start + size])]  # fmt: skip
    found = merge_lengths(
        [
            merge_lengths(map(count_lengths, batches[:2])),
            merge_lengths(map(count_lengths, batches[2:])),
        ]
    )
    assert found.lengths.tolist() == sorted(set(lengths))
    assert found.repeated.tolist() == [lengths.count(length) > 1 for length in sorted(set(lengths))]
    for batch in batches:
        assert take_candidates(batch, found).column("num_bytes").to_pylist() == [
            length for length in batch.column("num_bytes").to_pylist() if lengths.count(length) > 1
        ]


def test_an_image_nobody_looked_at_may_have_any_length() -> None:
    batch = references(["1", "2", "3"], num_bytes=[5, 6, 7], etag=["e", None, "e"])
    assert take_candidates(batch, count_lengths(batch)).column("id").to_pylist() == ["2"]


def test_hashes_are_those_of_the_bytes(tmp_path: Path) -> None:
    batch = files(tmp_path, a=b"same", b=b"else", c=b"same", d=b"")
    found = hash_images(batch, NO_OPTIONS)
    assert found.schema.names == ["id", "uri", "row", "label", CONTENT]
    first, second, third, empty = found.column(CONTENT).to_pylist()
    assert (first == third, len({first, second, empty}), {len(first), len(empty)}) == (
        True,
        3,
        {16},
    )


def test_byte_ranges_are_hashed_alone(tmp_path: Path) -> None:
    (tmp_path / "tar").write_bytes(b"..same.same")
    etag = etag_of((tmp_path / "tar").stat())
    batch = references(["1", "2"], uri=str(tmp_path / "tar"), offset=[2, 7], num_bytes=4, etag=etag)
    first, second = hash_images(batch, NO_OPTIONS).column(CONTENT).to_pylist()
    assert first == second


def test_what_cannot_be_read_is_left_to_the_writer(tmp_path: Path) -> None:
    batch = files(tmp_path, a=b"same", b=b"same", c=b"same", d=b"same")
    (tmp_path / "b").unlink()
    (tmp_path / "c").write_bytes(b"longer")
    os.symlink("nowhere", tmp_path / "b")
    assert hash_images(batch, NO_OPTIONS).column("id").to_pylist() == ["a", "d"]


def test_few_bytes_are_in_memory_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "AHEAD_BYTES", 10)
    batch = files(
        tmp_path,
        **{f"f{number}": bytes([number // 2]) * (4 if number else 20) for number in range(9)},
    )
    places = [
        duplicates.Place(*row)
        for row in zip(
            *(batch.column(name).to_pylist() for name in duplicates.Place._fields), strict=True
        )
    ]
    assert list(duplicates._runs(places)) == [(0, 1), (1, 3), (3, 5), (5, 7), (7, 9)]
    found = hash_images(batch, NO_OPTIONS, threads=2)
    assert (found.num_rows, len(set(found.column(CONTENT).to_pylist()))) == (9, 6)


def test_all_of_one_content_are_in_one_bucket() -> None:
    batch = hashed(
        [(str(number), bytes([number % 50, number % 50]) + bytes(14)) for number in range(200)]
    )
    buckets = dict(spread_hashed(batch))
    assert sum(rows.num_rows for rows in buckets.values()) == 200
    contents = [set(rows.column(CONTENT).to_pylist()) for rows in buckets.values()]
    assert len(set.union(*contents)) == sum(map(len, contents)) == 50
    assert list(spread_hashed(batch.slice(0, 0))) == []


@pytest.mark.parametrize(
    ("policy", "reason"), [("drop", "dropped_duplicate"), ("reject", "duplicate_image")]
)
def test_the_first_by_id_stays(policy: str, reason: str) -> None:
    first = hashed([("c", b"1"), ("b", b"2"), ("d", b"1")], label=["cat", "dog", "cat"])
    second = hashed([("a", b"1"), ("e", b"3")], label=["ape", None])
    keys, rejects = find_duplicates([first, second], policy)
    assert [(reject.id, reject.uri, str(reject.reason)) for reject in rejects] == [
        ("c", "/in/c", reason),
        ("d", "/in/d", reason),
    ]
    assert (
        rejects[0].detail
        == "the same bytes as 'a', which stays, and another label: 'cat' here, 'ape' there"
    )
    left = [
        row
        for batch in (first, second)
        for row in leave_out(batch, np.sort(keys)).column("id").to_pylist()
    ]
    assert left == ["b", "a", "e"]
    again, _ = find_duplicates([second, first], policy)
    assert set(again.tolist()) == set(keys.tolist())


def test_the_same_label_is_not_told() -> None:
    _, rejects = find_duplicates([hashed([("a", b"1"), ("b", b"1")])], "drop")
    assert [reject.detail for reject in rejects] == ["the same bytes as 'a', which stays"]


def test_of_two_rows_with_one_id_the_first_stays() -> None:
    batch = hashed([("a", b"1"), ("a", b"1")], row=[7, 3])
    keys, rejects = find_duplicates([batch], "drop")
    assert leave_out(batch, keys).column("row").to_pylist() == [3]
    assert len(rejects) == 1


def test_keys_tell_rows_apart() -> None:
    batch = references(["a", "a", "a1", "a"], row=[1, 2, 1, 1], uri=["/x", "/x", "/x", "/y"])
    assert len(set(row_keys(batch).tolist())) == 4


def test_is_among() -> None:
    assert is_among(np.array([1, 5, 9]), np.array([5, 9])).tolist() == [False, True, True]
    assert is_among(np.array([1]), np.zeros(0)).tolist() == [False]
