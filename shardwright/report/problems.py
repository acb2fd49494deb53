"""Show what may be wrong with images: quality, duplicates, rejects, and fixes that were made."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardwright.format.stats_keys import FIXES, LEAKS, NEAR_LEAKS
from shardwright.images.signals import SIGNALS, Signal
from shardwright.inspect.stats import channel_view, signal_view
from shardwright.inspect.views import names, numbers, texts
from shardwright.report.charts import histogram_of
from shardwright.report.contact_sheet import anchor_of, figure, picture
from shardwright.report.data import ReportData
from shardwright.report.markup import Html, Section, gallery, join, name_of, note, sheet, table, tag
from shardwright.report.pictures import Picture
from shardwright.sizes import counted, show_number

_KINDS = (
    (LEAKS, " = ", "Equal bytes in two splits, which make test results too good"),
    (NEAR_LEAKS, " \u2248 ", "Almost equal, in two splits"),
)


def quality(data: ReportData) -> Section | None:
    """Return the section of quality; None without pictures."""
    measured = [found for found in data.pictures if found.signals is not None and found.thumbnail]
    if not measured:
        return None
    told = (
        f"Charts are of {counted(len(measured), 'picture')} of the sample, at a reduced size. "
        "The pictures at the bad end of each signal are shown, whether they are bad or not."
    )
    values = np.array([found.signals for found in measured if found.signals is not None])
    shown = [
        _signal(data, measured, signal, values[:, place]) for place, signal in enumerate(SIGNALS)
    ]
    views = (signal_view(data.manifest), channel_view(data.manifest))
    tables = (table(*view) for view in views if view.rows)
    parts = (note(told), tag("div", *shown, class_="charts"), *tables)
    return Section("quality", "Quality", join(parts))


def _signal(
    data: ReportData, measured: Sequence[Picture], signal: Signal, values: np.ndarray
) -> Html:
    chart = histogram_of(f"{signal.name}: {signal.text}", values, show_number)
    order = np.argsort(values, kind="stable")
    ends = {"low": order[:6], "high": order[:-7:-1], "both": np.r_[order[:3], order[:-4:-1]]}
    if not signal.bad or values.min() == values.max():
        return chart
    worst = []
    for place in ends[signal.bad]:
        found, value = measured[place], show_number(float(values[place]))
        facts, label = f"{signal.name} {value}", data.class_name(found.label)
        told = {"label": label, "split": found.split, "of": anchor_of(found)}
        worst.append(figure(None, found.id, facts, caption=value, **told))
    return tag("div", chart, sheet(worst), class_="signal")


def duplicates(data: ReportData) -> Section | None:
    """Return the section of duplicates; None if there are none to show."""
    parts: list[object] = []
    splits = data.manifest.splits
    columns = (
        *(names("split"), names("also in")),
        *(numbers("records"), numbers("more by checksum only")),
    )
    for key, sign, title in _KINDS:
        rows, pairs = [], []
        for name, split in splits.items():
            for other, leak in split.stats.get(key, {}).items():
                rows.append([name, other, leak["records"], leak["unchecked"]])
                # Both splits of a build state the same examples.
                if name < other or name not in splits[other].stats.get(key, {}):
                    pairs += [
                        _pair(data, (name, here), (other, there), sign)
                        for here, there in leak["examples"]
                    ]
        if rows:
            parts += (tag("h3", title), _pairs(pairs), table(title, columns, rows))
    dropped = {one.id for one in data.rejects if one.thumbnail is not None}
    near = [
        _pair(data, ("", pair.id), ("", pair.keeper), _KINDS[1][1], counted(pair.distance, "bit"))
        for pair in data.near
        if pair.id in data.paired or pair.id in dropped
    ]
    if near:
        parts += [
            tag("h3", "Near-duplicates, and the image that stands for each"),
            _pairs(near),
            note("With the bits in which their hashes differ; near_duplicates.parquet has all."),
        ]
    return Section("duplicates", "Duplicates", join(parts)) if parts else None


def _pairs(pairs: Sequence[Html]) -> Html:
    return tag("div", *pairs, class_="sheet pairs")


def _pair(
    data: ReportData, here: tuple[str, str], there: tuple[str, str], sign: str, apart: str = ""
) -> Html:
    """Return two images, each with its split and its id, beside one another."""
    shown = [_side(data, *side) for side in (here, there)]
    told = (name_of(here[1]), sign, name_of(there[1]), f", {apart}" if apart else "")
    return tag("div", *shown, tag("p", *told), class_="pair")


def _side(data: ReportData, split: str, name: str) -> Html:
    found = data.paired.get(name)
    if found is not None:
        return picture(data, found, caption=tag("small", name_of(found.split)))
    for reject in data.rejects:
        if reject.id == name and reject.thumbnail is not None:
            caption = tag("small", "rejected")
            return figure(reject.thumbnail, name, reject.detail, caption=caption)
    return picture(data, None, caption=tag("small", name_of(split)))


def rejected(data: ReportData) -> Section:
    """Return the section of rejects."""
    counts = data.manifest.rejects
    if not counts:
        return Section("rejects", "Rejects", tag("p", "None."))
    ordered = sorted(counts, key=lambda reason: (-counts[reason], reason))
    pictures = gallery(
        {
            reason: [
                figure(one.thumbnail, one.id or one.uri, f"{reason}: {one.detail}")
                for one in data.rejects
                if one.reason == reason and one.thumbnail is not None
            ]
            for reason in ordered
        }
    )
    told = "Some of those whose local files still decode; what is lost of a picture is black."
    rows = [[reason, counts[reason]] for reason in ordered]
    parts = [
        *((note(told), pictures) if pictures else ()),
        table("Rejects by reason", (texts("reason"), numbers("inputs")), rows),
    ]
    if data.rejects:
        columns = (texts("reason"), names("id"), names("path"), names("message and fix"))
        rows = [[one.reason, one.id or one.uri, one.uri, one.detail] for one in data.rejects]
        parts += [
            table("Examples of rejects", columns, rows),
            note("All of them are in rejects/*.parquet; docs/builds.md explains the reasons."),
        ]
    return Section("rejects", "Rejects", join(parts))


def fixes(data: ReportData) -> Section | None:
    """Return the section of the images that the build fixed; None if there are none."""
    rows = [
        [fault, name, number]
        for name, split in data.manifest.splits.items()
        for fault, number in split.stats.get(FIXES, {}).items()
    ]
    columns = (texts("fault"), names("split"), numbers("images"))
    title = "Fixed images; of exif_kept, only viewers turn them"
    return Section("fixes", "Fixes", table(title, columns, rows)) if rows else None
