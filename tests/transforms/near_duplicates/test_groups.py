"""The keepers of groups: their rule, chains, and what is listed and rejected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardwright.transforms.near_duplicates import groups as groups_module
from shardwright.transforms.near_duplicates.groups import (
    HashGroups,
    choose_keepers,
    leave_out_copies,
    listed_rows,
)
from shardwright.transforms.row_keys import row_keys
from tests.support.random_tests import examples

COLUMNS = {
    "id": pa.string(), "uri": pa.string(), "row": pa.int64(), "label": pa.string(),
    "num_bytes": pa.int64(), "phash": pa.uint64(), "num_pixels": pa.int64(),
}  # fmt: skip


def hashed(*rows: tuple[str, int], **columns: Any) -> pa.RecordBatch:
    """Return hashed rows from (id, hash); other columns are lists, or one value for all."""
    values = {
        "id": [name for name, _ in rows], "phash": [value for _, value in rows], "label": "a",
        "uri": [f"/{name}" for name, _ in rows], "row": 0, "num_bytes": 9, "num_pixels": 64,
        **columns,
    }  # fmt: skip
    arrays = [
        pa.array(values[name] if isinstance(values[name], list) else [values[name]] * len(rows), to)
        for name, to in COLUMNS.items()
    ]
    return pa.record_batch(arrays, list(COLUMNS))


def chosen(batches: list[pa.RecordBatch], distance: int) -> list[dict[str, Any]]:
    """Return the rows of all groups as `choose_keepers` does, part by part."""
    found = HashGroups.find([batch["phash"].to_numpy() for batch in batches], distance)
    parts: dict[int, list[pa.RecordBatch]] = {}
    for batch in batches:
        for part, rows in found.rows_in_groups(batch):
            parts.setdefault(part, []).append(rows)
    return [
        row
        for _, rows in sorted(parts.items())
        for row in listed_rows(choose_keepers(rows, distance)).to_pylist()
    ]


def keepers_of(batches: list[pa.RecordBatch], distance: int = 3) -> dict[str, tuple[str, int]]:
    return {row["id"]: (row["keeper"], row["distance"]) for row in chosen(batches, distance)}


def test_most_pixels_then_most_bytes_then_the_least_id() -> None:
    rows = [("a", 0), ("b", 1), ("c", 3), ("d", 7)]
    batch = hashed(*rows, num_pixels=[1, 2, 2, 2], num_bytes=[99, 5, 6, 6])
    assert keepers_of([batch]) == {"a": ("c", 2), "b": ("c", 1), "c": ("c", 0), "d": ("c", 1)}
    assert keepers_of([hashed(*rows)])["d"] == ("a", 3)


def test_images_alone_are_in_no_group() -> None:
    assert keepers_of([hashed(("a", 0), ("b", 0b1111), ("c", 0xFF << 20))]) == {}
    assert keepers_of([hashed(("a", 7), ("b", 7))], 0) == {"a": ("a", 0), "b": ("a", 0)}


def test_a_chain_has_several_keepers() -> None:
    """Frames of a video: each is near the next one, and the ends are different pictures."""
    frames = [(f"{number:02d}", (1 << number) - 1) for number in range(10)]
    found = keepers_of([hashed(*frames)])
    assert {keeper for keeper, _ in found.values()} == {"00", "04", "08"}
    assert max(distance for _, distance in found.values()) == 3


@st.composite
def some_rows(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """(id, hash, pixels) of images of which many are near."""
    values = st.integers(0, 255).map(lambda low: low | (low % 3) << 60)
    rows = draw(st.lists(st.tuples(values, st.integers(1, 3)), min_size=1, max_size=30))
    return [(f"{number:02d}", *row) for number, row in enumerate(rows)]


@examples(40)
@given(st.data(), some_rows(), st.integers(0, 4))
def test_groups_do_not_depend_on_order_or_batches(
    data: st.DataObject, rows: list[tuple[str, int, int]], distance: int
) -> None:
    def batches(ordered: list[tuple[str, int, int]], size: int) -> list[pa.RecordBatch]:
        pieces = [ordered[start : start + size] for start in range(0, len(ordered), size)]
        return [
            hashed(*[row[:2] for row in piece], num_pixels=[row[2] for row in piece])
            for piece in pieces
        ]

    whole = chosen(batches(rows, len(rows)), distance)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups_module, "_ROWS_PER_PART", data.draw(st.integers(1, 40)))
        cut = batches(data.draw(st.permutations(rows)), data.draw(st.integers(1, 30)))
        assert chosen(cut, distance) == whole
    hashes = {name: value for name, value, _ in rows}
    for row in whole:
        apart = (hashes[row["id"]] ^ hashes[row["keeper"]]).bit_count()
        assert apart == row["distance"] <= distance
    keepers = {row["keeper"] for row in whole}
    for one in keepers:  # no two keepers are near
        assert all((hashes[one] ^ hashes[two]).bit_count() > distance for two in keepers - {one})
    near = {
        one
        for one, value in hashes.items()
        for two, other in hashes.items()
        if one != two and (value ^ other).bit_count() <= distance
    }
    assert {row["id"] for row in whole} == near


@pytest.mark.parametrize(
    ("policy", "reason"), [("drop", "dropped_near_duplicate"), ("reject", "near_duplicate")]
)
def test_all_but_keepers_are_left_out(policy: str, reason: str) -> None:
    batch = hashed(("a", 0), ("b", 1), ("c", 3), label=["x", "x", "y"])
    (_, rows), *_ = HashGroups.find([batch["phash"].to_numpy()], 3).rows_in_groups(batch)
    keepers = choose_keepers([rows], 3)
    assert list(leave_out_copies(keepers, "report")) == []
    *rejects, keys = leave_out_copies(keepers, policy)
    assert sorted(keys.tolist()) == sorted(row_keys(batch)[1:].tolist())
    kept = "from 'a', which is kept"
    assert [(found.id, str(found.reason), found.detail) for found in rejects] == [
        ("b", reason, f"differs in 1 bit of its hash {kept}"),
        (
            "c",
            reason,
            f"differs in 2 bits of its hash {kept}, but another label: 'y' here, 'x' there",
        ),
    ]
    assert isinstance(keys, np.ndarray)
