"""Show what may be wrong with images: quality, duplicates, rejects, and fixes that were made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardwright.format.stats_keys import FIXES, LEAKS, NEAR_LEAKS
from shardwright.format.stats_keys import SIGNALS as SIGNALS_KEY
from shardwright.images.signals import SIGNALS, Signal
from shardwright.inspect.stats import channel_view
from shardwright.inspect.views import names, numbers, texts
from shardwright.report.charts import histogram, histogram_of
from shardwright.report.contact_sheet import (
    again,
    anchor_of,
    bare_picture,
    link_to_pictures,
    picture,
)
from shardwright.report.data import NearPair, ReportData
from shardwright.report.markup import Html, Section, join, more, name_of, note, sheet, table, tag
from shardwright.report.pictures import Picture
from shardwright.report.rejects import REASONS, UNKNOWN, RejectedInput
from shardwright.sizes import counted, show_number

_WORST = 6  # pictures of each signal
_OPEN = 30  # rejects that are shown at once; a click shows more


def quality(data: ReportData) -> Section | None:
    """Return the section of quality; None without pictures."""
    measured = [found for found in data.pictures if found.signals is not None and found.thumbnail]
    if not measured:
        return None
    values = np.array([found.signals for found in measured if found.signals is not None])
    told = (
        f"Measured on {counted(len(measured), 'picture')} of the sample, at a reduced size. "
        "The pictures at the bad end of each signal are shown, whether they are bad or not."
    )
    shown = [
        _signal(data, measured, signal, values[:, place]) for place, signal in enumerate(SIGNALS)
    ]
    view = channel_view(data.manifest)
    channels = table(*view) if view.rows else ""
    drawn = tag("div", *shown, class_="charts")
    return Section("quality", "Quality", join((note(told), drawn, channels)))


def _signal(
    data: ReportData, measured: Sequence[Picture], signal: Signal, values: np.ndarray
) -> Html:
    title = f"{signal.name}: {signal.text}"
    counts = _counts_of_all(data, signal)
    chart = (
        histogram(title, signal.edges, counts, show_number, signal.outside)
        if counts
        else histogram_of(title, values, show_number)
    )
    order = np.argsort(values, kind="stable")
    ends = {"low": order[:_WORST], "high": order[::-1][:_WORST]}
    ends["both"] = np.concatenate([ends["low"][: _WORST // 2], ends["high"][: _WORST // 2]])
    if not signal.bad or values.min() == values.max():
        return chart
    number = sum(map(signal.is_fault, values.tolist()))
    limit = "below" if signal.bad == "low" else "above"
    told = (
        f"{counted(number, 'picture')} {limit} {show_number(signal.limit)} ({signal.fault})"
        if signal.limit is not None
        else ""
    )
    sort = link_to_pictures(data, f"Sort all by {signal.name}", sort=signal.name)
    link = tag("span", sort, class_="scripted", hidden=True)
    worst = []
    for place in ends[signal.bad]:
        found, value = measured[place], show_number(float(values[place]))
        label = data.class_name(found.label)
        worst.append(again(found, anchor_of(found), label, f"{signal.name} {value}", value))
    shown = [chart, tag("p", told, " ", link, class_="note"), sheet(worst)]
    return tag("div", *shown, class_="signal")


def _counts_of_all(data: ReportData, signal: Signal) -> list[int]:
    """Return the histogram of a signal over all records, [] if not all were measured."""
    found = [split.stats.get(SIGNALS_KEY, {}) for split in data.manifest.splits.values()]
    parts = [each[signal.name] for each in found if signal.name in each]
    histograms = [
        part["histogram"] for part in parts if part["basis"] == "all" and "histogram" in part
    ]
    if not histograms or len(histograms) < len(found):
        return []
    if any(list(each["edges"]) != list(signal.edges) for each in histograms):
        return []
    return [sum(column) for column in zip(*(each["counts"] for each in histograms), strict=True)]


def duplicates(data: ReportData) -> Section | None:
    """Return the section of duplicates; None if there are none to show."""
    equal = "Equal bytes in two splits, which make test results too good"
    parts = [
        *_kind(data, LEAKS, equal),
        *_kind(data, NEAR_LEAKS, "Almost equal, in two splits"),
    ]
    dropped = {one.id: one for one in data.rejects if one.thumbnail is not None}
    shown = [pair for pair in data.near if pair.id in data.paired or pair.id in dropped]
    if shown:
        parts += [
            tag("h3", "Near-duplicates, and the image that stands for each"),
            _sheet([_near_pair(data, pair, dropped.get(pair.id)) for pair in shown]),
            note("With the bits in which their hashes differ; near_duplicates.parquet has all."),
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
    more = [numbers("more by checksum only")] if key == LEAKS else []
    columns = [names("split"), names("also in"), numbers("records"), *more]
    keys = ("records", "unchecked")[: 1 + len(more)]
    rows = [[name, other, *map(leak.get, keys)] for name, other, leak in found]
    pairs = [pair for one in found for pair in _pairs(data, key, *one)]
    return [tag("h3", told), _sheet(pairs), table(told, columns, rows)]


def _sheet(pairs: list[Html]) -> Html:
    return tag("div", join(pairs), class_="sheet pairs")


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
    label = data.class_name(found.label) if found else ""
    return picture(found, label, caption=tag("small", name_of(split)))


def rejected(data: ReportData) -> Section:
    """Return the section of rejects."""
    counts = data.manifest.rejects
    if not counts:
        return Section("rejects", "Rejects", tag("p", "None."))
    ordered = sorted(counts, key=lambda reason: (-counts[reason], reason))
    columns = [texts("reason"), numbers("inputs"), texts("meaning"), texts("fix")]
    rows = [[reason, counts[reason], *REASONS.get(reason, UNKNOWN)] for reason in ordered]
    by_reason: dict[str, list[RejectedInput]] = defaultdict(list)
    for found in data.rejects:
        by_reason[found.reason].append(found)
    known = [one for one in ordered if by_reason[one]]
    few = len(data.rejects) <= _OPEN
    parts = [
        _gallery(by_reason, known),
        table("Rejects by reason", columns, rows),
    ]
    columns = [names("id"), names("path"), names("message and fix")]
    for reason in known:
        some, number = by_reason[reason], counts[reason]
        rows = [[one.id or one.uri, one.uri, one.detail] for one in some]
        part = f", {len(some):,} of {number:,}" if len(some) < number else f", {number:,}"
        examples = table(f"Rejects: {reason}", columns, rows)
        parts.append(more(join((tag("code", reason), part)), examples, is_open=few))
    parts.append(note("All of them are in rejects/*.parquet."))
    return Section("rejects", "Rejects", join(parts))


def _gallery(by_reason: Mapping[str, list[RejectedInput]], reasons: list[str]) -> Html:
    """Return the pictures of rejects that decode, at least partly, by reason."""
    groups = []
    for reason in reasons:
        figures = [
            bare_picture(one.thumbnail, one.id or one.uri, f"{reason}: {one.detail}")
            for one in by_reason[reason]
            if one.thumbnail is not None
        ]
        if figures:
            groups.append(tag("div", tag("h3", reason), sheet(figures), class_="group"))
    if not groups:
        return Html("")
    told = "Some of those whose local files still decode; what is lost of a picture is black."
    return join((note(told), tag("div", *groups, class_="groups")))


def fixes(data: ReportData) -> Section | None:
    """Return the section of the images that the build fixed; None if there are none."""
    rows = [
        [fault, name, number]
        for name, split in data.manifest.splits.items()
        for fault, number in split.stats.get(FIXES, {}).items()
    ]
    if not rows:
        return None
    columns = (texts("fault"), names("split"), numbers("images"))
    return Section(
        "fixes", "Fixes", table("Fixed images; of exif_kept, only viewers turn them", columns, rows)
    )
