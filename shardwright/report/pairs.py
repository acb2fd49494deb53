"""Show images that are in several splits, and near-duplicates, as pairs of pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardwright.format.stats_keys import LEAKS, NEAR_LEAKS
from shardwright.report.data import ReportData
from shardwright.report.markup import Html, join, name_of, tag
from shardwright.report.paired import NearPair
from shardwright.report.reject_rows import RejectedInput
from shardwright.report.sections import Section, bare_picture, class_name, note, picture
from shardwright.report.tables import Cell, names, numbers, table
from shardwright.sizes import counted


def duplicates(data: ReportData) -> Section | None:
    """Return the section of duplicates; None if there are none to show."""
    equal = "Equal bytes in two splits, which make test results too good"
    parts = [
        *_kind(data, LEAKS, equal),
        *_kind(data, NEAR_LEAKS, "Almost equal, in two splits"),
        *_near(data),
    ]
    return Section("duplicates", "Duplicates", join(parts)) if parts else None


def _kind(data: ReportData, key: str, told: str) -> list[Html]:
    found = [
        (name, other, leak)
        for name, split in data.manifest.splits.items()
        for other, leak in split.stats.get(key, {}).items()
    ]
    if not found:
        return []
    rows: list[list[Cell]] = [
        [name, other, leak["records"], leak["unchecked"]] for name, other, leak in found
    ]
    columns = [names("split"), names("also in"), numbers("records")]
    columns.append(numbers("more by checksum only"))
    if key != LEAKS:
        columns, rows = columns[:3], [row[:3] for row in rows]
    pairs = [pair for one in found for pair in _pairs(data, key, *one)]
    return [tag("h3", told), _sheet(pairs), table(told, columns, rows)]


def _sheet(pairs: list[Html]) -> Html:
    return tag("div", join(pairs), class_="sheet pairs")


def _near(data: ReportData) -> list[Html]:
    """Return the near-duplicates with the images that stand for them, if some can be shown."""
    dropped = {one.id: one for one in data.rejects if one.thumbnail is not None}
    shown = [pair for pair in data.near if pair.id in data.paired or pair.id in dropped]
    if not shown:
        return []
    return [
        tag("h3", "Near-duplicates, and the image that stands for each"),
        _sheet([_near_pair(data, pair, dropped.get(pair.id)) for pair in shown]),
        note("With the bits in which their hashes differ; near_duplicates.parquet has all."),
    ]


def _near_pair(data: ReportData, pair: NearPair, dropped: RejectedInput | None) -> Html:
    other = data.paired.get(pair.keeper)
    here = (
        bare_picture(dropped.thumbnail, pair.id, dropped.detail, caption=tag("small", "rejected"))
        if dropped is not None and dropped.thumbnail is not None and pair.id not in data.paired
        else _one(data, pair.split or "", pair.id)
    )
    there = _one(data, other.split if other else "", pair.keeper)
    apart = counted(pair.distance, "bit")
    told = (name_of(pair.id), " \u2248 ", name_of(pair.keeper), f", {apart}")
    return tag("div", here, there, tag("p", *told), class_="pair")


def _pairs(
    data: ReportData, key: str, split: str, other: str, leak: Mapping[str, Any]
) -> list[Html]:
    """Return the examples of a split and another one, once for both directions."""
    sign = " = " if key == LEAKS else " \u2248 "
    if other < split and split in data.manifest.splits[other].stats.get(key, {}):
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
    found = data.paired.get(record_id)
    label = class_name(data.manifest.schema.class_names, found.label) if found else ""
    return picture(found, label, caption=tag("small", name_of(split)))
