"""Show the quality signals of the sampled pictures, and the worst pictures by each of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardwright.format.stats_keys import CHANNELS
from shardwright.format.stats_keys import SIGNALS as SIGNALS_KEY
from shardwright.images.signals import SIGNALS, Signal
from shardwright.report.charts import histogram, histogram_of
from shardwright.report.contact_sheet import anchor_of, link_to_pictures
from shardwright.report.data import ReportData
from shardwright.report.markup import Html, join, tag
from shardwright.report.pictures import Picture
from shardwright.report.sections import Section, again, class_name, note, sheet
from shardwright.report.tables import Cell, names, show_number, table, texts
from shardwright.sizes import counted

_WORST = 6  # pictures of each signal


def quality(data: ReportData) -> Section | None:
    """Return the section of quality; None without pictures."""
    measured = [found for found in data.pictures if found.signals is not None and found.thumbnail]
    if not measured:
        return None
    values = np.array([found.signals.values() for found in measured if found.signals is not None])
    told = (
        f"Measured on {counted(len(measured), 'picture')} of the sample, at a reduced size. "
        "The pictures at the bad end of each signal are shown, whether they are bad or not."
    )
    shown = [
        _signal(data, measured, signal, values[:, place]) for place, signal in enumerate(SIGNALS)
    ]
    return Section(
        "quality",
        "Quality",
        join((note(told), tag("div", *shown, class_="charts"), _channels(data))),
    )


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
    worst = [
        _worst(data, measured[place], signal, float(values[place])) for place in ends[signal.bad]
    ]
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


def _channels(data: ReportData) -> Html:
    """Return the table of the mean and deviation of each channel, 0 to 1."""
    rows: list[list[Cell]] = [
        [split.name, found["basis"], *(_triple(found[key]) for key in ("mean", "std"))]
        for split in data.manifest.splits.values()
        if (found := split.stats.get(CHANNELS))
    ]
    columns = (names("split"), texts("measured on"), texts("mean"), texts("deviation"))
    title = "Mean and deviation of red, green and blue, 0 to 1"
    return table(title, columns, rows) if rows else Html("")


def _triple(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4f}" for value in values)


def _worst(data: ReportData, found: Picture, signal: Signal, value: float) -> Html:
    label = class_name(data.manifest.schema.class_names, found.label)
    told = show_number(value)
    return again(found, anchor_of(data, found), label, f"{signal.name} {told}", told)
