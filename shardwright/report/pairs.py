"""Show images that are in several splits as pairs of pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardwright.format.stats_keys import LEAKS, NEAR_LEAKS
from shardwright.report.data import ReportData, leaks_of
from shardwright.report.markup import Html, join, name_of, tag
from shardwright.report.sections import Section, class_name, picture
from shardwright.report.tables import Cell, names, numbers, table


def duplicates(data: ReportData) -> Section | None:
    """Return the section of duplicates across splits; None if there are none."""
    parts = [
        *_kind(data, LEAKS, "Images with equal bytes, which make test results too good."),
        *_kind(data, NEAR_LEAKS, "Images that are almost equal."),
    ]
    return Section("duplicates", "Duplicates across splits", join(parts)) if parts else None


def _kind(data: ReportData, key: str, told: str) -> list[Html]:
    found = [
        (name, other, leak)
        for name, split in data.manifest.splits.items()
        for other, leak in leaks_of(split.stats.get(key)).items()
    ]
    if not found:
        return []
    rows: list[list[Cell]] = [
        [name, other, leak.get("records", 0), leak.get("unchecked", 0)]
        for name, other, leak in found
    ]
    columns = [names("split"), names("also in"), numbers("records")]
    columns.append(numbers("more by checksum only"))
    if key != LEAKS:
        columns, rows = columns[:3], [row[:3] for row in rows]
    pairs = [pair for one in found for pair in _pairs(data, key, *one)]
    return [table(told, columns, rows), tag("div", join(pairs), class_="sheet pairs")]


def _pairs(
    data: ReportData, key: str, split: str, other: str, leak: Mapping[str, Any]
) -> list[Html]:
    """Return the examples of a split and another one, once for both directions."""
    sign = " = " if key == LEAKS else " \u2248 "
    if other < split and split in leaks_of(data.manifest.splits[other].stats.get(key)):
        return []
    return [
        tag(
            "div",
            _one(data, split, here),
            _one(data, other, there),
            tag("p", name_of(here), sign, name_of(there)),
            class_="pair",
        )
        for here, there in leak["examples"]
    ]


def _one(data: ReportData, split: str, record_id: str) -> Html:
    found = data.paired.get((split, record_id))
    label = class_name(data.manifest.schema.class_names, found.label) if found else ""
    return picture(found, label, caption=tag("small", name_of(split)))
