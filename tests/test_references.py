"""References: batches travel unchanged, and the digest of a shard's references follows their values and nothing else."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import references
from transforms.references import (
    concat,
    digest_of,
    from_ipc,
    keep_rows,
    reject_rows,
    set_column,
    to_ipc,
)
from transforms.rejects import RejectReason

BATCH = references(
    ["a", "ü", "c"],
    labelled=True,
    etag=["1", None, ""],
    label=["cat", "dog", None],
    extras={
        "x/n": [1, -2, 3],
        "x/f": [0.5, float("nan"), 1.5],
        "x/tags": [[b"p", b""], [], [b"q"]],
        "x/lists": [[1], [2, 3], []],
    },
)


def test_golden_digest() -> None:
    """A resumed build compares this with what an earlier release wrote: a change makes every finished shard stale."""
    assert digest_of(b"settings", BATCH) == "2bafa9a5e9bbb47056d0ba1850981777"


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, 3), max_size=3), lead=st.integers(0, 3), tail=st.integers(0, 3))
def test_digest_ignores_slices_and_chunks(cuts: list[int], lead: int, tail: int) -> None:
    ends = sorted({0, 3, *cuts})
    chunked = concat([BATCH.slice(start, stop - start) for start, stop in itertools.pairwise(ends)])
    padded = concat([BATCH.slice(0, lead), BATCH, BATCH.slice(0, tail)]).slice(lead, 3)
    assert {digest_of(b"s", batch) for batch in (chunked, padded, from_ipc(to_ipc(padded)))} == {
        digest_of(b"s", BATCH)
    }


def test_digest_ignores_how_validity_is_kept() -> None:
    """A column without nulls may have a bitmap or none, and the bytes under a null may be anything."""
    plain = pa.array([1, 2, 3], pa.int64())
    values = np.array([1, 2, 3], np.int64)
    with_bitmap = pa.Array.from_buffers(
        pa.int64(), 3, [pa.py_buffer(b"\xff"), pa.py_buffer(values)]
    )
    under_null = [
        pa.Array.from_buffers(
            pa.int64(), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(np.array([1, junk, 3], np.int64))]
        )
        for junk in (0, 99)
    ]
    digests = [
        digest_of(b"", pa.RecordBatch.from_arrays([column], ["n"]))
        for column in (plain, with_bitmap, *under_null)
    ]
    assert digests[0] == digests[1] != digests[2] == digests[3]


CHANGES = {
    "an id": lambda batch: set_column(batch, "id", pa.array(["a", "ü", "d"])),
    "a length": lambda batch: set_column(batch, "num_bytes", pa.array([1000, 1000, 1001])),
    "an etag": lambda batch: set_column(batch, "etag", pa.array(["2", None, ""])),
    "null to empty": lambda batch: set_column(batch, "etag", pa.array(["1", "", ""])),
    "empty to null": lambda batch: set_column(batch, "etag", pa.array(["1", None, None])),
    "an int": lambda batch: set_column(batch, "x/n", pa.array([1, 2, 3])),
    "a type": lambda batch: set_column(batch, "x/n", pa.array([1, -2, 3], pa.int32())),
    "a float": lambda batch: set_column(batch, "x/f", pa.array([0.5, float("nan"), -1.5])),
    "an item": lambda batch: set_column(batch, "x/lists", pa.array([[1], [2, 4], []])),
    "where a list ends": lambda batch: set_column(batch, "x/lists", pa.array([[1, 2], [3], []])),
    "where a text ends": lambda batch: set_column(batch, "id", pa.array(["aü", "", "c"])),
    "where an item ends": lambda batch: set_column(
        batch, "x/tags", pa.array([[b"", b"p"], [], [b"q"]])
    ),
    "the order of rows": lambda batch: batch.take(pa.array([1, 0, 2])),
    "the number of rows": lambda batch: batch.slice(0, 2),
    "the order of columns": lambda batch: batch.select([*batch.schema.names[1:], "id"]),
    "a column's name": lambda batch: batch.rename_columns([*batch.schema.names[:-1], "x/other"]),
    "a column more": lambda batch: set_column(batch, "x/more", pa.array([0, 0, 0])),
    "a column less": lambda batch: batch.drop_columns(["x/n"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_digest_sees(change: str) -> None:
    changed = CHANGES[change](BATCH)
    assert digest_of(b"s", changed) != digest_of(b"s", BATCH)


def test_digest_sees_settings_and_nothing_of_the_process() -> None:
    assert digest_of(b"s", BATCH) != digest_of(b"t", BATCH)
    assert digest_of(b"s", BATCH) == digest_of(b"s", from_ipc(to_ipc(BATCH)))


@settings(max_examples=50, deadline=None)
@given(
    ids=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=20),
    numbers=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=20, max_size=20),
    lead=st.integers(0, 5),
)
def test_ipc_round_trip(ids: list[str], numbers: list[int | None], lead: int) -> None:
    batch = set_column(references(ids), "x/n", pa.array(numbers[: len(ids)], pa.int64())).slice(
        min(lead, len(ids))
    )
    assert from_ipc(to_ipc(batch)).equals(batch)


def test_a_slice_travels_without_its_neighbours() -> None:
    """A shuffle moves pieces of buckets: it must not move each bucket once a piece."""
    batch = references([f"folder/{number:040d}" for number in range(10_000)])
    assert len(to_ipc(batch.slice(5000, 1))) < 4000 < len(to_ipc(batch))


def test_columns_are_replaced_in_place_or_added_last() -> None:
    batch = references(["a"])
    assert set_column(batch, "split", pa.array(["test"])).schema.names == batch.schema.names
    assert set_column(batch, "x/new", pa.array([1])).schema.names == [*batch.schema.names, "x/new"]


def test_rejects_of_rows_tell_their_values() -> None:
    batch = references(["a", "b{}", "c"], row=[4, 5, 6])
    rejects = list(
        reject_rows(
            batch, np.array([False, True, True]), RejectReason.BAD_VALUE, "row {row} is {id!r}"
        )
    )
    assert [(reject.id, reject.uri, reject.detail) for reject in rejects] == [
        ("b{}", "/in/b{}", "row 5 is 'b{}'"),
        ("c", "/in/c", "row 6 is 'c'"),
    ]
    assert keep_rows(batch, np.array([True, False, True])).column("id").to_pylist() == ["a", "c"]
    assert keep_rows(batch, np.ones(3, bool)) is batch
