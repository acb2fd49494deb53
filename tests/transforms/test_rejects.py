"""Reject rows: one table in any order of arrival, and the reasons that count as faults."""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from shardwright.format.reject_counts import NO_FAULTS, count_faults
from shardwright.storage.folder import Folder
from shardwright.transforms.reject_files import pack_rejects, unpack_rejects, write_reject_rows
from shardwright.transforms.rejects import (
    REJECT_SCHEMA,
    RETRYABLE,
    Reject,
    RejectReason,
    rejects_in,
    rejects_to_table,
)

ROWS = [
    Reject("b", "/b", RejectReason.CORRUPT, "x"),
    Reject("a", "/z", RejectReason.DUPLICATE_ID, "row 1"),
    Reject("a", "/a", RejectReason.DUPLICATE_ID, "row 2"),
    Reject("", "/t.csv", RejectReason.BAD_VALUE, "row 9"),
    Reject("", "/t.csv", RejectReason.BAD_VALUE, "row 4"),
]


def test_a_file_does_not_depend_on_the_order_of_arrival(tmp_path: Path) -> None:
    for order in itertools.permutations(ROWS):
        parts = [pack_rejects(rejects_to_table(part)) for part in (order[:2], order[2:])]
        write_reject_rows(Folder(str(tmp_path)), "r.parquet", map(unpack_rejects, parts))
        table = pq.read_table(tmp_path / "r.parquet")
        assert table.schema == REJECT_SCHEMA
        assert table["detail"].to_pylist() == ["row 4", "row 9", "row 2", "row 1", "x"]
    assert table["reason"].to_pylist()[0] == "bad_value"


def test_rejects_come_back_from_their_batch() -> None:
    assert rejects_in(rejects_to_table(ROWS)) == ROWS
    assert rejects_to_table([]).schema == REJECT_SCHEMA


@pytest.mark.parametrize(
    ("counts", "faults"),
    [({}, 0), ({"other_file": 9}, 0), ({"other_file": 9, "corrupt": 2, "bad_id": 1}, 3),
     ({"empty_box": 9, "incomplete": 1}, 9),
     ({"dropped_duplicate": 9, "unused_id": 2, "duplicate_image": 1}, 3)],
)  # fmt: skip
def test_expected_rejects_are_no_faults(counts: dict[str, int], faults: int) -> None:
    assert count_faults(counts) == faults
    assert set(map(str, RejectReason)) >= NO_FAULTS


def test_reasons() -> None:
    """Manifests, reports and dashboards have these names: renaming one breaks their readers."""
    assert [str(reason) for reason in RejectReason] == [
        "empty_file", "truncated", "not_an_image", "unsupported_format", "corrupt",
        "too_many_pixels", "too_large", "policy_exif", "policy_cmyk", "policy_16bit",
        "policy_palette", "policy_alpha", "policy_grayscale", "policy_animation", "policy_aspect",
        "policy_small", "policy_extension", "missing_file", "unreadable", "changed", "bad_id",
        "duplicate_id", "missing_label", "unknown_label", "unknown_split", "bad_value", "transform",
        "other_file", "empty_box", "unmatched_label", "ambiguous_label", "unused_id",
        "duplicate_image", "dropped_duplicate", "near_duplicate", "dropped_near_duplicate",
        "outside_input", "incomplete", "crashed", "gone", "internal_error",
    ]  # fmt: skip
    retryable = ["changed", "internal_error", "missing_file", "unreadable"]
    assert sorted(RETRYABLE) == retryable
