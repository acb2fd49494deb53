"""`shardwright stats` as text."""

from __future__ import annotations

from shardwright.format.manifest import Manifest
from shardwright.format.schema import ExampleSchema
from shardwright.format.splits import SplitInfo
from shardwright.inspect.stats import format_statistics


def test_columns_are_apart_and_in_line_however_long_their_values_are() -> None:
    wide = {
        "of": "values",
        "count": 2,
        "zeros": 0,
        "min": -(2**62),
        "mean": 0.0,
        "max": 2**62,
        "std": 3.765e18,
    }
    stats = {"features": {"a": wide, "other": wide | {"min": 1}}}
    splits = {"train": SplitInfo("train", (), stats)}
    manifest = Manifest("m", "1.0.0", ExampleSchema(()), splits, {}, 0, {}, "f", {})
    _, head, *rows = format_statistics(manifest).splitlines()
    assert " ".join(head.split()) == "feature of split count least mean largest deviation zeros"
    assert rows[0].split() == [
        *("a", "values", "train", "2", "-4,611,686,018,427,387,904", "0"),
        *("4,611,686,018,427,387,904", "3,765,000,000,000,000,000", "0"),
    ]
    assert rows[1].split()[4] == "1"
    assert len({len(line) for line in (head, *rows)}) == 1
