"""No records, no bytes, no seconds, one record: every report, statistic and estimate says so."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shardwright.format.index import INDEX_SCHEMA
from shardwright.format.manifest import Manifest
from shardwright.format.splits import ShardInfo, SplitInfo
from shardwright.inspect import record_changes as changes
from shardwright.inspect.build_scan import Amount, BuildPhase, BuildProgress
from shardwright.inspect.describe import format_description
from shardwright.inspect.sample import sample_size, sampled_shards
from shardwright.inspect.stats import format_statistics, statistics_json
from shardwright.inspect.watch import show_line
from shardwright.report import charts
from shardwright.report.data import ReportData
from shardwright.report.markup import bar
from shardwright.report.page import report_html
from shardwright.schemas.ready import image_classification
from shardwright.sizes import show_number
from shardwright.transforms.plan.packing import ShardPolicy, SizeEstimate
from shardwright.transforms.publish.number_sums import describe_numbers, merged, published
from shardwright.transforms.publish.statistics import describe_rows

NO_ROWS = INDEX_SCHEMA.empty_table()
ONE_ROW = pa.Table.from_pylist(
    [
        {"id": "a", "offset": 0, "length": 9, "image_offset": 1, "image_length": 1, "crc32c": 0,
         "label": 0, "format": "png", "width": 1, "height": 1},
    ],
    INDEX_SCHEMA,
)  # fmt: skip
SHARDS: dict[str, tuple[ShardInfo, ...]] = {
    "no shards": (),
    "an empty shard": (ShardInfo(0, 0, 0, 0, "", 0, 0),),
    "one record": (ShardInfo(0, 1, 9, 1, "d", 0, 0),),
    "one record and an empty shard": (
        ShardInfo(0, 1, 9, 1, "d", 0, 0),
        ShardInfo(1, 0, 0, 0, "", 0, 0),
    ),
}
CLASSES = tuple(f"class {number}" for number in range(100))  # enough for a curve
NAN = re.compile(r"\b(nan|NaN|inf|Infinity)\b")
NUMBERS = ([], [0], [0, 0], [float("nan")], [float("inf")] * 2, [5.0])


def manifest_of(shards: tuple[ShardInfo, ...]) -> Manifest:
    """Return a manifest, with the statistics that a build of such shards has."""
    records = sum(shard.num_records for shard in shards)
    stats = describe_rows(ONE_ROW if records else NO_ROWS)
    return Manifest(
        name="zoo",
        version="1.0.0",
        schema=image_classification().with_class_names(CLASSES),
        splits={"train": SplitInfo("train", shards, stats), "test": SplitInfo("test", (), {})},
        rejects={"corrupt": 3},
        num_inputs=records + 3,
        settings={},
        fingerprint="f",
        provenance={},
    )


def progresses() -> list[object]:
    shown: list[object] = []
    for phase in BuildPhase:
        for done in (Amount(), Amount(1), Amount(1, 1, 1)):
            for reused, seconds in ((Amount(), 0.0), (Amount(), 9.0), (done, 0.0)):
                progress = BuildProgress(
                    phase, Amount(1), done, reused, seconds=seconds, idle_seconds=seconds
                )
                shown += [show_line(progress), progress.to_json()]
    return shown


def summaries() -> list[object]:
    found: list[object] = []
    for values in NUMBERS:
        (part,) = describe_numbers([np.array(values, np.float64)])
        found.append(published(merged([part, part])))
    return found


def drifts() -> list[object]:
    nothing: Any = np.array([], np.int64)
    one: Any = np.array([0], np.int64)
    return [
        *(changes.number_drift(old, new) for old in (nothing, one) for new in (nothing, one)),
        *(changes.share_drift(old, new) for old in ({}, {"a": 0}) for new in ({}, {"a": 1})),
    ]


def drawings() -> list[object]:
    zeros, ones = np.zeros(2, np.int64), np.ones(1, np.int64)
    return [
        bar(0.0),
        charts.histogram("x", [0.0, 1.0], [0], show_number),
        charts.histogram_of("x", zeros, show_number),
        charts.histogram_of("x", ones, show_number),
    ]


def plans() -> list[object]:
    nothing = np.zeros(3, np.int64)
    made = [
        SizeEstimate.of(known, made, sample="s")
        for known in (nothing, nothing + 5)
        for made in (nothing, nothing + 7)
    ]
    policies = [ShardPolicy(num_bytes=10), ShardPolicy(num_records=1), ShardPolicy(num_shards=2)]
    return [
        policy.cut(records, 0 if estimate is None else estimate.total(records, 0))
        for policy in policies
        for records in (0, 1, 3)
        for estimate in (None, *made)
    ]


def samples() -> list[object]:
    numbers = [(records, shards) for records in (0, 1) for shards in (0, 1, 2)]
    return [sampled_shards(sample_size(records), records, shards) for records, shards in numbers]


@pytest.mark.parametrize("make", [progresses, summaries, drifts, drawings, plans, samples])
def test_parts_of_nothing(make: Callable[[], list[object]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = make()
    assert found
    assert not NAN.search(repr(found))


@pytest.mark.parametrize("shards", SHARDS)
def test_a_dataset_of_nothing(shards: str) -> None:
    manifest = manifest_of(SHARDS[shards])
    for each in (manifest, replace(manifest, splits={}), replace(manifest, rejects={})):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            page = report_html(ReportData(each))
            described = format_description(each, "out")
            told = [format_statistics(each), json.dumps(statistics_json(each)), described]
        assert "cannot be shown" not in page
        shown = re.sub(r"(?s)<script>.*?</script>", "", page)
        assert not any(map(NAN.search, (shown, *told)))
