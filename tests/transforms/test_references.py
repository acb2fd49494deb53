"""References: batches travel unchanged, and a digest covers their values and nothing else."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.format.naming import ShardName
from shardwright.transforms import references as refs
from shardwright.transforms.plan.packing import ShardPlan
from shardwright.transforms.references import digest_of, from_ipc, to_ipc
from shardwright.transforms.rejects import RejectReason
from tests.support.helpers import references

NAN = float("nan")
BATCH = references(
    ["a", "ü", "c"],
    labelled=True,
    etag=["1", None, ""],
    label=["cat", "dog", None],
    extras={
        "x/n": [1, -2, 3],
        "x/f": [0.5, NAN, 1.5],
        "x/tags": [[b"p", b""], [], [b"q"]],
        "x/lists": [[1], [2, 3], []],
    },
)
CUTS = st.lists(st.integers(0, 3), max_size=3)


QUERIES = pa.array(["sig=1", None, "sig=3"])
SIGNED = BATCH.append_column(refs.QUERY, QUERIES)


def test_some_batches_have_queries_of_signed_urls() -> None:
    # The column has another place in each batch, because others were added since.
    batches = [refs.set_column(batch, "x/last", QUERIES) for batch in (BATCH, SIGNED, BATCH)]
    names = batches[0].schema.names
    for some in (batches, batches[1:], batches[:2]):
        whole = refs.concat(some)
        for number, batch in enumerate(some):
            part = whole.slice(3 * number, 3)
            assert digest_of(b"", part.select(names)) == digest_of(b"", batches[0])
            wanted = QUERIES if refs.QUERY in batch.schema.names else pa.nulls(3, pa.string())
            assert part.column(refs.QUERY) == wanted


def test_a_shards_digest_is_the_same_for_other_signatures() -> None:
    other = refs.set_column(SIGNED, refs.QUERY, QUERIES[::-1])
    name = ShardName("name", "train", 0, 1)
    digests = [ShardPlan.make(name, batch, b"s").digest for batch in (BATCH, SIGNED, other)]
    assert len(set(digests)) == 1


def test_golden_digest() -> None:
    """A resumed build compares this with an earlier release's: a change makes shards stale."""
    assert digest_of(b"settings", BATCH) == "2bafa9a5e9bbb47056d0ba1850981777"


@given(cuts=CUTS, lead=st.integers(0, 3), tail=st.integers(0, 3))
def test_digest_ignores_slices_and_chunks(cuts: list[int], lead: int, tail: int) -> None:
    ends = itertools.pairwise(sorted({0, 3, *cuts}))
    chunked = refs.concat([BATCH.slice(start, stop - start) for start, stop in ends])
    padded = refs.concat([BATCH.slice(0, lead), BATCH, BATCH.slice(0, tail)]).slice(lead, 3)
    for batch in (chunked, padded, from_ipc(to_ipc(padded)), from_ipc(to_ipc(BATCH))):
        assert digest_of(b"s", batch) == digest_of(b"s", BATCH)


def test_digest_ignores_the_layout_of_nulls() -> None:
    """A column without nulls may have a bitmap or none, and any bytes may lie under a null."""

    def digest(validity: bytes | None, second: int) -> str:
        values = pa.py_buffer(np.array([1, second, 3], np.int64))
        bitmap = None if validity is None else pa.py_buffer(validity)
        column = pa.Array.from_buffers(pa.int64(), 3, [bitmap, values])
        return digest_of(b"", pa.RecordBatch.from_arrays([column], ["n"]))

    assert digest(None, 2) == digest(b"\xff", 2) != digest(b"\x05", 0) == digest(b"\x05", 99)


def put(name: str, values: list[Any], kind: pa.DataType | None = None) -> pa.RecordBatch:
    return refs.set_column(BATCH, name, pa.array(values, kind))


CHANGED: dict[str, pa.RecordBatch] = {
    "an id": put("id", ["a", "ü", "d"]),
    "a length": put("num_bytes", [1000, 1000, 1001]),
    "an etag": put("etag", ["2", None, ""]),
    "null to empty": put("etag", ["1", "", ""]),
    "empty to null": put("etag", ["1", None, None]),
    "an int": put("x/n", [1, 2, 3]),
    "a type": put("x/n", [1, -2, 3], pa.int32()),
    "a float": put("x/f", [0.5, NAN, -1.5]),
    "an item": put("x/lists", [[1], [2, 4], []]),
    "the end of a list": put("x/lists", [[1, 2], [3], []]),
    "the end of a text": put("id", ["aü", "", "c"]),
    "the end of an item": put("x/tags", [[b"", b"p"], [], [b"q"]]),
    "the order of rows": BATCH.take(pa.array([1, 0, 2])),
    "the number of rows": BATCH.slice(0, 2),
    "the order of columns": BATCH.select([*BATCH.schema.names[1:], "id"]),
    "a column's name": BATCH.rename_columns([*BATCH.schema.names[:-1], "x/other"]),
    "a column more": put("x/more", [0, 0, 0]),
    "a column less": BATCH.drop_columns(["x/n"]),
}


@pytest.mark.parametrize("change", CHANGED)
def test_digest_sees(change: str) -> None:
    assert digest_of(b"s", CHANGED[change]) != digest_of(b"s", BATCH)


def test_digest_sees_settings() -> None:
    assert digest_of(b"s", BATCH) != digest_of(b"t", BATCH)


@given(
    ids=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=20),
    numbers=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=20, max_size=20),
    lead=st.integers(0, 5),
)
def test_ipc_round_trip(ids: list[str], numbers: list[int | None], lead: int) -> None:
    batch = refs.set_column(references(ids), "x/n", pa.array(numbers[: len(ids)], pa.int64()))
    sliced = batch.slice(min(lead, len(ids)))
    assert from_ipc(to_ipc(sliced)).equals(sliced)


def test_a_slice_travels_without_the_rest_of_its_batch() -> None:
    """A shuffle moves pieces of buckets: it must not move the bucket with each piece."""
    batch = references([f"folder/{number:040d}" for number in range(10_000)])
    assert len(to_ipc(batch.slice(5000, 1))) < 4000 < len(to_ipc(batch))


def test_columns_are_replaced_in_place_or_added_last() -> None:
    names = BATCH.schema.names
    assert put("split", ["test"] * 3).schema.names == names
    assert put("x/new", [1, 2, 3]).schema.names == [*names, "x/new"]


def test_rejects_of_rows_show_their_values() -> None:
    batch, bad = references(["a", "b{}", "c"], row=[4, 5, 6]), np.array([False, True, True])
    rejects = refs.reject_rows(batch, bad, RejectReason.BAD_VALUE, "row {row} is {id!r}")
    assert [(reject.id, reject.uri, reject.detail) for reject in rejects] == [
        ("b{}", "/in/b{}", "row 5 is 'b{}'"),
        ("c", "/in/c", "row 6 is 'c'"),
    ]
    assert refs.keep_rows(batch, np.array([True, False, True]))["id"].to_pylist() == ["a", "c"]
    assert refs.keep_rows(batch, np.ones(3, bool)) is batch
