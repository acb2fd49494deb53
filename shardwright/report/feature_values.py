"""Show the values of features: numbers, lengths of texts and of lists, as statistics have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shardwright.format.stats_keys import FEATURES
from shardwright.report.charts import density
from shardwright.report.data import ReportData
from shardwright.report.markup import Html, join
from shardwright.report.sections import Section, charts, note
from shardwright.report.tables import Cell, names, numbers, show_number, table, texts

_DRAWN = 60  # features with a chart


def feature_values(data: ReportData) -> Section | None:
    """Return the section of values; None if the statistics have none."""
    found = list(_summaries(data))
    if not found:
        return None
    columns = (
        *(names("feature"), texts("of"), names("split"), numbers("count"), numbers("least")),
        *(numbers("mean"), numbers("largest"), numbers("deviation"), numbers("zeros")),
    )
    rows: list[list[Cell]] = [
        [
            name,
            summary.get("of", "values"),
            split,
            *(summary.get(key) for key in ("count", "min", "mean", "max", "std", "zeros")),
        ]
        for split, name, summary in found
    ]
    largest = max(data.manifest.splits.values(), key=lambda split: split.num_records).name
    drawn = [
        (name, summary)
        for split, name, summary in found
        if split == largest and "histogram" in summary
    ]
    told = f"Charts show the values of {largest}; the area of a bar is its number of values."
    parts = [note(told), charts(*(_chart(*each) for each in drawn[:_DRAWN]))] if drawn else []
    return Section("values", "Values", join([*parts, table("Values of features", columns, rows)]))


def _summaries(data: ReportData) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield split, feature and summary, by feature."""
    found = [
        (split.name, name, summary)
        for split in data.manifest.splits.values()
        for name, summary in split.stats.get(FEATURES, {}).items()
    ]
    yield from sorted(found, key=lambda one: (one[1], one[0]))


def _chart(name: str, summary: Mapping[str, Any]) -> Html:
    of = summary.get("of", "values")
    title = name if of == "values" else f"{name}: {of}"
    histogram = summary["histogram"]
    ends = summary["min"], summary["max"]
    return density(title, histogram["edges"], histogram["counts"], ends, show_number)
