"""Images with the same bytes: which are read, which one stays, and the rejects of the others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.storage.options import NO_OPTIONS
from shardwright.transforms.duplicates import contents
from shardwright.transforms.duplicates.contents import (
    CONTENT,
    find_duplicates,
    hash_images,
)
from shardwright.transforms.inputs.file_rules import etag_of
from shardwright.transforms.rejects import Reject
from shardwright.transforms.row_keys import leave_out, row_keys
from shardwright.transforms.write import image_reads
from shardwright.transforms.write.image_reads import main_places
from tests.support.helpers import file_references, references


def files(root: Path, **contents: bytes) -> pa.RecordBatch:
    """Write files of these contents; return references to them, by id."""
    paths = [root / name for name in contents]
    for path, data in zip(paths, contents.values(), strict=True):
        path.write_bytes(data)
    return file_references(paths)


def hashed(rows: list[tuple[str, bytes]], **columns: Any) -> pa.RecordBatch:
    ids, contents = zip(*rows, strict=True)
    batch = references(ids, **columns).select(["id", "uri", "row", "label"])
    return batch.append_column(CONTENT, pa.array(contents, pa.binary()))


def contents_of(batch: pa.RecordBatch, **options: Any) -> list[bytes]:
    return hash_images(batch, NO_OPTIONS, **options)[CONTENT].to_pylist()


@given(lengths=st.lists(st.integers(1, 8), max_size=30), size=st.integers(1, 7))
def test_lengths_that_recur(lengths: list[int], size: int) -> None:
    parts = [lengths[start : start + size] for start in range(0, len(lengths), size)]
    batches = [references([str(row) for row in range(len(part))], num_bytes=part) for part in parts]
    counts, merge = list(map(contents.count_lengths, batches)), contents.merge_lengths
    found = merge([merge(counts[:2]), merge(counts[2:])])
    assert found.tolist() == sorted(
        [*set(lengths), *(n for n in set(lengths) if lengths.count(n) > 1)]
    )
    for batch, part in zip(batches, parts, strict=True):
        wanted = [length for length in part if lengths.count(length) > 1]
        taken = [part["num_bytes"].to_pylist() for part in contents.take_candidates(batch, found)]
        assert taken == [wanted] * bool(wanted)


def test_an_image_of_unknown_length_is_a_candidate() -> None:
    batch = references(["1", "2", "3"], num_bytes=[5, 6, 7], etag=["e", None, "e"])
    (candidates,) = contents.take_candidates(batch, contents.count_lengths(batch))
    assert candidates["id"].to_pylist() == ["2"]


def test_hashes_are_those_of_the_bytes(tmp_path: Path) -> None:
    batch = files(tmp_path, a=b"same", b=b"else", c=b"same", d=b"")
    assert hash_images(batch, NO_OPTIONS).schema.names == ["id", "uri", "row", "label", CONTENT]
    first, second, third, empty = contents_of(batch)
    assert first == third
    assert len({first, second, empty}) == 3
    assert {len(first), len(empty)} == {16}


def test_byte_ranges_are_hashed_alone(tmp_path: Path) -> None:
    (tmp_path / "tar").write_bytes(b"..same.same")
    etag = etag_of((tmp_path / "tar").stat())
    batch = references(["1", "2"], uri=str(tmp_path / "tar"), offset=[2, 7], num_bytes=4, etag=etag)
    first, second = contents_of(batch)
    assert first == second


def test_unreadable_images_are_left_to_the_writer(tmp_path: Path) -> None:
    batch = files(tmp_path, a=b"same", b=b"same", c=b"same", d=b"same")
    (tmp_path / "b").unlink()
    os.symlink("nowhere", tmp_path / "b")
    (tmp_path / "c").write_bytes(b"longer")
    assert hash_images(batch, NO_OPTIONS)["id"].to_pylist() == ["a", "d"]


def test_few_bytes_are_in_memory_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_reads, "AHEAD_BYTES", 10)
    files_of = {f"f{number}": bytes([number // 2]) * (4 if number else 20) for number in range(9)}
    batch = files(tmp_path, **files_of)
    assert list(image_reads.runs_of(main_places(batch))) == [
        (0, 1),
        (1, 3),
        (3, 5),
        (5, 7),
        (7, 9),
    ]
    found = contents_of(batch, threads=2)
    assert (len(found), len(set(found))) == (9, 6)


def test_all_of_one_content_are_in_one_bucket() -> None:
    batch = hashed([(str(number), bytes([number % 50] * 2 + [0] * 14)) for number in range(200)])
    buckets = list(dict(contents.spread_hashed(batch)).values())
    assert sum(rows.num_rows for rows in buckets) == 200
    held = [set(rows[CONTENT].to_pylist()) for rows in buckets]
    assert len(set.union(*held)) == sum(map(len, held)) == 50
    assert list(contents.spread_hashed(batch.slice(0, 0))) == []


@pytest.mark.parametrize(
    ("policy", "reason"), [("drop", "dropped_duplicate"), ("reject", "duplicate_image")]
)
def test_the_first_by_id_stays(policy: str, reason: str) -> None:
    first = hashed([("c", b"1"), ("b", b"2"), ("d", b"1")], label=["cat", "dog", "ape"])
    second = hashed([("a", b"1"), ("e", b"3")], label=["ape", None])
    *rejects, keys = find_duplicates([first, second], policy)
    same = "same bytes as 'a', which is kept"
    assert [(reject.id, reject.uri, str(reject.reason), reject.detail) for reject in rejects] == [
        ("c", "/in/c", reason, f"{same}, but another label: 'cat' here, 'ape' there"),
        ("d", "/in/d", reason, same),
    ]
    kept = [part for batch in (first, second) for part in leave_out(batch, np.sort(keys))]
    left = [part["id"].to_pylist() for part in kept]
    assert left == [["b"], ["a", "e"]]
    assert set([*find_duplicates([second, first], policy)][-1].tolist()) == set(keys.tolist())


def test_of_two_rows_with_one_id_the_first_stays() -> None:
    """Labels that both are missing are the same."""
    batch = hashed([("a", b"1"), ("a", b"1")], row=[7, 3])
    reject, keys = find_duplicates([batch], "drop")
    assert isinstance(reject, Reject)
    (kept,) = leave_out(batch, keys)
    assert (kept["row"].to_pylist(), reject.detail) == ([3], "same bytes as 'a', which is kept")


def test_row_keys_are_unique() -> None:
    batch = references(["a", "a", "a1", "a"], row=[1, 2, 1, 1], uri=["/x", "/x", "/x", "/y"])
    assert len(set(row_keys(batch).tolist())) == 4


def test_is_among() -> None:
    found = contents.is_among(np.array([1, 5, 9]), np.array([5, 9]))
    assert found.tolist() == [False, True, True]
    assert contents.is_among(np.array([1]), np.zeros(0)).tolist() == [False]
